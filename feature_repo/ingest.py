"""The step that brings raw facts into the lake: one artifact per service day, published only when its bytes change."""

from __future__ import annotations

import datetime as dt
import importlib
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from artifacts.refs import join
from artifacts.step import DataFault, progress, step
from feature_repo import tables
from feature_repo.contract import IngestSpec, LakeRef
from feature_repo.snapshot import lake_snapshot

WRITERS = 4  # a publication waits for the disk several times, so a few at once


def ingest(spec: IngestSpec) -> LakeRef:
    """Reads the source once and publishes the service days of the range; a day whose bytes are the same is left alone."""
    progress(0.01, f"reading {spec.source}")
    facts = importlib.import_module(f"feature_repo.sources.{spec.source}").tables(spec.calendar)
    days = tables.day_range(spec.first, spec.last)
    by_day = {name: split_by_day(table) for name, table in facts.items()}
    check(spec.source, by_day, days)
    written, rows = 0, dict.fromkeys(by_day, 0)
    with ThreadPoolExecutor(WRITERS) as pool:
        outcomes = pool.map(lambda day: _publish(spec, by_day, day), days)
        for done, (changed, counts) in enumerate(outcomes, start=1):
            written += changed
            rows = {name: rows[name] + counts[name] for name in rows}
            progress(0.2 + 0.8 * done / len(days), f"lake: {done} of {len(days)} days, {written} written")
    return LakeRef(
        lake=spec.lake,
        first=spec.first,
        last=spec.last,
        days=len(days),
        written=written,
        rows=rows,
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


def check(source: str, by_day: Mapping[str, Mapping[dt.date, pa.Table]], days: tuple[dt.date, ...]) -> None:
    """Raises DataFault with every problem of every day, before anything is published."""
    problems = [line for day in days for line in tables.raw_problems(f"{source}/{day}", _day(by_day, day))]
    if problems:
        raise DataFault(problems)


def _day(by_day: Mapping[str, Mapping[dt.date, pa.Table]], day: dt.date) -> dict[str, pa.Table]:
    return {name: parts.get(day, tables.RAW_SCHEMAS[name].empty_table()) for name, parts in by_day.items()}


def _publish(
    spec: IngestSpec, by_day: Mapping[str, Mapping[dt.date, pa.Table]], day: dt.date
) -> tuple[bool, dict[str, int]]:
    found = _day(by_day, day)
    files = {f"{name}.parquet": tables.raw_bytes(name, table) for name, table in found.items()}
    rows = {name: table.num_rows for name, table in found.items()}
    uri = join(spec.lake, day.isoformat())
    return tables.publish_day(uri, "raw-day", files, {"day": day.isoformat(), "rows": rows}), rows


if __name__ == "__main__":
    sys.exit(step(ingest, IngestSpec))
