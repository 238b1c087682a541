"""The tables of lake and views: their columns, their deterministic Parquet bytes, and their day artifacts checked."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from artifacts import store
from artifacts.refs import Uri, join, sha256
from artifacts.step import DataFault
from feature_repo.catalogue import ENTITY_KEYS, FEATURES, VIEWS

INSTANT = pa.timestamp("us", tz="UTC")
_CLOCKS = {"event_time": INSTANT, "available_time": INSTANT}
_FLIGHT = {
    "flight_id": pa.string(),
    "carrier": pa.string(),
    "flight": pa.int64(),
    "origin": pa.string(),
    "dest": pa.string(),
}
_WEATHER = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")

RAW_SCHEMAS = {
    "schedule": pa.schema({
        **_FLIGHT,
        "distance": pa.float64(),
        "scheduled_departure": INSTANT,
        "scheduled_arrival": INSTANT,
        **_CLOCKS,
    }),
    "departure": pa.schema({
        **_FLIGHT,
        "scheduled_departure": INSTANT,
        "cancelled": pa.bool_(),
        "departure_delay": pa.float64(),
        "tailnum": pa.string(),
        **_CLOCKS,
    }),
    "arrival": pa.schema({
        **_FLIGHT,
        "scheduled_departure": INSTANT,
        "arrival_delay": pa.float64(),
        "diverted": pa.bool_(),
        **_CLOCKS,
    }),
    "weather": pa.schema({
        "origin": pa.string(),
        **dict.fromkeys(_WEATHER, pa.float64()),
        **_CLOCKS,
    }),
}
RAW_KEYS = {
    "schedule": ("flight_id",),
    "departure": ("flight_id",),
    "arrival": ("flight_id",),
    "weather": ("origin", "event_time"),
}

KEY_TYPES = {"string": pa.string(), "int64": pa.int64()}
VIEW_SCHEMAS = {
    view: pa.schema({
        **{key: KEY_TYPES[kind] for key, kind in VIEWS[view].keys.items()},
        **_CLOCKS,
        **dict.fromkeys(features, pa.float64()),
    })
    for view, features in FEATURES.items()
}


def parquet_bytes(table: pa.Table, sort_by: Iterable[str]) -> bytes:
    """Parquet bytes that depend on the rows only: sorted, one row group order, no schema metadata."""
    ordered = table.sort_by([(name, "ascending") for name in sort_by])
    sink = pa.BufferOutputStream()
    pq.write_table(
        ordered.replace_schema_metadata(None).combine_chunks(),
        sink,
        compression="zstd",
        coerce_timestamps="us",
        store_schema=False,
        version="2.6",
    )
    return bytes(sink.getvalue())


def raw_bytes(name: str, table: pa.Table) -> bytes:
    """The Parquet bytes of one day of a raw table, sorted by its key and by when it became known."""
    return parquet_bytes(table, (*RAW_KEYS[name], "available_time"))


def view_bytes(view: str, table: pa.Table) -> bytes:
    """The Parquet bytes of one day of a view, sorted by entity, event time and available time."""
    return parquet_bytes(table, (*ENTITY_KEYS[view], "event_time", "available_time"))


def schema_problems(place: str, found: pa.Schema, expected: pa.Schema) -> list[str]:
    """One line per column that is missing or has another type than expected."""
    problems = []
    for field in expected:
        at = found.get_field_index(field.name)
        if at < 0:
            problems.append(f"{place}: {field.name}: column is missing; the table has {found.names}")
        elif found.field(at).type != field.type:
            problems.append(f"{place}: {field.name}: type is {found.field(at).type}, it must be {field.type}")
    return problems


def duplicate_problems(place: str, table: pa.Table, key: tuple[str, ...]) -> list[str]:
    """One line when some rows share key and available time: a restated record needs a later available time."""
    columns = [*key, "available_time"]
    groups = table.select(columns).group_by(columns).aggregate([([], "count_all")])
    if groups.num_rows == table.num_rows:
        return []
    first = groups.filter(pc.greater(groups["count_all"], 1)).sort_by(columns[0]).slice(0, 1).to_pylist()[0]
    return [
        f"{place}: {'+'.join(key)}: {table.num_rows - groups.num_rows} rows repeat a key at the same available_time, "
        f"such as {[str(first[name]) for name in columns]}; keep one, or give the restated row its own available_time"
    ]


def raw_problems(place: str, tables: Mapping[str, pa.Table], *, whole: bool = True) -> list[str]:
    """What is wrong with one day of the lake: columns, types, keys; for a whole day also facts that are missing."""
    problems = []
    for name, schema in RAW_SCHEMAS.items():
        if name not in tables:
            problems.append(f"{place}/{name}.parquet: file is missing; ingest the day again")
            continue
        faults = schema_problems(f"{place}/{name}.parquet", tables[name].schema, schema)
        problems += faults or duplicate_problems(f"{place}/{name}.parquet", tables[name], RAW_KEYS[name])
    if problems or not whole:
        return problems
    for name in ("schedule", "departure"):
        if not tables[name].num_rows:
            problems.append(f"{place}/{name}.parquet: rows: the day is empty (got 0); ingest the day again")
    departed = pc.sum(pc.invert(tables["departure"]["cancelled"])).as_py() or 0
    if departed and not tables["arrival"].num_rows:
        problems.append(
            f"{place}/arrival.parquet: rows: the day is empty though {departed} flights departed; ingest the day again"
        )
    return problems


def changed_rows(old: pa.Table, new: pa.Table, key: tuple[str, ...]) -> set[tuple[Any, ...]]:
    """The keys of the rows that only one of two tables has, or that have other values there."""
    order = [(name, "ascending") for name in key]
    if old.sort_by(order).equals(new.sort_by(order)):
        return set()
    columns = [*key, *(name for name in old.column_names if name not in key)]
    rows = ({tuple(row.values()) for row in table.select(columns).to_pylist()} for table in (old, new))
    return {row[: len(key)] for row in set.symmetric_difference(*rows)}


def published_day(uri: Uri, schemas: Mapping[str, pa.Schema], *, needed: bool) -> store.Artifact | None:
    """The day that lies there in today's layout, or None.

    A damaged day, or one in an older layout, is None too, unless rows of it are ``needed``: then ArtifactCorrupt, or
    DataFault with a line per table that has changed.
    """
    try:
        there = store.read(uri)
    except store.ArtifactMissing:
        return None
    except store.ArtifactCorrupt:
        if needed:
            raise
        return None
    problems = [line for name, schema in schemas.items() for line in _layout_problems(there, name, schema)]
    if problems and needed:
        raise DataFault(
            f"{line}; the layout has changed, make all of this day anew (from = its first hour or earlier)"
            for line in problems
        )
    return None if problems else there


def _layout_problems(artifact: store.Artifact, name: str, schema: pa.Schema) -> list[str]:
    path, place = artifact.path / f"{name}.parquet", f"{artifact.uri}/{name}.parquet"
    return schema_problems(place, pq.read_schema(path), schema) if path.is_file() else [f"{place}: is missing"]


def counted(there: store.Artifact | None, fact: str, more: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """A manifest's fact that counts rows over all publications of a day; nothing while there is nothing to count."""
    before = there.manifest.facts.get(fact, {}) if there else {}
    total = Counter(before if isinstance(before, dict) else {}) + Counter(more)
    return {fact: dict(sorted(total.items()))} if total else {}


def publish_day(uri: Uri, kind: str, files: Mapping[str, bytes], facts: Mapping[str, object]) -> bool:
    """Publishes one day when its bytes differ from what lies there; returns whether it did.

    What lies there is verified too, so a damaged day is mended by publishing it again.
    """
    entries = tuple(
        store.FileEntry(path=name, size=len(content), digest=sha256(content)) for name, content in sorted(files.items())
    )
    try:
        store.read(uri, store.digest_of(entries))
    except (store.ArtifactMissing, store.ArtifactCorrupt):
        with store.publish(uri, kind) as draft:
            for name, content in files.items():
                (draft.path / name).write_bytes(content)
            draft.facts.update(facts)
        return True
    return False


def day_range(first: dt.date, last: dt.date) -> tuple[dt.date, ...]:
    """All days from first to last, both included."""
    return tuple(first + dt.timedelta(days=n) for n in range((last - first).days + 1))


def read_days(root: Uri, days: Iterable[dt.date], producer: str) -> dict[dt.date, store.Artifact]:
    """The verified artifacts of some days; raises DataFault with the missing days, ArtifactCorrupt for damaged ones."""
    found: dict[dt.date, store.Artifact] = {}
    missing = []
    days = tuple(days)
    store.prefetch(join(root, day.isoformat()) for day in days)  # side by side; a year one by one would take minutes
    for day in days:
        try:
            found[day] = store.read(join(root, day.isoformat()))
        except store.ArtifactMissing:
            missing.append(day)
    if missing:
        raise DataFault(f"{root}: {span}: not there; run {producer} for it first" for span in spans(missing))
    return found


def spans(days: Iterable[dt.date]) -> list[str]:
    """Days as text, runs of consecutive days in one piece."""
    runs: list[list[dt.date]] = []
    for day in sorted(days):
        if runs and (day - runs[-1][-1]).days == 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return [f"day {run[0]}" if len(run) == 1 else f"days {run[0]} to {run[-1]} ({len(run)})" for run in runs]


def read_table(artifact: store.Artifact, name: str, schema: pa.Schema) -> pa.Table:
    """One table of a day artifact with exactly the columns of the schema; raises DataFault where it has others."""
    table = pq.read_table(artifact.file(f"{name}.parquet"))
    problems = schema_problems(f"{artifact.uri}/{name}.parquet", table.schema, schema)
    if problems:
        raise DataFault(problems)
    return table.select(schema.names)


def load_raw(found: Mapping[dt.date, store.Artifact], whole: Container[dt.date]) -> dict[str, pa.Table]:
    """The raw tables of some days, put together; raises DataFault with every problem of every day.

    ``whole`` holds the days that are over, from which no fact may be missing.
    """
    parts: dict[str, list[pa.Table]] = {name: [] for name in RAW_SCHEMAS}
    problems = []
    for day, artifact in found.items():
        files = {name: artifact.path / f"{name}.parquet" for name in RAW_SCHEMAS}
        loaded = {name: pq.read_table(path) for name, path in files.items() if path.is_file()}
        faults = raw_problems(artifact.uri, loaded, whole=day in whole)
        if not faults:
            for name, schema in RAW_SCHEMAS.items():
                parts[name].append(loaded[name].select(schema.names))
        problems += faults
    if problems:
        raise DataFault(problems)
    return {name: pa.concat_tables(tables) for name, tables in parts.items()}


def load_views(found: Mapping[dt.date, store.Artifact]) -> dict[str, pa.Table]:
    """The rows of every view of some days, put together; raises DataFault where a view has other columns."""
    return {
        view: pa.concat_tables([read_table(artifact, view, schema) for artifact in found.values()])
        for view, schema in VIEW_SCHEMAS.items()
    }
