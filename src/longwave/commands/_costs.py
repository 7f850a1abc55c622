"""The two tables of complexity: flags and printing, for `profile` and for `reproduce`."""

from pathlib import Path
from typing import Any

from longwave.compare.report import table as in_columns
from longwave.flags import Group
from longwave.registry import Option


def path_flags() -> list[Group]:
    return [Group("paths", "the sequence and the layers", [
        Option("out", str | None, None, "folder for the picture"),
        Option("tokens", int, 64, "n, the length of the sequence"),
        Option("taps", int, 3, "k, of the convolution"),
        Option("window", int, 5, "r, tokens that restricted attention sees, itself included"),
        Option("mixers", str, "", "others to count, with commas between them"),
    ])]  # fmt: skip


def paths(chosen: dict[str, Any]) -> bool:
    """Steps that wait for one another, and steps between tokens; whether the published table holds."""
    from longwave import mixers
    from longwave.probe.paths import count_paths, draw, table, table_rows

    n, k, r = chosen["tokens"], chosen["taps"], chosen["window"]
    others = [name for name in chosen["mixers"].split(",") if name]
    for name in others:
        mixers.registry.get(name)
    found = table_rows(n, k, r, chosen.get("rows"))
    lines = []
    for row in found:
        lines.append([row.name, row.published.sequential, *_chains(row.counted), row.published.path, f"{row.path}",
                      *_ways(row.counted), "pass" if row.holds else "FAIL"])  # fmt: skip
    for name in others:
        counted = count_paths(name, n)
        lines.append([name, "", *_chains(counted), "", "", *_ways(counted), ""])
    print(f"n = {n} tokens, k = {k} taps, r = {r} tokens seen; causal layers\n")
    print(in_columns(lines, ["layer", "sequential", "operations", "products", "maximum path", "exactly", "counted",
                             "layers deep", ""]))  # fmt: skip
    print("\noperations: the longest chain of a layer in which each waits for the one before; products: those of "
          "matrices among them")  # fmt: skip
    if chosen["out"] is not None:
        known = table(k, r)
        print(f"\n{draw({row.name: known[row.name].layer for row in found}, n, Path(chosen['out']) / 'paths.png')}")
    return all(row.holds for row in found)


def _chains(counted: Any) -> list[str]:
    grows = " and growing" if counted.sequential else ""
    return [f"{counted.operations}{grows}", f"{counted.products}"]


def _ways(counted: Any) -> list[str]:
    return [f"{counted.longest}", f"{counted.depth}"]
