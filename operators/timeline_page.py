"""The page of a model's timeline: score, thresholds, states, retrains, quality by day, with the reasons on hover. Pure.

One self-contained HTML file: no script, nothing loaded from elsewhere. Every dot has its words as an SVG title, and the
table below says the same for those who cannot hover.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from html import escape

from operators.timeline import Mark, Point, Timeline

LEFT, RIGHT, WIDE, LEAST_DAY, MOST_DAY = 64, 24, 1080, 7.0, 100.0
LANE, PANEL, GAP = 26, 150, 46
INK, SOFT, GRID = "#1f2933", "#52606d", "#e4e7eb"
STATES = {
    "STABLE": "#0b6e99",
    "WATCH": "#e8a317",
    "TRIGGERED": "#d9480f",
    "RETRAINING": "#7048e8",
    "COOLDOWN": "#66a80f",
    "OPEN": "#c2255c",
    "DATA_INCIDENT": "#862e9c",
    "INSUFFICIENT_DATA": "#9aa5b1",
    "CHECK_FAILED": "#343a40",
}
MARKS = {"retrain": ("#7048e8", "R"), "release": ("#0b6e99", "V"), "alert": ("#d9480f", "!"), "audit": ("#66a80f", "A")}
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;color:#1f2933;max-width:1120px;margin:1.5rem auto;padding:0 1rem}"
    "h1{font-size:1.5rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin-top:2rem}p.note{color:#52606d;margin:.2rem 0}"
    ".chart{overflow-x:auto;border:1px solid #e4e7eb;border-radius:6px;margin-top:1rem}"
    "svg{display:block}"
    ".now{padding:.6rem 1rem;border-left:5px solid;background:#f5f7fa;margin:1rem 0}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;border-bottom:1px solid #e4e7eb;"
    "text-align:left;vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".one{white-space:nowrap}.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .3em 0 .9em;vertical-align:-1px}"
    "circle:hover,rect.hit:hover{stroke:#1f2933;stroke-width:2}a{color:#0b6e99}"
)


def page(found: Timeline) -> str:
    """The whole page."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(found.model)}: drift over time</title><style>{STYLE}</style>",
        f"<h1>{escape(found.model)}: drift over time</h1>",
        f"<p class=note>{_span(found)}</p>",
    ]
    if found.points:
        parts += [_now(found), f"<div class=chart>{chart(found)}</div>", _key(found), _table(found)]
    return "\n".join(parts) + "\n"


def _span(found: Timeline) -> str:
    if not found.points:
        return "No closed day has been checked yet; the page fills as the DAG watch runs."
    share = "" if found.trigger_share is None else f" Trigger share {found.trigger_share:.2f}."
    audited = f" {escape(found.precision)}." if found.precision else " No drift retrain has been audited yet."
    days = f"{len(found.points)} checked days, {found.points[0].day} to {found.points[-1].day}."
    return f"{days}{share}{audited} Hover a mark for its reasons; click a dot for its report."


def _now(found: Timeline) -> str:
    last = found.points[-1]
    colour = STATES.get(last.state, INK)
    reasons = "".join(f"<br>{escape(reason)}" for reason in last.reasons)
    return f'<p class=now style="border-color:{colour}"><b>{escape(last.state)}</b> after {last.day}{reasons}</p>'


class Axis:
    """Where a day lies from left to right; days on which nothing happened keep their place."""

    def __init__(self, days: Sequence[dt.date]) -> None:
        self.first, self.last = min(days), max(days)
        self.count = (self.last - self.first).days + 1
        self.step = min(max((WIDE - LEFT - RIGHT) / self.count, LEAST_DAY), MOST_DAY)

    @property
    def width(self) -> float:
        """Of the whole drawing."""
        return LEFT + RIGHT + self.step * self.count

    def at(self, day: dt.date) -> float:
        """The middle of a day."""
        return LEFT + self.step * ((day - self.first).days + 0.5)


def chart(found: Timeline) -> str:
    """States and marks on top, then score, prediction PSI by its threshold, and skill, one below the other."""
    axis, points = Axis([*(each.day for each in found.points), *(each.day for each in found.marks)]), found.points
    kinds = [kind for kind in MARKS if any(mark.kind == kind for mark in found.marks)]
    tops = [(1 + len(kinds)) * LANE + 66 + place * (PANEL + GAP) for place in range(3)]
    height = tops[-1] + PANEL + 46
    ratios = [None if p.psi is None or not p.psi_threshold else p.psi / p.psi_threshold for p in points]
    skills = [p.skill for p in points]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {axis.width:.0f} {height}" width="{axis.width:.0f}" '
        f'height="{height}" role="img" font-family="system-ui,sans-serif" font-size="12" fill="{INK}">'
        f"<title>{escape(found.model)}: drift over time</title>",
        *_states(axis, points, 20),
        *_events(axis, found.marks, kinds, 20 + LANE + 4),
        *_panel(axis, tops[0], "share of the importance that has drifted", (0.0, 1.0)),
        *_steps(axis, points, _scale(tops[0], 0.0, 1.0), lambda point: point.share),
        *_series(axis, points, [p.score for p in points], _scale(tops[0], 0.0, 1.0)),
        *_panel(axis, tops[1], "prediction PSI / its threshold", (0.0, 2.0)),
        *_steps(axis, points, _scale(tops[1], 0.0, 2.0), lambda _: 1.0),
        *_series(axis, points, ratios, _scale(tops[1], 0.0, 2.0)),
        *_quality(axis, points, skills, tops[2]),
        *_days(axis, height - 22),
        "</svg>",
    ]
    return "".join(parts)


def _scale(top: float, low: float, high: float) -> Callable[[float], float]:
    def place(value: float) -> float:
        return top + PANEL * (1 - (min(max(value, low), high) - low) / (high - low))

    return place


def _states(axis: Axis, points: Sequence[Point], top: float) -> Iterable[str]:
    yield f'<text x="{LEFT - 8}" y="{top + 17}" text-anchor="end">state</text>'
    for point in points:
        yield (
            f'<rect class=hit x="{axis.at(point.day) - axis.step / 2 + 0.5:.1f}" y="{top}" width="{axis.step - 1:.1f}" '
            f'height="{LANE}" rx="2" fill="{STATES.get(point.state, INK)}">{_title(point)}</rect>'
        )


def _events(axis: Axis, marks: Sequence[Mark], kinds: Sequence[str], top: float) -> Iterable[str]:
    """A lane per kind, and one letter for all of a kind and day."""
    for place, kind in enumerate(kinds):
        y = top + place * LANE
        yield f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{kind}</text>'
        days: dict[dt.date, list[Mark]] = {}
        for mark in marks:
            if mark.kind == kind:
                days.setdefault(mark.day, []).append(mark)
        yield from (_event(same, axis.at(day), y + LANE / 2) for day, same in days.items())


def _event(same: Sequence[Mark], x: float, y: float) -> str:
    """Hollow when none of them came off."""
    colour, letter = MARKS[same[0].kind]
    fill, ink = (colour, "#fff") if any(mark.came_off for mark in same) else ("#fff", colour)
    words = "\n".join(f"{mark.day} {'; '.join(mark.words)}" for mark in same)
    return (
        f'<g><circle cx="{x:.1f}" cy="{y}" r="8" fill="{fill}" stroke="{colour}" stroke-width="1.5">'
        f"<title>{escape(words)}</title></circle>"
        f'<text x="{x:.1f}" y="{y + 4}" text-anchor="middle" font-size="10" fill="{ink}" pointer-events="none">'
        f"{letter}</text></g>"
    )


def _panel(axis: Axis, top: float, title: str, ends: tuple[float, float]) -> Iterable[str]:
    low, high = ends
    place = _scale(top, low, high)
    yield f'<text x="{LEFT}" y="{top - 10}" fill="{SOFT}">{escape(title)}</text>'
    for value in (low, (low + high) / 2, high):
        y = place(value)
        yield f'<line x1="{LEFT}" x2="{axis.width - RIGHT:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{SOFT}">{value:.2f}</text>'


def _steps(
    axis: Axis, points: Sequence[Point], place: Callable[[float], float], value: Callable[[Point], float]
) -> Iterable[str]:
    """A threshold that may change from day to day."""
    for point in points:
        x, y = axis.at(point.day), place(value(point))
        yield (
            f'<line x1="{x - axis.step / 2:.1f}" x2="{x + axis.step / 2:.1f}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="{INK}" stroke-dasharray="4 3"/>'
        )


def _series(
    axis: Axis, points: Sequence[Point], values: Sequence[float | None], place: Callable[[float], float]
) -> Iterable[str]:
    """A line that breaks where there is no figure, and a dot per check in the colour of its state."""
    run: list[str] = []
    before: dt.date | None = None
    for point, value in zip(points, values, strict=True):
        if value is None or (before is not None and (point.day - before).days > 1):
            yield from _line(run)
            run = []
        if value is not None:
            run.append(f"{axis.at(point.day):.1f},{place(value):.1f}")
        before = point.day
    yield from _line(run)
    for point, value in zip(points, values, strict=True):
        if value is not None:
            size = min(6 if point.retrain else 4.5, axis.step * 0.45)
            dot = (
                f'<circle cx="{axis.at(point.day):.1f}" cy="{place(value):.1f}" r="{size:.1f}" '
                f'fill="{STATES.get(point.state, INK)}">{_title(point)}</circle>'
            )
            yield f'<a href="{escape(point.page)}">{dot}</a>' if point.page else dot


def _line(run: Sequence[str]) -> Iterable[str]:
    if len(run) > 1:
        yield f'<polyline points="{" ".join(run)}" fill="none" stroke="{SOFT}"/>'


def _quality(axis: Axis, points: Sequence[Point], skills: Sequence[float | None], top: float) -> Iterable[str]:
    known = [value for value in (*skills, *(p.promised for p in points)) if value is not None]
    low, high = min([0.0, *known]) - 0.05, max([0.2, *known]) + 0.05
    place = _scale(top, low, high)
    title = "skill on labels (1 - log loss / that of the base rate), up to a week of them; dashed: at promotion"
    yield from _panel(axis, top, title, (low, high))
    for point in points:
        if point.bounds:
            x = axis.at(point.day)
            yield (
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{place(point.bounds[0]):.1f}" y2="{place(point.bounds[1]):.1f}" '
                f'stroke="{SOFT}" stroke-width="3" stroke-opacity="0.25"/>'
            )
    promised = [point for point in points if point.promised is not None]
    yield from _steps(axis, promised, place, lambda point: point.promised or 0.0)
    yield from _series(axis, points, skills, place)
    if not [skill for skill in skills if skill is not None]:
        yield f'<text x="{LEFT + 8}" y="{top + PANEL / 2}" fill="{SOFT}">no labels yet</text>'


def _days(axis: Axis, y: float) -> Iterable[str]:
    every = max(round(64 / axis.step), 1)
    for number in range(0, axis.count, every):
        day = axis.first + dt.timedelta(days=number)
        yield f'<text x="{axis.at(day):.1f}" y="{y}" text-anchor="middle" fill="{SOFT}">{day:%m-%d}</text>'


def _title(point: Point) -> str:
    version = "" if point.version is None else f", version {point.version}"
    score = "" if point.score is None else f", score {point.score:.2f} of {point.share:.2f}"
    return f"<title>{escape(chr(10).join((f'{point.day}: {point.state}{version}{score}', *point.reasons)))}</title>"


def _key(found: Timeline) -> str:
    used = {point.state for point in found.points}
    states = "".join(
        f'<span class=key style="background:{colour}"></span>{state}'
        for state, colour in STATES.items()
        if state in used
    )
    happened = {mark.kind for mark in found.marks}
    kinds = "".join(
        f'<span class=one><span class=key style="background:{colour}"></span>{letter} {kind}</span> '
        for kind, (colour, letter) in MARKS.items()
        if kind in happened
    )
    hollow = "(hollow: came to nothing)" if not all(mark.came_off for mark in found.marks) else ""
    return f"<p class=note>{states}{kinds}{hollow}</p>"


def _table(found: Timeline) -> str:
    rows = "".join(
        f"<tr><td>{_day(point)}<td>{escape(point.state)}<td class=n>{_figure(point.score)}<td class=n>{_figure(point.psi)}"
        f"<td class=n>{_figure(point.skill)}<td class=n>{point.labelled or '-'}"
        f"<td>{'<br>'.join(map(escape, point.reasons))}"
        for point in reversed(found.points)
    )
    head = "<tr><th>Day<th>State<th class=n>Score<th class=n>PSI<th class=n>Skill<th class=n>Labels<th>Reasons"
    marks = "".join(
        f"<tr><td>{mark.day}<td>{mark.kind}<td>{'<br>'.join(map(escape, mark.words))}" for mark in reversed(found.marks)
    )
    events = f"<h2>What happened</h2><table><tr><th>Day<th>What<th>Words{marks}</table>" if marks else ""
    return f"<h2>Every check</h2><table>{head}{rows}</table>{events}"


def _day(point: Point) -> str:
    return f'<a href="{escape(point.page)}">{point.day}</a>' if point.page else str(point.day)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
