"""The step that builds the views of closed hours: one Spark session, one artifact per service day.

A row for hour h uses only what was known by h's end, whatever the time of the build; building hour by hour gives the same
bytes as building everything at once. Late records: a record may reach the lake after hours that it counts in were built,
so the hours of the last ``late_days`` are computed again each time, and a day is published again when its bytes changed.
Its manifest and the result say how many rows late records changed; any other day is left as it is, byte for byte.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from artifacts import store
from artifacts.refs import join
from artifacts.step import DataFault, progress, step
from feature_repo import spark, tables
from feature_repo.catalogue import ENTITY_KEYS, VIEWS
from feature_repo.contract import BuildSpec, ViewsRef
from feature_repo.snapshot import DAY, HOUR, build_days, build_from, build_snapshot, fact_days, views_snapshot
from feature_repo.views import punctuality, rolling
from feature_repo.views.congestion import congestion
from feature_repo.views.rolling import Hours
from feature_repo.views.weather import weather

PUNCTUAL = ("carrier", "origin", "destination", "route", "flight_number")
PASS_DAYS = 92  # a quarter at a time, so that the memory of a build does not grow with its range
PIECE_FACTS = 30_000  # per piece of a shuffle: a quarter's 9 take 106 s of processor time, the usual 64 take 212 s
WRITERS = 4  # a publication waits for the disk several times, so a few at once
FACTS = {
    "schedule": ("flight_id", "origin", "scheduled_departure", "available_time"),
    "departure": (
        "flight_id", *punctuality.KEYS, "scheduled_departure", "cancelled", "departure_delay", "available_time",
    ),
    "arrival": ("flight_id", *punctuality.KEYS, "scheduled_departure", "diverted", "arrival_delay", "available_time"),
}  # fmt: skip


@dataclass(frozen=True)
class Built:
    """What came of one day: its rows per view, and how many of them late records changed."""

    day: dt.date
    rows: Mapping[str, int]
    late: int


def build(spec: BuildSpec) -> ViewsRef:
    """Builds the rows of the hours in (start, end] and merges them into the days that those hours belong to.

    Raises DataFault with a line per problem of the lake, before anything is published.
    """
    progress(0.01, "checking the lake")
    built: list[Built] = []
    ranges = list(passes(spec))
    with spark.starting("perennial-build") as started, ThreadPoolExecutor(WRITERS) as pool:
        lake = read_lake(spec)
        session = started()
        spark.pieces(session, sum(lake[name].num_rows for name in FACTS) / len(ranges) / PIECE_FACTS)
        for after, until in ranges:
            progress(0.2 + 0.8 * _share(spec, after), "building the views")
            rows = compute(session, spec, lake, after, until)
            for one in pool.map(lambda day, rows=rows: _publish(spec, day, rows), _days(spec, after, until)):
                built.append(one)
                progress(0.2 + 0.8 * _share(spec, spec.calendar.ends(one.day)), f"views: {one.day}")
    return ViewsRef(
        views=spec.views,
        start=spec.start,
        end=spec.end,
        days=len(built),
        rows={view: sum(one.rows[view] for one in built) for view in VIEWS},
        late={one.day.isoformat(): one.late for one in built if one.late},
        digest=views_snapshot(spec.views, built[0].day, built[-1].day),
    )


def passes(spec: BuildSpec) -> Iterator[tuple[dt.datetime, dt.datetime]]:
    """The hours of a build, looked at again ones too, as ranges (after, until] that end where a service day does."""
    after = build_from(spec.calendar, spec.start, spec.late_days)
    while after < spec.end:
        until = min(spec.calendar.starts(spec.calendar.of(after) + PASS_DAYS * DAY), spec.end)
        yield after, until
        after = until


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


def compute(
    session: SparkSession, spec: BuildSpec, lake: Mapping[str, pa.Table], after: dt.datetime, until: dt.datetime
) -> dict[str, pa.Table]:
    """The rows of each view for the hours in (after, until], sorted by event time."""
    session.conf.set("spark.sql.adaptive.enabled", "false")  # it would plan each shuffle anew, for data that is small
    hours = Hours.of(spec, after, until)
    known = {
        name: rolling.versions(
            spark.frame(session, _part(spec, lake[name].select(columns), after, until)), hours.late_days
        )
        for name, columns in FACTS.items()
    }
    facts = punctuality.facts(known["departure"], known["arrival"], hours.late_minutes)
    found = {
        "weather": weather(spark.frame(session, lake["weather"]), after, until).toArrow(),
        "congestion": congestion(known["schedule"], known["departure"], hours).toArrow(),
    }
    punctual = punctuality.punctuality({view: ENTITY_KEYS[view] for view in PUNCTUAL}, facts, hours).toArrow()
    found |= {view: punctual.filter(pc.equal(punctual["view"], view)) for view in PUNCTUAL}
    return {
        view: found[view].select(schema.names).cast(schema).sort_by("event_time")
        for view, schema in tables.VIEW_SCHEMAS.items()
    }


def _part(spec: BuildSpec, facts: pa.Table, after: dt.datetime, until: dt.datetime) -> pa.Table:
    """The facts of the flights that hours in (after, until] look at."""
    first, last = fact_days(spec.calendar, after, until, spec.late_days)
    begins, ends = spec.calendar.starts(first), spec.calendar.ends(last)
    due = facts["scheduled_departure"]
    return facts.filter(pc.and_(pc.greater_equal(due, _instant(begins)), pc.less(due, _instant(ends))))


def _days(spec: BuildSpec, after: dt.datetime, until: dt.datetime) -> Iterator[dt.date]:
    """The days of the hours in (after, until]; those before the hours that were asked for only where they are there."""
    calendar = spec.calendar
    asked = max(calendar.first, calendar.of(spec.start))
    for day in tables.day_range(max(calendar.first, calendar.of(after)), calendar.of(until - HOUR)):
        if day >= asked or store.manifest(join(spec.views, day.isoformat())) is not None:
            yield day


def _share(spec: BuildSpec, reached: dt.datetime) -> float:
    first = build_from(spec.calendar, spec.start, spec.late_days)
    return min(1.0, (reached - first) / (spec.end - first))


def _publish(spec: BuildSpec, day: dt.date, rows: Mapping[str, pa.Table]) -> Built:
    """Merges the built rows into one day; the rows of its other hours stay as they are."""
    uri = join(spec.views, day.isoformat())
    begins, ends = spec.calendar.starts(day), spec.calendar.ends(day)
    again = build_from(spec.calendar, spec.start, spec.late_days)
    there = tables.published_day(uri, tables.VIEW_SCHEMAS, needed=begins < again or spec.end < ends)
    published = store.manifest(uri) is not None  # a day that is not there gets the hours that were asked for, no more
    after, until = max(begins, again if published else spec.start), min(ends, spec.end)
    merged, late = {}, {}
    for view, schema in tables.VIEW_SCHEMAS.items():
        merged[view] = between(rows[view], after, until)
        if there:
            old = tables.read_table(there, view, schema)
            before, now = (_known(table, after, spec.start) for table in (old, merged[view]))
            late[view] = len(tables.changed_rows(before, now, (*ENTITY_KEYS[view], *rolling.CLOCKS)))
            merged[view] = pa.concat_tables([outside(old, after, until), merged[view]])
    files = {f"{view}.parquet": tables.view_bytes(view, table) for view, table in merged.items()}
    counts = {view: table.num_rows for view, table in merged.items()}
    facts = {"day": day.isoformat(), "rows": counts} | tables.counted(there, "late", late)
    tables.publish_day(uri, "view-day", files, facts)
    return Built(day, counts, sum(late.values()))


def _known(table: pa.Table, after: dt.datetime, by: dt.datetime) -> pa.Table:
    """The rows of hours after ``after`` that a build up to ``by`` should have had."""
    return table.filter(
        pc.and_(pc.greater(table["event_time"], _instant(after)), pc.less_equal(table["available_time"], _instant(by)))
    )


def between(ordered: pa.Table, after: dt.datetime, until: dt.datetime) -> pa.Table:
    """The rows with after < event_time <= until, of a table that is sorted by event time; nothing is copied."""
    when = ordered["event_time"].to_numpy()
    first, last = np.searchsorted(when, [_numpy(after), _numpy(until)], side="right")
    return ordered.slice(first, last - first)


def outside(table: pa.Table, after: dt.datetime, until: dt.datetime) -> pa.Table:
    """The rows that ``between`` leaves out, of a table in any order."""
    when = table["event_time"]
    return table.filter(pc.or_(pc.less_equal(when, _instant(after)), pc.greater(when, _instant(until))))


def _instant(value: dt.datetime) -> pa.Scalar:
    return pa.scalar(value, tables.INSTANT)


def _numpy(value: dt.datetime) -> np.datetime64:
    return np.datetime64(value.astimezone(dt.UTC).replace(tzinfo=None), "us")


if __name__ == "__main__":
    sys.exit(step(build, BuildSpec))
