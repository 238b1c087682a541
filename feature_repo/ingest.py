"""The step that brings raw facts into the lake: one artifact per service day, published only when its bytes change.

A source is a module with ``tables(calendar, first, last)``, which gives those service days and no other. A record may land
late, after hours in which it counts were built; the day's manifest counts such rows (fact ``landed``).
"""

from __future__ import annotations

import datetime as dt
import importlib
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from artifacts import store
from artifacts.refs import join
from artifacts.step import DataFault, progress, step
from feature_repo import tables
from feature_repo.contract import IngestSpec, LakeRef
from feature_repo.snapshot import build_from, lake_snapshot

WRITERS = 4  # a publication waits for the disk several times, so a few at once


@dataclass(frozen=True)
class Landed:
    """What came of one day: whether it changed, its rows per table, and how many of them came late (see LakeRef)."""

    changed: bool
    rows: Mapping[str, int]
    late: int
    too_late: int


def ingest(spec: IngestSpec) -> LakeRef:
    """Reads the source's days of the range and publishes them; a day whose bytes are the same is left alone."""
    progress(0.01, f"reading {spec.source}")
    source = importlib.import_module(f"feature_repo.sources.{spec.source}")
    days = tables.day_range(spec.first, spec.last)
    by_day = {name: split_by_day(table) for name, table in source.tables(spec.calendar, spec.first, spec.last).items()}
    check(spec, by_day, days)
    landed: dict[dt.date, Landed] = {}
    with ThreadPoolExecutor(WRITERS) as pool:
        for day, one in zip(days, pool.map(lambda day: _publish(spec, by_day, day), days), strict=True):
            landed[day] = one
            written = sum(each.changed for each in landed.values())
            progress(0.2 + 0.8 * len(landed) / len(days), f"lake: {len(landed)} of {len(days)} days, {written} written")
    return LakeRef(
        lake=spec.lake,
        first=spec.first,
        last=spec.last,
        days=len(days),
        written=sum(one.changed for one in landed.values()),
        rows={name: sum(one.rows[name] for one in landed.values()) for name in by_day},
        late={day.isoformat(): one.late for day, one in landed.items() if one.late},
        too_late={day.isoformat(): one.too_late for day, one in landed.items() if one.too_late},
        digest=lake_snapshot(spec.lake, spec.first, spec.last),
    )


def split_by_day(table: pa.Table) -> dict[dt.date, pa.Table]:
    """The rows of each service day, without the ``day`` column."""
    ordered = table.sort_by("day")
    counts = pc.value_counts(ordered["day"]).to_pylist()
    parts, offset = {}, 0
    for entry in counts:
        parts[entry["values"]] = ordered.slice(offset, entry["counts"]).drop_columns(["day"])
        offset += entry["counts"]
    return parts


def check(spec: IngestSpec, by_day: Mapping[str, Mapping[dt.date, pa.Table]], days: tuple[dt.date, ...]) -> None:
    """Raises DataFault with every problem of every day, before anything is published."""
    problems = []
    for day in days:
        over = spec.closed_to is None or spec.calendar.ends(day) <= spec.closed_to
        problems += tables.raw_problems(f"{spec.source}/{day}", _day(by_day, day), whole=over)
    if problems:
        raise DataFault(problems)


def _day(by_day: Mapping[str, Mapping[dt.date, pa.Table]], day: dt.date) -> dict[str, pa.Table]:
    return {name: parts.get(day, tables.RAW_SCHEMAS[name].empty_table()) for name, parts in by_day.items()}


def _publish(spec: IngestSpec, by_day: Mapping[str, Mapping[dt.date, pa.Table]], day: dt.date) -> Landed:
    found = _day(by_day, day)
    files = {f"{name}.parquet": tables.raw_bytes(name, table) for name, table in found.items()}
    rows = {name: table.num_rows for name, table in found.items()}
    uri = join(spec.lake, day.isoformat())
    there = tables.published_day(uri, tables.RAW_SCHEMAS, needed=False)
    told = tables.counted(there, "landed", late(spec, there, found) if there else {})
    changed = tables.publish_day(uri, "raw-day", files, {"day": day.isoformat(), "rows": rows, **told})
    counts = told.get("landed", {})
    unused = sum(ignored(found[name], spec.late_days) for name in ("schedule", "departure", "arrival"))
    return Landed(changed, rows, counts.get("late", 0), counts.get("too_late", 0) + unused)


def late(spec: IngestSpec, there: store.Artifact, found: Mapping[str, pa.Table]) -> dict[str, int]:
    """How many rows that a day gains, loses or restates were known by the hours that are built; too late: by earlier ones.

    "Earlier" are the hours that a build of the next ones does not look at again.
    """
    if spec.built_to is None:
        return {}
    again = build_from(spec.calendar, spec.built_to, spec.late_days)
    known = [
        key[-1]
        for name, table in found.items()
        for key in tables.changed_rows(
            tables.read_table(there, name, tables.RAW_SCHEMAS[name]), table, (*tables.RAW_KEYS[name], "available_time")
        )
    ]
    too_late = sum(instant <= again for instant in known)
    return {"late": sum(instant <= spec.built_to for instant in known) - too_late, "too_late": too_late}


def ignored(facts: pa.Table, late_days: int) -> int:
    """How many facts became known so long after their flight that no view counts them (``rolling.versions``)."""
    bound = pa.scalar(dt.timedelta(days=late_days + 1), pa.duration("us"))
    return (
        pc.sum(pc.greater_equal(pc.subtract(facts["available_time"], facts["scheduled_departure"]), bound)).as_py() or 0
    )


if __name__ == "__main__":
    sys.exit(step(ingest, IngestSpec))
