"""The views straight from their definition, hour by hour and fact by fact: slow, plain Python, nothing shared with Spark."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from artifacts.clock import Calendar
from feature_repo.catalogue import ENTITY_KEYS, FEATURES, WINDOW_HOURS
from feature_repo.contract import BuildSpec
from tests.make import feature_repo as make

HOUR = dt.timedelta(hours=1)
DAY = dt.timedelta(days=1)
PUNCTUAL = ("carrier", "origin", "destination", "route", "flight_number")
Row = dict[str, Any]
TIMELY = (dt.timedelta(seconds=1), 5 * HOUR, 55 * HOUR)
BEYOND = 5 * DAY


def some_flights(
    seed: int, first: dt.datetime, days: int, flights: int, restated: tuple[dt.timedelta, ...] = (*TIMELY, BEYOND)
) -> dict[str, pa.Table]:
    """A small lake in memory: few keys, so that windows overlap; delayed, cancelled, diverted and restated records.

    ``restated``: how long after a fact its other version may become known; within the hour, in the bound, or beyond it.
    """
    dice = random.Random(seed)  # noqa: S311  a dice
    facts: dict[str, list[Row]] = {"schedule": [], "departure": [], "arrival": [], "weather": []}
    for n in range(flights):
        due = first + dt.timedelta(minutes=dice.choice([0, 1, 30, 59]), hours=dice.randrange(days * 24))
        flight = {
            "flight_id": f"f{n}", "carrier": dice.choice(["AA", "UA"]), "flight": dice.randrange(1, 4),
            "origin": dice.choice(["EWR", "JFK"]), "dest": dice.choice(["SFO", "BOS"]), "scheduled_departure": due,
        }  # fmt: skip
        facts["schedule"].append(make.raw_row("schedule", **flight, available_time=due - 7 * DAY))
        delay = dice.choice([None, -4.0, 0.0, 0.5, 14.0, 15.0, 200.0])
        left = due + dt.timedelta(minutes=delay or 0)
        cancelled = dice.random() < 0.1
        facts["departure"] += versions(
            dice, restated, "departure", left, {**flight, "cancelled": cancelled, "departure_delay": delay}
        )
        if not cancelled:
            diverted = dice.random() < 0.1
            late = None if diverted else dice.choice([None, -20.0, 14.0, 15.0, 90.5])
            came = left + dt.timedelta(minutes=dice.choice([60, 91, 720]))
            facts["arrival"] += versions(
                dice, restated, "arrival", came, {**flight, "diverted": diverted, "arrival_delay": late}
            )
    for n in range(0, days * 24, 5):
        at = first + n * HOUR
        clocks = {"event_time": at, "available_time": at + dt.timedelta(minutes=20)}
        facts["weather"].append({"origin": "JFK", "temp": float(n), **clocks})
    return {name: make.raw_table(name, *rows) for name, rows in facts.items()}


def versions(
    dice: random.Random, restated: tuple[dt.timedelta, ...], name: str, known: dt.datetime, values: Row
) -> list[Row]:
    """A fact, and in some cases a restatement."""
    found = [make.raw_row(name, **values, event_time=known, available_time=known)]
    if dice.random() < 0.3:
        again = known + dice.choice(restated)
        changed = {name: 33.0 for name in ("departure_delay", "arrival_delay") if name in values}
        found.append(make.raw_row(name, **values | changed, event_time=known, available_time=again))
    return found


def views(
    spec: BuildSpec, lake: Mapping[str, pa.Table], after: dt.datetime, until: dt.datetime
) -> dict[str, list[Row]]:
    """The rows of every view for the hours in (after, until], each view sorted by keys and event time."""
    facts = {name: table.to_pylist() for name, table in lake.items()}
    found: dict[str, list[Row]] = {view: [] for view in FEATURES}
    found["weather"] = [row for row in facts["weather"] if after < row["event_time"] <= until]
    states = {view: {} for view in (*PUNCTUAL, "congestion")}
    opening = spec.calendar.starts(spec.calendar.first) + HOUR
    at = after
    while at <= until:
        known = {name: as_known(facts[name], at, spec.late_days) for name in ("schedule", "departure", "arrival")}
        for view, before in states.items():
            now = congestion(spec, known, at) if view == "congestion" else punctual(spec, view, known, at)
            if at > after:
                found[view] += written(view, before, now, at, repeat=at.hour == 9 or at == opening)
            states[view] = now
        at += HOUR
    return {
        view: sorted(
            (
                {name: row[name] for name in (*ENTITY_KEYS[view], "event_time", "available_time", *FEATURES[view])}
                for row in rows
            ),
            key=lambda row, view=view: (*(row[key] for key in ENTITY_KEYS[view]), row["event_time"]),
        )
        for view, rows in found.items()
    }


def as_known(facts: list[Row], at: dt.datetime, late_days: int) -> list[Row]:
    """The version of each fact that was known last at an instant."""
    newest: dict[str, Row] = {}
    for row in sorted(facts, key=lambda row: row["available_time"]):
        timely = row["available_time"] < row["scheduled_departure"] + (late_days + 1) * DAY
        if timely and row["available_time"] <= at:
            newest[row["flight_id"]] = row
    return list(newest.values())


def written(
    view: str, before: Mapping[Any, Row], now: Mapping[Any, Row], at: dt.datetime, *, repeat: bool
) -> Iterator[Row]:
    """An entity's row: when it appears, changes or ends, and at the daily repeat while it lives."""
    for entity in {*before, *now}:
        lived, lives = entity in before, entity in now
        values = now.get(entity) or ended(view)
        if (lives and (repeat or not lived or values != before[entity])) or (lived and not lives):
            keys = dict(zip(ENTITY_KEYS[view], entity, strict=True))
            yield {**keys, "event_time": at, "available_time": at, **values}


def ended(view: str) -> Row:
    """The values of an entity with nothing left to count."""
    counts = ("departures_", "scheduled_", "known_")
    return {name: 0.0 if name.startswith(counts) else None for name in FEATURES[view]}


def punctual(spec: BuildSpec, view: str, known: Mapping[str, list[Row]], at: dt.datetime) -> dict[Any, Row]:
    """Entity -> features, of the entities with anything in the longest window."""
    parts: dict[Any, dict[str, list[Row]]] = {}
    for name in ("departure", "arrival"):
        for row in known[name]:
            if row["available_time"] > at - max(WINDOW_HOURS.values()) * HOUR:
                entity = tuple(row[key] for key in ENTITY_KEYS[view])
                parts.setdefault(entity, {"departure": [], "arrival": []})[name].append(row)
    return {
        entity: {
            name: value
            for window, hours in WINDOW_HOURS.items()
            for name, value in statistics(spec, window, *(recent(part, at - hours * HOUR) for part in both.values()))
        }
        for entity, both in parts.items()
    }


def recent(rows: list[Row], since: dt.datetime) -> list[Row]:
    return [row for row in rows if row["available_time"] > since]


def statistics(spec: BuildSpec, window: str, left: list[Row], came: list[Row]) -> Iterator[tuple[str, float | None]]:
    cancelled = sum(row["cancelled"] for row in left)
    late = sum(row["diverted"] or (row["arrival_delay"] or 0) >= spec.late_minutes for row in came)
    yield f"departures_{window}", float(len(left) - cancelled)
    yield f"departure_delay_mean_{window}", mean([row["departure_delay"] for row in left])
    yield f"arrival_delay_mean_{window}", mean([row["arrival_delay"] for row in came])
    yield f"late_share_{window}", share(late + cancelled, len(came) + cancelled)
    yield f"cancelled_share_{window}", share(cancelled, len(left))


def share(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def mean(delays: list[float | None]) -> float | None:
    """Of whole minutes, halves away from zero."""
    minutes = [int(abs(delay) + 0.5) * (1 if delay > 0 else -1) for delay in delays if delay is not None]
    return share(sum(minutes), len(minutes))


def congestion(spec: BuildSpec, known: Mapping[str, list[Row]], at: dt.datetime) -> dict[Any, Row]:
    """Origin -> features, of the origins with a flight of their schedule in the last week or the next three hours."""
    found = {}
    for origin in {row["origin"] for row in known["schedule"]}:
        due = [row["scheduled_departure"] for row in known["schedule"] if row["origin"] == origin]
        went = [
            row for row in known["departure"] if row["origin"] == origin and just_due(row["scheduled_departure"], at)
        ]
        if any(at - 168 * HOUR < when <= at + 3 * HOUR for when in due):
            found[origin,] = {
                "scheduled_departures_next": float(sum(at + HOUR < when <= at + 3 * HOUR for when in due)),
                "scheduled_departures_last_3h": float(sum(just_due(when, at) for when in due)),
                "known_cancelled_last_3h": float(sum(row["cancelled"] for row in went)),
                "known_late_last_3h": float(sum(was_late(spec, row) for row in went)),
            }
    return found


def just_due(when: dt.datetime, at: dt.datetime) -> bool:
    return at - 3 * HOUR < when <= at


def was_late(spec: BuildSpec, row: Row) -> bool:
    return not row["cancelled"] and (row["departure_delay"] or 0) >= spec.late_minutes


def by_day(calendar: Calendar, lake: Mapping[str, pa.Table]) -> dict[dt.date, dict[str, pa.Table]]:
    """A lake in memory by service day; an observation belongs to the day of the hour before it."""
    parts: dict[dt.date, dict[str, list[Row]]] = {}
    for name, table in lake.items():
        for row in table.to_pylist():
            when = row["event_time"] - HOUR if name == "weather" else row["scheduled_departure"]
            parts.setdefault(calendar.of(when), {}).setdefault(name, []).append(row)
    return {
        day: {name: make.raw_table(name, *tables.get(name, [])) for name in lake}
        for day, tables in sorted(parts.items())
    }
