"""hippo: what a HiPPO memory still knows of a signal, in numbers and as a picture"""

from collections.abc import Sequence
from pathlib import Path

from longwave.commands._common import word
from longwave.errors import UserError, choose
from longwave.flags import Group, parse
from longwave.registry import REQUIRED, Option


def run(argv: Sequence[str]) -> None:
    """Print the errors by measure and order, and draw where --out says."""
    from longwave.probe.hippo import THETA, draw, recall

    options = [
        Option("out", str | None, None, "folder for the picture"),
        Option("order", int, 64, "coefficients a memory"),
        Option("steps", int, 2000, "samples of the signal"),
    ]
    words, chosen = parse("profile", argv, [Group("hippo", "the memory", options)],
                          [word("what", REQUIRED, "what to profile: hippo")])  # fmt: skip
    choose("profile", words["what"], {"hippo": recall})
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
