"""The pictures and the page of a fit and of an evaluation, as self-contained SVG and HTML. Pure: values in, text out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, TypeAlias

from training.measures import Task

Point: TypeAlias = tuple[float, float]

WIDTH, HEIGHT = 460, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 34, 46
TICKS = 5
SLACK = 1e-9  # of rounding, so that the ends of a round range get their ticks
INK, GRID, PALETTE = "#1f2933", "#e4e7eb", ("#0b6e99", "#d9480f", "#7048e8", "#2b8a3e")
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;color:#1f2933;max-width:1120px;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:right;padding:.35rem .5rem;border-bottom:1px solid #e4e7eb;font-variant-numeric:tabular-nums}"
    "th:first-child,td:first-child{text-align:left}.plots{display:flex;flex-wrap:wrap;gap:1rem}"
    "svg{max-width:100%;height:auto}p.note{color:#52606d;overflow-wrap:anywhere}td.bar{width:34%;min-width:140px}td.bar svg{display:block;width:100%}"
    ".wide{overflow-x:auto}td.word{white-space:nowrap}"
)


@dataclass(frozen=True)
class Line:
    """One named line of a plot."""

    name: str
    points: Sequence[Point]
    dashed: bool = False
    marked: bool = False


def plot(
    title: str,
    x_label: str,
    y_label: str,
    lines: Sequence[Line],
    span: tuple[Point, Point] | None = None,
    legend: Literal["top", "bottom"] = "bottom",
) -> str:
    """An SVG line plot; ``span`` is ((x low, x high), (y low, y high)), taken from the points where absent.

    ``legend`` names the right-hand corner that the lines leave free: below a diagonal, above a falling curve.
    """
    (x_low, x_high), (y_low, y_high) = span or _span(lines)
    frame_width, frame_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(point: Point) -> tuple[str, str]:
        x = LEFT + frame_width * (point[0] - x_low) / (x_high - x_low)
        y = TOP + frame_height * (1 - (point[1] - y_low) / (y_high - y_low))
        return f"{x:.1f}", f"{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" font-family="system-ui,sans-serif" font-size="11" fill="{INK}"><title>{escape(title)}</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-size="13" font-weight="600">{escape(title)}</text>',
    ]
    for value in ticks(y_low, y_high):
        _, y = place((x_low, value))
        parts += [
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="{GRID}"/>',
            f'<text x="{LEFT - 6}" y="{y}" text-anchor="end" dominant-baseline="middle">{value:.4g}</text>',
        ]
    for value in ticks(x_low, x_high):
        x, _ = place((value, y_low))
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:.4g}</text>')
    middle = TOP + frame_height / 2
    parts += [
        f'<text x="{LEFT + frame_width / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">{escape(y_label)}</text>',
    ]
    begin = TOP + 12 if legend == "top" else HEIGHT - BOTTOM - 15 * len(lines)
    for number, line in enumerate(lines):
        colour = PALETTE[number % len(PALETTE)]
        parts += _drawn(line, colour, begin + 15 * number, [place(point) for point in line.points])
    return "\n".join([*parts, "</svg>"])


def ticks(low: float, high: float) -> list[float]:
    """Round values within a range, at most one more than ``TICKS``."""
    rough = (high - low) / TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * (1 - SLACK))
    first, last = math.ceil(low / step - SLACK), math.floor(high / step + SLACK)
    return [place * step for place in range(first, last + 1)]


def _drawn(line: Line, colour: str, legend: int, places: Sequence[tuple[str, str]]) -> list[str]:
    path = " ".join(f"{x},{y}" for x, y in places)
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>']
    if line.marked:
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]
    right = WIDTH - RIGHT - 8
    parts.append(f'<text x="{right}" y="{legend}" text-anchor="end" fill="{colour}">{escape(line.name)}</text>')
    return parts


def _span(lines: Sequence[Line]) -> tuple[Point, Point]:
    """The range of all points, widened by a twentieth; of width one where all are equal."""
    found = []
    for axis in (0, 1):
        values = [point[axis] for line in lines for point in line.points] or [0.0]
        low, high = min(values), max(values)
        pad = (high - low) / 20 or 0.5
        found.append((low - pad, high + pad))
    return found[0], found[1]


def curve_svg(points: Sequence[tuple[int, float, float | None]], loss: str = "log loss") -> str:
    """The learning curve: (epoch, training loss, validation loss or None)."""
    lines = [Line("training", [(float(epoch), train) for epoch, train, _ in points], marked=True)]
    held = [(float(epoch), loss) for epoch, _, loss in points if loss is not None]
    if held:
        lines.append(Line("validation", held, marked=True))
    return plot("Learning curve", "epoch", loss, lines, legend="top")


def reliability_svg(bins: Mapping[str, Sequence[Point]], task: Task) -> str:
    """Mean answer against mean label per bin, for each named scorer."""
    values = [value for points in bins.values() for point in points for value in point]
    low, high = (0.0, max([0.1, *values])) if task == "classification" else (min(values), max(values))
    pad = (high - low) / 10 or 1.0
    low, high = (0.0, min(1.0, high + pad)) if task == "classification" else (low - pad, high + pad)
    lines = [Line(name, points, marked=True) for name, points in bins.items()]
    return plot(
        "Reliability (10 bins of equal size)",
        "mean answer",
        "share of positives" if task == "classification" else "mean label",
        [*lines, Line("perfect", [(low, low), (high, high)], dashed=True)],
        ((low, high), (low, high)),
    )


def roc_svg(curves: Mapping[str, Sequence[Point]]) -> str:
    """False against true positive rate for each named scorer."""
    lines = [Line(name, points) for name, points in curves.items()]
    chance = Line("chance", [(0.0, 0.0), (1.0, 1.0)], dashed=True)
    return plot("ROC", "false positive rate", "true positive rate", [*lines, chance], ((0.0, 1.0), (0.0, 1.0)))


def pr_svg(curves: Mapping[str, Sequence[Point]], share: float) -> str:
    """Recall against precision for each named scorer; ``share`` of positives is what chance reaches."""
    lines = [Line(name, points) for name, points in curves.items()]
    chance = Line("chance", [(0.0, share), (1.0, share)], dashed=True)
    span = ((0.0, 1.0), (0.0, 1.0))
    return plot("Precision and recall", "recall", "precision", [*lines, chance], span, legend="top")


def page(title: str, facts: str, sections: Mapping[str, str]) -> str:
    """A self-contained HTML page: a title, a line of facts and titled sections."""
    content = "".join(f"<h2>{escape(name)}</h2>{section}" for name, section in sections.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f'<p class="note">{escape(facts)}</p>{content}</body></html>'
    )
