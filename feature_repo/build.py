"""The step that builds the views of closed hours: one Spark session, one artifact per service day.

A row for hour h uses only what was known by h's end, whatever the time of the build; building hour by hour gives the same
bytes as building everything at once.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from artifacts import store
from artifacts.refs import join
from artifacts.step import DataFault, progress, step
from feature_repo import spark, tables
from feature_repo.catalogue import ENTITY_KEYS, VIEWS
from feature_repo.contract import BuildSpec, ViewsRef
from feature_repo.snapshot import DAY, HOUR, build_days, build_snapshot, views_snapshot
from feature_repo.views import punctuality, rolling
from feature_repo.views.congestion import congestion
from feature_repo.views.rolling import Hours
from feature_repo.views.weather import weather

PUNCTUAL = ("carrier", "origin", "destination", "route", "flight_number")
WRITERS = 4  # a publication waits for the disk several times, so a few at once
READ = {
    "schedule": ["flight_id", "origin", "scheduled_departure", "available_time"],
    "departure": [
        "flight_id", "carrier", "flight", "origin", "dest", "scheduled_departure", "cancelled", "departure_delay", "available_time"
    ],
    "arrival": [
        "flight_id", "carrier", "flight", "origin", "dest",
        "scheduled_departure", "diverted", "arrival_delay", "available_time",
    ],
    "weather": list(tables.VIEW_SCHEMAS["weather"].names),
}  # fmt: skip


def build(spec: BuildSpec) -> ViewsRef:
    """Builds the rows of the hours in (start, end] and merges them into the days that those hours belong to."""
    progress(0.01, "checking the lake")
    lake = read_lake(spec)
    with spark.session("perennial-build") as session:
        progress(0.2, "building the views")
        rows = compute(session, spec, lake)
    days = _days_to_write(spec)
    counts = dict.fromkeys(VIEWS, 0)
    with ThreadPoolExecutor(WRITERS) as pool:
        for done, written in enumerate(pool.map(lambda day: _publish(spec, day, rows), days), start=1):
            counts = {view: counts[view] + written[view] for view in VIEWS}
            progress(0.75 + 0.25 * done / len(days), f"views: {done} of {len(days)} days")
    return ViewsRef(
        views=spec.views,
        start=spec.start,
        end=spec.end,
        days=len(days),
        rows=counts,
        digest=views_snapshot(spec.views, days[0], days[-1]),
    )


def read_lake(spec: BuildSpec) -> dict[str, pa.Table]:
    """The verified raw tables of the days that the build needs; raises DataFault with every problem of every day."""
    first, last = build_days(spec.calendar, spec.start, spec.end, spec.late_days)
    found = tables.read_days(spec.lake, tables.day_range(first, last), "feature_repo.ingest")
    # a day that is still running may have no departures yet; a day that is over must be whole
    over = {day for day in found if spec.calendar.ends(day) <= spec.end}
    loaded = tables.load_raw(found, over)
    snapshot = build_snapshot(spec.calendar, spec.lake, spec.start, spec.end, spec.late_days)
    if snapshot != spec.snapshot:
        raise DataFault([
            f"{spec.lake}: snapshot of {first} to {last} is {snapshot}, the spec is for {spec.snapshot}; the lake has changed, "
            "ask for a new build"
        ])
    return loaded


def compute(session: SparkSession, spec: BuildSpec, lake: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The rows of each view for the hours in (start, end]; of the weather also those of the days before."""
    hours = Hours.of(spec)
    frames = {name: spark.frame(session, lake[name].select(columns)) for name, columns in READ.items()}
    known = {
        name: rolling.versions(frames[name], hours.late_days).cache() for name in ("schedule", "departure", "arrival")
    }
    facts = punctuality.facts(known["departure"], known["arrival"], hours).cache()
    views = {
        **{view: punctuality.punctuality(ENTITY_KEYS[view], facts, hours) for view in PUNCTUAL},
        "weather": weather(frames["weather"], spec.start - spec.late_days * DAY, spec.end),
        "congestion": congestion(known["schedule"], known["departure"], hours),
    }
    rows = {}
    for done, (view, content) in enumerate(views.items(), start=1):
        rows[view] = content.toArrow().cast(tables.VIEW_SCHEMAS[view]).sort_by("event_time")
        progress(0.2 + 0.55 * done / len(views), f"built the view {view}")
    return rows


def _days_to_write(spec: BuildSpec) -> tuple[dt.date, ...]:
    """The days of the hours, and before them those days that are there and may still get a late observation."""
    calendar = spec.calendar
    first, last = max(calendar.first, calendar.of(spec.start)), calendar.of(spec.end - HOUR)
    earlier = tables.day_range(max(calendar.first, first - spec.late_days * DAY), first - DAY)
    return (*(day for day in earlier if _published(spec, day)), *tables.day_range(first, last))


def _published(spec: BuildSpec, day: dt.date) -> bool:
    return store.manifest(join(spec.views, day.isoformat())) is not None


def _publish(spec: BuildSpec, day: dt.date, rows: Mapping[str, pa.Table]) -> dict[str, int]:
    """Merges the built rows into one day; the rows of its other hours stay as they are."""
    uri = join(spec.views, day.isoformat())
    there = store.read(uri) if _published(spec, day) else None
    begins, ends = spec.calendar.starts(day), spec.calendar.ends(day)
    merged = {}
    for view, schema in tables.VIEW_SCHEMAS.items():
        # an observation is out a little after its hour, so those of the last days are looked for again
        late = spec.late_days * DAY if view == "weather" and there else dt.timedelta(0)
        fresh = between(rows[view], max(begins, spec.start - late), min(ends, spec.end))
        kept = outside(tables.read_table(there, view, schema), spec.start - late, spec.end) if there else None
        merged[view] = pa.concat_tables([kept, fresh]) if kept else fresh
    files = {f"{view}.parquet": tables.view_bytes(view, table) for view, table in merged.items()}
    counts = {view: table.num_rows for view, table in merged.items()}
    tables.publish_day(uri, "view-day", files, {"day": day.isoformat(), "rows": counts})
    return counts


def between(table: pa.Table, after: dt.datetime, until: dt.datetime) -> pa.Table:
    """The rows with after < event_time <= until."""
    return table.filter(_inside(table, after, until))


def outside(table: pa.Table, after: dt.datetime, until: dt.datetime) -> pa.Table:
    """The rows that ``between`` leaves out."""
    return table.filter(pc.invert(_inside(table, after, until)))


def _inside(table: pa.Table, after: dt.datetime, until: dt.datetime) -> pa.ChunkedArray:
    when = table["event_time"]
    return pc.and_(
        pc.greater(when, pa.scalar(after, tables.INSTANT)), pc.less_equal(when, pa.scalar(until, tables.INSTANT))
    )


if __name__ == "__main__":
    sys.exit(step(build, BuildSpec))
