"""WHAT: what layers and models can do, from path lengths to attention maps: numbers, and pictures"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from longwave.commands import _costs, _looks
from longwave.commands._common import word
from longwave.errors import UserError, choose
from longwave.flags import Group, parse
from longwave.registry import REQUIRED, Option, schema


def run(argv: Sequence[str]) -> None:
    """Print the numbers of a probe, and draw its picture."""
    what = next((each for each in argv if not each.startswith("-")), "")
    probe = choose("profile", what, PROBES) if what else None
    groups = probe[1]() if probe else []
    _, *chosen = parse("profile", argv, groups, [word("what", REQUIRED, f"what to profile: {', '.join(PROBES)}")])
    if probe:
        probe[0](*chosen)


def _hippo_flags() -> list[Group]:
    return [Group("hippo", "the memory", [
        Option("out", str | None, None, "folder for the picture"),
        Option("order", int, 64, "coefficients a memory"),
        Option("steps", int, 2000, "samples of the signal"),
    ])]  # fmt: skip


def _hippo(chosen: dict[str, Any]) -> None:
    """The errors by measure and order."""
    from longwave.probe.hippo import THETA, draw, recall

    if chosen["order"] < 1 or chosen["steps"] < 2:
        raise UserError(f"order must be at least 1 and steps at least 2, got {chosen['order']} and {chosen['steps']}")
    orders = sorted({max(1, chosen["order"] // 4), max(1, chosen["order"] // 2), chosen["order"]})
    print("error of what is recalled, relative to the signal, weighed by the measure\n")
    print("measure  moment" + "".join(f"{f'N = {order}':>12s}" for order in orders))
    for measure in THETA:
        by_order = [recall(measure, order, chosen["steps"]) for order in orders]
        for same in zip(*by_order, strict=True):
            print(f"{measure:7s}  {same[0].moment:6g}" + "".join(f"{memory.error:12.2e}" for memory in same))
    if chosen["out"] is not None:
        picture = draw({measure: recall(measure, chosen["order"], chosen["steps"]) for measure in THETA},
                       Path(chosen["out"]))  # fmt: skip
        print(f"\n{picture}")


def _recall_flags() -> list[Group]:
    from longwave.tasks.recall import Recall
    from longwave.train.plan import Plan

    return [
        Group("recall", "the models and the numbers of pairs", [
            Option("out", str, "runs/recall", "folder of the runs and the picture; what is there is not done again"),
            Option("mixers", str, "attention,mamba,gla,lstm", "with commas between them"),
            Option("pairs", str, "4,8,16,32,64", "with commas between them"),
            Option("d_model", int, 64, "width"),
            Option("n_layers", int, 2, "layers"),
        ]),
        Group("training", "how to train each", schema(Plan), defaults={**Recall.plan, "steps": 2000}),
    ]  # fmt: skip


def _recall(chosen: dict[str, Any], plan: dict[str, Any]) -> None:
    """A table of accuracies: a row a mixer, a column a number of pairs."""
    from longwave import mixers
    from longwave.probe.recall import draw, points
    from longwave.train.plan import Plan

    names = [name for name in chosen["mixers"].split(",") if name]
    for name in names:
        mixers.registry.get(name)
    pairs = [n for n in chosen["pairs"].split(",") if n]
    if not all(n.isdigit() and int(n) for n in pairs):
        raise UserError(f"--pairs must be positive whole numbers with commas between them, got {chosen['pairs']!r}")
    folder = Path(chosen["out"])
    size = {"d_model": chosen["d_model"], "n_layers": chosen["n_layers"]}
    found = list(points(names, [int(n) for n in pairs], Plan(**plan), folder, **size))
    print("\nvalues said right, by the number of pairs\n")
    print(f"{'mixer':20s}" + "".join(f"{n:>8s}" for n in pairs) + "   state")
    for name in names:
        own = [point for point in found if point.mixer == name]
        print(f"{name:20s}" + "".join(f"{p.accuracy:8.3f}" for p in own) + f"   {own[-1].state / 1024:.1f} KiB")
    print(f"\n{draw(found, folder / 'recall.png')}")


PROBES: dict[str, tuple[Callable[..., object], Callable[[], list[Group]]]] = {
    "complexity": (_costs.complexity, _costs.complexity_flags),
    "paths": (_costs.paths, _costs.path_flags),
    "gradient": (_looks.gradient, _looks.gradient_flags),
    "hippo": (_hippo, _hippo_flags),
    "hull": (_looks.hull, _looks.hull_flags),
    "order": (_looks.order, _looks.order_flags),
    "recall": (_recall, _recall_flags),
    "temperature": (_looks.temperature, _looks.temperature_flags),
}
