"""The page of a judgement: verdict, figures, latency per second and scores against each other. Pure; one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, EDGE = 460, 220, 36
COLOURS = {"candidate": "#c2410c", "champion": "#1d4ed8"}
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
