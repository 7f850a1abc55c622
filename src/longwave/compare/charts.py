"""Line charts as SVG text: nothing but this file is needed to draw or to see them."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 130, 30, 44  # margins; the names stand at the right
COLOURS = ("#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#8c564b", "#7f7f7f", "#bcbd22", "#e377c2")


@dataclass(frozen=True)
class Line:
    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()  # a band around it
    high: Sequence[float] = ()


class Axis:
    """Where a number lies between two ends, on a plain or a logarithmic scale."""

    def __init__(self, values: Sequence[float], start: float, end: float, log: bool) -> None:
        self.log = log and min(values) > 0
        self.start, self.end = start, end
        self.low, self.high = min(values), max(values)
        if self.low == self.high:
            pad = abs(self.low) / 2 or 1.0
            self.low, self.high = self.low - pad, self.high + pad

    def at(self, value: float) -> float:
        scale = math.log if self.log else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.log:
            tens = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            wide = self.high / self.low > 100
            every = [m * 10.0**e for e in tens for m in ((1,) if wide else (1, 2, 5))]
            return [tick for tick in every if self.low * 0.999 <= tick <= self.high * 1.001]
        rough = (self.high - self.low) / 5
        step = 10.0 ** math.floor(math.log10(rough))
        step *= next(m for m in (1, 2, 5, 10) if m * step >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def chart(
    title: str, x_name: str, y_name: str, lines: Sequence[Line], *, log_x: bool = False, log_y: bool = False
) -> str:
    """An SVG element; without lines, a sentence."""
    lines = [line for line in lines if len(line.x)]
    if not lines:
        return f"<p>{html.escape(title)}: nothing was measured.</p>"
    x = Axis([v for line in lines for v in line.x], LEFT, WIDTH - RIGHT, log_x)
    y = Axis([v for line in lines for v in (*line.y, *line.low, *line.high)], HEIGHT - BOTTOM, TOP, log_y)
    parts = [*_frame(title, x_name, y_name, x, y)]
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        if len(line.low):
            edge = [*zip(line.x, line.high, strict=True), *reversed(list(zip(line.x, line.low, strict=True)))]
            parts.append(f'<polygon points="{_points(edge, x, y)}" fill="{colour}" fill-opacity="0.15"/>')
        points = list(zip(line.x, line.y, strict=True))
        parts.append(f'<polyline points="{_points(points, x, y)}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        parts += [f'<circle cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="2.2" fill="{colour}"/>' for a, b in points]
        at = TOP + 8 + 18 * i
        parts.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{at - 8}" width="12" height="3" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 30}" y="{at - 3}">{html.escape(line.name[:16])}</text>')
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="sans-serif" font-size="11">\n{body}\n</svg>')  # fmt: skip


def _frame(title: str, x_name: str, y_name: str, x: Axis, y: Axis) -> list[str]:
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts = [
        f'<text x="{middle}" y="16" text-anchor="middle" font-size="13">{html.escape(title)}</text>',
        f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{html.escape(x_name)}</text>',
        f'<text transform="translate(14,{HEIGHT / 2}) rotate(-90)" text-anchor="middle">{html.escape(y_name)}</text>',
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#444"/>',
    ]
    for tick in x.ticks():
        at = x.at(tick)
        parts.append(f'<path d="M{at:.1f} {HEIGHT - BOTTOM}v4" stroke="#444"/>')
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(tick)}</text>')
    for tick in y.ticks():
        at = y.at(tick)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    return parts


def _points(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    return " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in points)


def short(value: float) -> str:
    """1500000 -> 1.5M"""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:.3g}"
