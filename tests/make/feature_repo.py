"""Builders of calendars, small lakes and specs for tests of the feature side."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from artifacts import store
from artifacts.clock import Calendar
from artifacts.refs import Uri, file_uri, join
from feature_repo import snapshot, tables
from feature_repo.contract import BuildSpec, TrainingSetSpec

HORIZON = dt.timedelta(days=1)


def calendar(first: str = "2013-11-01", last: str = "2013-11-04", **changes: Any) -> Calendar:
    values = {"zone": "America/New_York", "close": "04:00", "lateness": "PT6H", "first": first, "last": last}
    return Calendar.model_validate(values | changes)


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def raw_row(name: str, **values: Any) -> dict[str, Any]:
    """One row of a raw table: a flight at 15:00 UTC on 2013-11-01 on time, unless told otherwise."""
    departure = values.pop("scheduled_departure", utc("2013-11-01T15:00:00"))
    row = {
        "flight_id": "2013-11-01-UA1-JFK-SFO-1100", "carrier": "UA", "flight": 1, "origin": "JFK", "dest": "SFO",
        "distance": 2586.0, "scheduled_departure": departure, "scheduled_arrival": departure + dt.timedelta(hours=6),
        "cancelled": False, "departure_delay": 0.0, "tailnum": "N1", "arrival_delay": 0.0, "diverted": False,
        "event_time": departure, "available_time": departure,
    }  # fmt: skip
    return {field.name: (row | values).get(field.name) for field in tables.RAW_SCHEMAS[name]}


def raw_table(name: str, *rows: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=tables.RAW_SCHEMAS[name])


def raw_day(**changes: pa.Table) -> dict[str, pa.Table]:
    """One flight that left and arrived, and one observation."""
    day = {name: raw_table(name, raw_row(name)) for name in ("schedule", "departure", "arrival")}
    return day | {"weather": raw_table("weather", {"origin": "JFK", "temp": 50.0, **_clocks()})} | changes


def _clocks() -> dict[str, dt.datetime]:
    hour = utc("2013-11-01T15:00:00")
    return {"event_time": hour, "available_time": hour + dt.timedelta(minutes=20)}


def publish_raw(lake: Uri, day: str, content: Mapping[str, pa.Table]) -> None:
    files = {f"{name}.parquet": tables.raw_bytes(name, table) for name, table in content.items()}
    tables.publish_day(join(lake, day), "raw-day", files, {"day": day})


def copy_lake(source: Uri, target: Path, change: Callable[[str, str, pa.Table], pa.Table]) -> Uri:
    """A lake or views copied with ``change(day, table name, rows)`` applied to each table."""
    uri = file_uri(target)
    for day in store.children(source):
        artifact = store.read(join(source, day))
        files = {}
        for name in (entry.path.removesuffix(".parquet") for entry in artifact.manifest.files):
            schema = (tables.RAW_SCHEMAS if artifact.manifest.kind == "raw-day" else tables.VIEW_SCHEMAS)[name]
            encode = tables.raw_bytes if artifact.manifest.kind == "raw-day" else tables.view_bytes
            files[f"{name}.parquet"] = encode(name, change(day, name, tables.read_table(artifact, name, schema)))
        tables.publish_day(join(uri, day), artifact.manifest.kind, files, {"day": day})
    return uri


def build_spec(lake: Uri, views: Uri, start: dt.datetime, end: dt.datetime, **changes: Any) -> BuildSpec:
    days = changes.pop("calendar", calendar())
    found = snapshot.build_snapshot(days, lake, start, end)
    return BuildSpec(calendar=days, lake=lake, views=views, start=start, end=end, **{"snapshot": found} | changes)


def training_set_spec(
    lake: Uri, views: Uri, output: Uri, partition: str, first: str, **changes: Any
) -> TrainingSetSpec:
    days = changes.pop("calendar", calendar())
    lower, upper = dt.date.fromisoformat(first), dt.date.fromisoformat(partition)
    raw, built = snapshot.training_snapshots(
        days, lake=lake, views=views, first=lower, partition=upper, label_horizon=HORIZON,
    )  # fmt: skip
    values = {
        "model": "flight_delay", "calendar": days, "lake": lake, "lake_snapshot": raw, "views": views,
        "views_snapshot": built, "partition": upper, "as_of": days.as_of(upper), "first": lower,
        "label_horizon": HORIZON, "output": output,
    }  # fmt: skip
    return TrainingSetSpec(**values | changes)
