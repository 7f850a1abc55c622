"""Probes of what reaches a token: flags and printing, for `profile`."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from longwave.compare.report import table as in_columns
from longwave.errors import UserError
from longwave.flags import Group
from longwave.registry import Option


def _numbers(flag: str, text: str) -> list[float]:
    try:
        found = [float(each) for each in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) <= 0:
        raise UserError(f"--{flag} must be positive numbers with commas between them, got {text!r}")
    return found


def gradient_flags() -> list[Group]:
    return [Group("gradient", "the layers and the sequence", [
        Option("out", str | None, None, "folder for the picture"),
        Option("mixers", str, "rnn,lstm,attention,s4", "with commas between them"),
        Option("tokens", int, 65, "length of the sequence"),
        Option("d_model", int, 16, "width"),
    ])]  # fmt: skip


def gradient(chosen: dict[str, Any]) -> None:
    """The norm of dy_T / dx_t by the lag T - t."""
    import torch

    from longwave import mixers
    from longwave.probe.gradient import draw, gradient_by_lag

    names = [name for name in chosen["mixers"].split(",") if name]
    if chosen["tokens"] < 2 or not names:
        raise UserError("a lag needs a mixer and at least 2 tokens")
    torch.manual_seed(0)
    x = torch.randn(4, chosen["tokens"], chosen["d_model"])
    found = {name: gradient_by_lag(mixers.create(name, chosen["d_model"]), x) for name in names}
    lags = [lag for lag in (0, *(2**i for i in range(30))) if lag < chosen["tokens"]]
    print("norm of the gradient of the last output with respect to the input so many tokens before\n")
    rows = [[f"{lag}", *(f"{float(norms[lag]):.2e}" for norms in found.values())] for lag in lags]
    print(in_columns(rows, ["lag", *found]))
    if chosen["out"] is not None:
        print(f"\n{draw(found, Path(chosen['out']) / 'gradient.png')}")


def order_flags() -> list[Group]:
    return [Group("order", "the sequence", [
        Option("tokens", int, 32, "length of the sequence"), Option("d_model", int, 16, "width"),
    ])]  # fmt: skip


def order(chosen: dict[str, Any]) -> None:
    """Attention on shuffled tokens, with each kind of positions."""
    import torch

    from longwave import mixers
    from longwave.probe.looking import order_blindness

    torch.manual_seed(0)
    x = torch.randn(2, chosen["tokens"], chosen["d_model"], dtype=torch.float64)
    rows = []
    for position in ("none", "rope", "alibi", "t5"):
        layer = mixers.create("attention", chosen["d_model"], causal=False, position=position).double()
        for table in (p for name, p in layer.named_parameters() if name == "table"):
            torch.nn.init.normal_(table)  # which starts as zeros, and so blind
        apart = order_blindness(layer, x)
        rows.append([position, f"{apart:.1e}", "blind" if apart <= 1e-6 else "sees order"])
    print("attention over shuffled tokens: how far from the shuffled answer\n")
    print(in_columns(rows, ["positions", "apart", ""]))


def temperature_flags() -> list[Group]:
    return [Group("temperature", "the draws", [
        Option("temperatures", str, "0.1,1,10", "with commas between them"),
        Option("draws", int, 100, "random inputs"), Option("tokens", int, 16, "keys"),
    ])]  # fmt: skip


def temperature(chosen: dict[str, Any]) -> None:
    """The entropy of the weights at each temperature."""
    import torch

    from longwave.probe.looking import entropy_by_temperature

    torch.manual_seed(0)
    asked = sorted(_numbers("temperatures", chosen["temperatures"]))
    found = entropy_by_temperature(asked, chosen["draws"], chosen["tokens"])
    rows = [[f"{each.temperature:g}", f"{float(each.entropy.mean()):.3f}", "same" if each.same_order else "OTHER"]
            for each in found]  # fmt: skip
    print(in_columns(rows, ["temperature", "entropy in nats", "order of the weights"]))
    grows = all(bool((b.entropy > a.entropy).all()) for a, b in pairwise(found))
    print(f"\nof all {chosen['draws']} draws the entropy grows with the temperature: {'yes' if grows else 'NO'}")


def hull_flags() -> list[Group]:
    return [Group("hull", "the sequence", [
        Option("tokens", int, 32, "length of the sequence"), Option("width", int, 4, "of the values"),
    ])]  # fmt: skip


def hull(chosen: dict[str, Any]) -> None:
    """Outputs of attention, and their distance from the convex hull of the values."""
    import torch

    from longwave import ops
    from longwave.probe.looking import hull_distance

    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, chosen["tokens"], 1, chosen["width"], dtype=torch.float64).unbind(0)
    y = ops.attention(q, k, v)[0, :, 0]
    rows = []
    for name, each in (("attention", y), ("and a residual stream", y + q[0, :, 0])):
        far = hull_distance(each, v[0, :, 0])
        rows.append([name, f"{float(far.max()):.1e}", f"{int((far > 1e-6).sum())} of {len(far)}"])
    print(in_columns(rows, ["outputs", "farthest from the hull", "outside"]))
