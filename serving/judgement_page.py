"""The page of a judgement: verdict, figures, latency per second and scores against each other. Pure; one HTML file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from serving.gate import Load

WIDTH, HEIGHT, EDGE = 460, 220, 36
COLOURS = {"candidate": "#c2410c", "champion": "#1d4ed8"}
LOOPS = {"open": "#c2410c", "closed": "#15803d"}
STYLE = (
    "body{font:15px system-ui,sans-serif;max-width:980px;margin:2rem auto;padding:0 1rem;color:#111}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{border-bottom:1px solid #ddd;padding:.3rem .8rem;text-align:left}"
    "svg{background:#fafafa;border:1px solid #ddd;margin:.4rem}"
    ".pass{color:#15803d}.fail{color:#b91c1c}.inconclusive{color:#a16207}"
)


def page(
    title: str,
    status: str,
    reasons: Sequence[str],
    figures: Mapping[str, float | int | None],
    charts: Sequence[str],
) -> str:
    """The whole page; it loads nothing from elsewhere."""
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{_figure(value)}</td></tr>" for name, value in figures.items())
    said = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f'<h2 class="{escape(status)}">{escape(status)}</h2><ul>{said}</ul>'
        f"{''.join(charts)}<table><tr><th>figure</th><th>value</th></tr>{rows}</table></body></html>\n"
    )


def _figure(value: float | int | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def lines(title: str, unit: str, series: Mapping[str, Sequence[float]]) -> str:
    """A line chart, one line per version; x is the second of the judgement."""
    top = max((value for values in series.values() for value in values), default=0.0) or 1.0
    longest = max((len(values) for values in series.values()), default=0)
    drawn = []
    for name, values in series.items():
        places = (f"{_x(n, longest - 1):.1f},{_y(value, top):.1f}" for n, value in enumerate(values))
        drawn.append(
            f'<polyline fill="none" stroke="{COLOURS.get(name, "#444")}" stroke-width="1.5" points="{" ".join(places)}"/>'
        )
    return _frame(f"{title} ({unit})", f"{top:.3g}", f"{max(longest - 1, 0)} s", "".join(drawn) + _legend(series))


def scatter(title: str, pairs: Sequence[tuple[float, float]]) -> str:
    """Points in the unit square: (champion's or own score, candidate's served score)."""
    dots = "".join(
        f'<circle cx="{_x(x, 1):.1f}" cy="{_y(y, 1):.1f}" r="1.6" fill="{COLOURS["candidate"]}" fill-opacity=".35"/>'
        for x, y in pairs
    )
    diagonal = (
        f'<line x1="{_x(0, 1)}" y1="{_y(0, 1)}" x2="{_x(1, 1)}" y2="{_y(1, 1)}" stroke="#999" stroke-dasharray="4"/>'
    )
    return _frame(title, "1", "1", diagonal + dots)


def curve(load: Load) -> str:
    """p99 over throughput (on a logarithmic scale), one point per point of the load test; the dashed line is the promise."""
    points = [point for point in load.points if math.isfinite(point.p99_ms) and point.rows_per_second > 0]
    top = max([load.limit_ms, *(point.p99_ms for point in points)])
    right = max([10.0, *(point.rows_per_second for point in points)])
    left = min([right / 10, *(point.rows_per_second for point in points)])
    limit = _y(load.limit_ms, top)
    drawn = [
        f'<line x1="{EDGE}" y1="{limit:.1f}" x2="{WIDTH - EDGE}" y2="{limit:.1f}" stroke="#999" stroke-dasharray="4"/>'
    ]
    for loop, colour in LOOPS.items():
        kept = sorted((p.rows_per_second, p.p99_ms) for p in points if p.loop == loop)
        places = [(_x(math.log(rows / left), math.log(right / left)), _y(p99, top)) for rows, p99 in kept]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1" points="{line}"/>')
        drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    legend = "".join(
        f'<text x="{WIDTH - EDGE}" y="{EDGE + 14 * number}" text-anchor="end" font-size="12" fill="{colour}">{loop} loop</text>'
        for number, (loop, colour) in enumerate(LOOPS.items())
    )
    scale = f"{left:.0f} to {right:.0f} rows/s, logarithmic"
    return _frame("p99 (ms) over rows per second", f"{top:.3g}", scale, "".join(drawn) + legend)


def load_table(load: Load) -> str:
    """The points of the load test as a table."""
    head = "".join(
        f"<th>{name}</th>" for name in ("loop", "batch", "callers", "asked/s", "rows/s", "p50", "p95", "p99", "errors")
    )
    rows = "".join(
        f"<tr><td>{p.loop}</td><td>{p.batch}</td><td>{p.concurrency}</td><td>{'' if p.rate is None else f'{p.rate:g}'}</td>"
        f"<td>{p.rows_per_second:.0f}</td><td>{p.p50_ms:.2f}</td><td>{p.p95_ms:.2f}</td><td>{p.p99_ms:.2f}</td><td>{p.errors}</td></tr>"
        for p in load.points
    )
    words = f"promised: p99 {load.limit_ms:g} ms at {load.requests_per_second:g} requests a second; capacity {load.capacity:g}"
    return f"<h3>Load (ms)</h3><p>{words}</p><table><tr>{head}</tr>{rows}</table>"


def _x(value: float, longest: float) -> float:
    return EDGE + value / max(longest, 1) * (WIDTH - 2 * EDGE)


def _y(value: float, top: float) -> float:
    return HEIGHT - EDGE - value / top * (HEIGHT - 2 * EDGE)


def _legend(names: Mapping[str, object]) -> str:
    return "".join(
        f'<text x="{WIDTH - EDGE}" y="{EDGE + 14 * number}" text-anchor="end" font-size="12" '
        f'fill="{COLOURS.get(name, "#444")}">{escape(name)}</text>'
        for number, name in enumerate(names)
    )


def _frame(title: str, top: str, right: str, inside: str) -> str:
    bottom, left = HEIGHT - EDGE, EDGE
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'<text x="{left}" y="20" font-size="13">{escape(title)}</text>'
        f'<line x1="{left}" y1="{bottom}" x2="{WIDTH - EDGE}" y2="{bottom}" stroke="#666"/>'
        f'<line x1="{left}" y1="{EDGE}" x2="{left}" y2="{bottom}" stroke="#666"/>'
        f'<text x="{left - 4}" y="{EDGE + 4}" text-anchor="end" font-size="11">{escape(top)}</text>'
        f'<text x="{left - 4}" y="{bottom}" text-anchor="end" font-size="11">0</text>'
        f'<text x="{WIDTH - EDGE}" y="{bottom + 16}" text-anchor="end" font-size="11">{escape(right)}</text>'
        f"{inside}</svg>"
    )
