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


def complexity_flags() -> list[Group]:
    return [Group("complexity", "the layers", [
        Option("out", str | None, None, "folder for the picture"),
        Option("layers", str, "", "with commas between them; all where there is none"),
        Option("timed", bool, True, "measure processor time, beside what is counted"),
    ])]  # fmt: skip


def complexity(chosen: dict[str, Any]) -> bool:
    """Exponents fitted beside those published; whether all agree."""
    from longwave.errors import choose
    from longwave.probe.complexity import LAYERS, ROUNDS, TAPS, TOLERANCE, WINDOW, draw, fit_complexity

    names = [name.strip() for name in chosen["layers"].split(",") if name.strip()] or list(LAYERS)
    for name in names:
        choose("layer", name, LAYERS)
    found, lines = [], []
    for each in fit_complexity(names, timed=chosen["timed"]):
        found.append(each)
        verdict = "" if each.holds is None else "pass" if each.holds else "FAIL"
        theory = "-" if each.theory is None else f"{each.theory:g}"
        sizes, values = " ".join(f"{n:,}" for n in each.sizes), " ".join(f"{v:.3g}" for v in each.values)
        lines.append([each.layer, each.quantity, each.formula, each.against, theory, f"{each.exponent:.2f}", sizes,
                      values, verdict])  # fmt: skip
    print(in_columns(lines, ["layer", "quantity", "published", "against", "exponent", "ours", "sizes", "values", ""]))
    print(f"\nwhat passes is within {TOLERANCE:g}; k = {TAPS} taps, r = {WINDOW} tokens seen")
    print("counted: flops of a forward pass and of one more token, and bytes that training keeps")
    print(f"measured: seconds of the processor, the least of {ROUNDS}")
    if chosen["out"] is not None:
        print(f"\n{draw(found, Path(chosen['out']) / 'complexity.png')}")
    return all(each.holds is not False for each in found)


def reproduce_complexity(own: dict[str, Any]) -> bool:
    """Vaswani et al. 2017, Table 1, and Gu, Goel and Re 2022, Table 1."""
    from longwave.compare.reproduce import pick
    from longwave.probe.complexity import LAYERS

    return complexity({"out": own["out"], "layers": ",".join(pick("row", own["row"], list(LAYERS))), "timed": True})


def reproduce_paths(own: dict[str, Any]) -> bool:
    """Vaswani et al. 2017, Table 1."""
    from longwave.compare.reproduce import pick
    from longwave.probe.paths import table

    values = {option.name: option.default for option in path_flags()[0].options}
    return paths({**values, "out": own["out"], "rows": pick("row", own["row"], list(table()))})
