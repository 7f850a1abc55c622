"""The house keeps its shape: imports point down only, functions fit on a screen, a mixer is one small file."""

import ast
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[1] / "src" / "longwave"
FLOORS = (  # from the ground up; a room may use what stands on lower floors, and its neighbours on the same
    {"dims", "errors", "tolerance", "files", "hints", "spec", "registry", "record", "replay", "state", "mixer"},
    {"chunked"},
    {"allocator", "ops"},
    {"parts"},
    {"mixers"},
    {"models", "hf"},
    {"laws", "data"},
    {"generate", "embed"},
    {"tasks"},
    {"train"},
    {"serve", "bench", "lab", "probe", "compare", "doctor"},
    {"flags", "commands", "cli"},
)
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
FILES = [file for file in sorted(HOUSE.rglob("*.py")) if file != HOUSE / "__init__.py"]
LONGEST = 60  # lines of a function
KERNELS = ("ops/native", "ops/triton")


def label(file):
    return file.relative_to(HOUSE).as_posix()


def room(file):
    return file.relative_to(HOUSE).parts[0].removesuffix(".py")


def imported(tree):
    """The rooms that a file imports, wherever in the file it does."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, *rest = name.split(".")
            if first == "longwave" and rest and rest[0] in FLOOR:
                yield rest[0]


@pytest.mark.parametrize("file", FILES, ids=label)
def test_arrows_point_down(file):
    assert room(file) in FLOOR, f"{room(file)} has no floor yet: say in FLOORS where it stands"
    for other in imported(ast.parse(file.read_text(encoding="utf-8"))):
        assert FLOOR[other] <= FLOOR[room(file)], f"{label(file)} reaches up to {other}"


@pytest.mark.parametrize("file", FILES, ids=label)
def test_functions_fit_on_a_screen(file):
    if label(file).startswith(KERNELS):
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            assert lines <= LONGEST, f"{label(file)}: {node.name} has {lines} lines"


@pytest.mark.parametrize("file", sorted((HOUSE / "mixers").glob("[!_]*.py")), ids=label)
def test_a_mixer_is_a_small_file_that_explains_itself(file):
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150, "an op or a part is hiding in it"
    doc = ast.get_docstring(ast.parse(text))
    for part in ("Recurrence", "Parallel form", "Cost", "Paper", "Deviations"):
        assert f"\n{part}" in doc, f"its docstring has no part {part!r}"


def test_the_core_imports_nothing_heavy():
    allowed = {"torch", "numpy", "safetensors", "jaxtyping", "longwave"}
    for file in FILES:
        if room(file) == "hf":  # nothing but classes of transformers; imported by who wants these
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in tree.body:  # at the top of the file, so that importing it would fail
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                first = name.partition(".")[0]
                assert first in allowed or first in sys.stdlib_module_names, f"{label(file)} imports {first} at its top"
