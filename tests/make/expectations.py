"""Builders of small raw days, training sets and view days in the lake's and the views' layouts, sound unless changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from artifacts.clock import Calendar
from artifacts.refs import Ref, Uri, join, sha256
from artifacts.store import publish
from feature_repo.catalogue import ENTITY_KEYS, FEATURES, VIEWS
from feature_repo.contract import Target, ValidateSpec
from feature_repo.expectations import training_set
from feature_repo.tables import RAW_SCHEMAS, VIEW_SCHEMAS

DAY = dt.date(2013, 1, 8)
DAY_START = dt.datetime(2013, 1, 8, 9, tzinfo=dt.UTC)  # 04:00 in New York
MINUTE = dt.timedelta(minutes=1)
HOUR = dt.timedelta(hours=1)

CALENDAR = Calendar(
    zone="America/New_York",
    close=dt.time(4),
    lateness=dt.timedelta(hours=6),
    first=dt.date(2013, 1, 1),
    last=dt.date(2013, 12, 31),
)


def raw_day(flights: int = 240) -> dict[str, pa.Table]:
    """One service day: every 20th flight cancelled, every 30th diverted, 24 hours of weather at three airports."""
    rows = [_flight(number) for number in range(flights)]
    departed = [row for row in rows if not row["cancelled"]]
    weather = [_weather(origin, hour) for origin in ("EWR", "JFK", "LGA") for hour in range(24)]
    facts = {
        "schedule": [row | _clocks(row["scheduled_departure"], -7 * 24 * HOUR) for row in rows],
        "departure": [row | _clocks(row["left"]) for row in rows],
        "arrival": [row | _clocks(row["arrived"]) for row in departed],
        "weather": weather,
    }
    return {
        name: pa.Table.from_pylist([{column: row[column] for column in schema.names} for row in facts[name]], schema)
        for name, schema in RAW_SCHEMAS.items()
    }


def earlier(tables: Mapping[str, pa.Table], by: dt.timedelta) -> dict[str, pa.Table]:
    """The same day, so much earlier, with flights of its own."""
    found = {}
    for name, table in tables.items():
        rows = [
            {
                column: value - by
                if isinstance(value, dt.datetime)
                else f"{value}-x"
                if column == "flight_id"
                else value
                for column, value in row.items()
            }
            for row in table.to_pylist()
        ]
        found[name] = pa.Table.from_pylist(rows, table.schema)
    return found


def _flight(number: int) -> dict[str, Any]:
    carrier, origin = ("UA", "AA", "B6")[number % 3], ("EWR", "JFK", "LGA")[number % 3]
    departure = DAY_START + number % 18 * HOUR + number % 60 * MINUTE
    arrival = departure + 3 * HOUR
    cancelled, diverted = number % 20 == 0, number % 30 == 1
    delay = float(number % 40 - 5)
    return {
        "flight_id": f"{DAY}-{carrier}{number}-{origin}-MIA-{departure:%H%M}",
        "carrier": carrier,
        "flight": number,
        "origin": origin,
        "dest": "MIA",
        "distance": 1000.0,
        "scheduled_departure": departure,
        "scheduled_arrival": arrival,
        "cancelled": cancelled,
        "departure_delay": None if cancelled else delay,
        "tailnum": None if cancelled else f"N{number:03d}",
        "left": departure if cancelled else departure + delay * MINUTE,
        "diverted": diverted,
        "arrival_delay": None if diverted else delay,
        "arrived": arrival + (6 * HOUR if diverted else delay * MINUTE),
    }


def _clocks(event: dt.datetime, delay: dt.timedelta = dt.timedelta(0)) -> dict[str, dt.datetime]:
    return {"event_time": event, "available_time": event + delay}


def _weather(origin: str, hour: int) -> dict[str, Any]:
    readings = {
        name: 5.0 + hour / 2
        for name in RAW_SCHEMAS["weather"].names
        if RAW_SCHEMAS["weather"].field(name).type == pa.float64()
    }
    readings |= {"pressure": 1000.0 if hour % 2 else None, "wind_gust": None}
    return {"origin": origin, **readings, **_clocks(DAY_START + hour * HOUR, 20 * MINUTE)}


def views(day: dt.date = DAY) -> dict[str, pa.Table]:
    """One sound day of every view: two entities, a row at the end of each of the day's hours."""
    begins = CALENDAR.starts(day)
    hours = int((CALENDAR.ends(day) - begins) / HOUR)
    found = {}
    for view, schema in VIEW_SCHEMAS.items():
        rows = []
        for entity in range(2):
            for hour in range(1, hours + 1):
                keys = {key: entity if kind == "int64" else f"{key}{entity}" for key, kind in VIEWS[view].keys.items()}
                known = 20 * MINUTE if view == "weather" else dt.timedelta(0)
                rows.append({**keys, **_clocks(begins + hour * HOUR, known), **dict.fromkeys(FEATURES[view], 1.0)})
        if view == "weather":
            rows = [row | {"pressure": 1000.0} for row in rows]
        if view == "congestion":
            rows = [row | {"scheduled_departures_last_3h": 5.0} for row in rows]
        found[view] = pa.Table.from_pylist(rows, schema)
    return found


def target(ref: Ref, day: dt.date = DAY, **history: tuple[int, ...]) -> Target:
    """What a validation checks, with the rows of past weekdays by table."""
    return Target(uri=ref.uri, digest=ref.digest, partition=day, history=history)


def spec_of_days(days: list[dt.date], **changes: Any) -> ValidateSpec:
    """A spec over some days whose artifacts nobody opens."""
    nowhere = [Target(uri="file:///nowhere", digest=sha256(str(day).encode()), partition=day) for day in days]
    fields = {"suite": "raw_day", "calendar": CALENDAR, "targets": tuple(nowhere), "output": "file:///nowhere"}
    return ValidateSpec(**fields | changes)


def publish_tables(uri: Uri, kind: str, tables: Mapping[str, pa.Table]) -> Ref:
    """Publishes the tables as ``<name>.parquet``."""
    with publish(uri, kind) as draft:
        for name, table in tables.items():
            pq.write_table(table, draft.path / f"{name}.parquet", coerce_timestamps="us", store_schema=False)
    assert draft.manifest is not None
    return Ref(uri=uri, digest=draft.manifest.digest)


def change(table: pa.Table, column: str, values: list[Any] | pa.Array, kind: pa.DataType | None = None) -> pa.Table:
    """The table with one column replaced."""
    place = table.schema.get_field_index(column)
    array = values if isinstance(values, pa.Array) else pa.array(values, kind or table.schema.field(column).type)
    return table.set_column(place, column, array)


def blank(table: pa.Table, column: str, share: float) -> pa.Table:
    """The table with the first ``share`` of a column's values made null."""
    kept = int(table.num_rows * share)
    return change(table, column, [None] * kept + table[column].to_pylist()[kept:])


def training_rows(rows: int = 4000, seed: int = 7) -> pa.Table:
    """A training set of DAY and the day before, in which every feature says a little about the label, and none says all."""
    rng = np.random.default_rng(seed)
    label = (rng.random(rows) < 0.25).astype(np.int8)
    before = np.arange(rows) < rows // 2
    departure = [
        DAY_START + int(at) * MINUTE - early * 24 * HOUR for at, early in zip(_minutes(rows), before, strict=True)
    ]
    columns: dict[str, Any] = {}
    for entry in training_set.SCHEMA:
        if entry.type == pa.float64():
            columns[entry.name] = np.clip(rng.random(rows) * 0.9 + 0.1 * label, 0, 1)
        elif entry.type == pa.string():
            columns[entry.name] = rng.choice(["0", "1", "2"], rows)
    columns["weather__pressure"] += 1000
    instants = {
        "scheduled_departure": departure,
        "scheduled_arrival": [moment + 3 * HOUR for moment in departure],
        "at": [moment - 2 * HOUR for moment in departure],
        "label_time": [moment + 4 * HOUR for moment in departure],
    }
    columns |= instants
    columns |= {"row_id": [f"row-{number:06d}" for number in range(rows)], "label": label}
    columns["day"] = [DAY - dt.timedelta(days=int(early)) for early in before]
    columns["flight"] = rng.integers(1, 999, rows)
    return pa.table({
        name: pa.array(columns[name], training_set.SCHEMA.field(name).type) for name in training_set.SCHEMA.names
    })


def _minutes(rows: int) -> np.ndarray:
    """Departures over 18 hours of each day."""
    return np.arange(rows) % (18 * 60)


def view_day(rows: Mapping[str, list[tuple[Any, dt.datetime, dt.timedelta, float | None]]]) -> dict[str, pa.Table]:
    """The tables of a view day. A row is (entity, event time, delay until known, value of every feature).

    An entity is the value of its key, or a tuple where the view has several keys.
    """
    return {
        view: pa.Table.from_pylist(
            [
                {
                    **dict(zip(ENTITY_KEYS[view], entity if isinstance(entity, tuple) else (entity,), strict=True)),
                    "event_time": event,
                    "available_time": event + delay,
                    **dict.fromkeys(FEATURES[view], value),
                }
                for entity, event, delay, value in rows.get(view, [])
            ],
            VIEW_SCHEMAS[view],
        )
        for view in FEATURES
    }


def folder_uri(path: Path, *parts: str) -> Uri:
    """The URI of something below a test's folder."""
    return join(path.absolute().as_uri(), *parts)
