"""A line chart as SVG, the same bytes on every machine, so that a test can compare it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import log2

__all__ = ["Series", "chart"]

#: Colours that the colour-blind can tell apart (Okabe and Ito).
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#000000", "#E69F00")
WIDTH, HEIGHT = 720, 400
FONT = 'font-family="sans-serif" font-size="13"'
LEFT, RIGHT, TOP, BOTTOM = 60, 250, 44, 48


@dataclass(frozen=True)
class Series:
    """A line with its name.

    Attributes:
        points: (x, y), all above 0.
        dashed: to tell apart what is not ours, or not reached.
    """

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def chart(title: str, across: str, up: str, series: Sequence[Series], x: Sequence[float], y: Sequence[float]) -> str:
    """Return a chart with logarithmic axes.

    Args:
        across: what the horizontal axis shows; `up` the vertical one.
        x: the ticks of the horizontal axis, from its least to its greatest; `y` of the vertical one.

    >>> "polyline" in chart("a", "b", "c", [Series("d", [(1, 1), (2, 2)])], [1, 2], [1, 2])
    True
    """
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(value: float, ticks: Sequence[float], start: float, end: float) -> float:
        return start + (end - start) * (log2(value) - log2(ticks[0])) / (log2(ticks[-1]) - log2(ticks[0]))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#FFFFFF"/>',
        f'<text x="{LEFT - 44}" y="20" font-size="15">{escape(title)}</text>',
        f'<text x="{LEFT - 44}" y="37" fill="#606060">{escape(up)}</text>',
        f'<text x="{right}" y="{HEIGHT - 10}" text-anchor="end" fill="#606060">{escape(across)}</text>',
    ]
    for tick in y:
        height = at(tick, y, bottom, TOP)
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{height:.1f}" y2="{height:.1f}" stroke="#E4E4E4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{height + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in x:
        place = at(tick, x, LEFT, right)
        parts.append(f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{bottom}" stroke="#F0F0F0"/>')
        parts.append(f'<text x="{place:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>')
    heights = _spread([at(one.points[-1][1], y, bottom, TOP) for one in series])
    for number, (one, height) in enumerate(zip(series, heights, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        places = [(at(a, x, LEFT, right), at(b, y, bottom, TOP)) for a, b in one.points]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        dash = ' stroke-dasharray="6 4"' if one.dashed else ""
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>' for a, b in places if not one.dashed]
        parts.append(f'<text x="{right + 10}" y="{height + 4:.1f}" fill="{colour}">{escape(one.name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _spread(heights: list[float], least: float = 17.0) -> list[float]:
    """Move labels apart that would overlap.

    >>> _spread([50.0, 50.0, 10.0])
    [41.5, 58.5, 10.0]
    """
    placed = list(heights)
    order = sorted(range(len(heights)), key=lambda one: heights[one])
    for _ in range(100):
        for low, high in pairwise(order):
            missing = least - (placed[high] - placed[low])
            if missing > 1e-6:
                placed[low] -= missing / 2
                placed[high] += missing / 2
    return [round(one, 1) for one in placed]
