"""What several verbs share."""

import ast
import inspect
from pathlib import Path
from typing import Any

from longwave import mixers
from longwave.flags import Group
from longwave.registry import REQUIRED, Option, schema

OPS = Path(__file__).parents[1] / "ops"


def print_metrics(metrics: dict[str, float], task: Any, split: str = "validation") -> None:
    print(f"\n{split}")
    for name, value in metrics.items():
        print(f"  {name.replace('_', ' '):22s} {value:.4f}")
    if "bits_per_byte" in metrics and split == "validation":
        for name, value in task.baselines().items():
            print(f"  {name + ' needs':22s} {value:.4f}  bits per byte on the same text")


def print_options(make: Any) -> None:
    for o in schema(make):
        default = "required" if o.default is REQUIRED else f"= {o.default!r}"
        print(f"  {o.name} {default}  {o.help}")


def word(name: str, default: Any, text: str) -> Option:
    return Option(name, str, default, text)


def mixer_group(name: str) -> Group:
    return Group(name, f"the mixer {name}", schema(mixers.registry.get(name)), prefixed=True)


def changed_options(make: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The options that differ from their defaults."""
    return {o.name: values[o.name] for o in schema(make) if values[o.name] != o.default}


def first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def op_summaries() -> dict[str, str]:
    """The public names of `longwave.ops`, each with the first line of its file, read without importing torch."""
    listed = ast.parse((OPS / "__init__.py").read_text(encoding="utf-8"))
    homes = {
        alias.name: (node.module or "").rpartition(".")[2]
        for node in listed.body
        if isinstance(node, ast.ImportFrom) and not (node.module or "").endswith("dispatch")
        for alias in node.names
    }
    summaries = {}
    for name, home in sorted(homes.items()):
        tree = ast.parse((OPS / f"{home}.py").read_text(encoding="utf-8"))
        found = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
        if found is not None:
            summaries[name] = ((ast.get_docstring(found) or "") + "\n").partition("\n")[0]
    return summaries
