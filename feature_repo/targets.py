"""Opens what a validation checks: the files of each table grouped by their columns, and the tables made for rules across
rows: the facts of each day, and the flights across schedule, departure and arrival. Arrow only, no Spark.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from artifacts.store import read_ref
from feature_repo import outcomes as said
from feature_repo.contract import ValidateSpec
from feature_repo.expectations import daily
from feature_repo.expectations.daily import Band, Daily
from feature_repo.outcomes import Outcome
from feature_repo.tables import INSTANT, day_range, spans

PARTITION = pa.field("partition", pa.date32())


@dataclass(frozen=True)
class Part:
    """One file: a table of one day (or the rows of a training set)."""

    partition: dt.date
    path: Path
    schema: pa.Schema

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Its rows with the day that they came from."""
        table = pq.read_table(self.path, columns=columns)
        return table.append_column(PARTITION, pa.repeat(pa.scalar(self.partition, PARTITION.type), table.num_rows))


@dataclass(frozen=True)
class Batch:
    """Rows that are checked together. ``label`` is the table, with the days where their columns are not the usual ones."""

    table: str
    label: str
    read: Callable[[], pa.Table]


Parts = dict[str, list[Part]]


def open_parts(spec: ValidateSpec, names: Iterable[str]) -> tuple[list[Outcome], Parts]:
    """The files that can be read, table by table, and a failure for each that cannot."""
    faults: list[Outcome] = []
    parts: Parts = {name: [] for name in names}
    for target in spec.targets:
        artifact = read_ref(target)
        held = {entry.path for entry in artifact.manifest.files}
        for name, found in parts.items():
            file = f"{name}.parquet"
            if file not in held:
                text = f"{artifact.uri} has no {file}; it has {sorted(held)}"
                faults.append(said.failed(name, "expect_file_to_exist", None, text))
                continue
            try:
                found.append(Part(target.partition, artifact.path / file, pq.read_schema(artifact.path / file)))
            except pa.ArrowException as error:
                text = f"{artifact.uri}: {file} cannot be read: {str(error).splitlines()[0]}"
                faults.append(said.failed(name, "expect_file_to_be_parquet", None, text))
    return faults, parts


def batches(parts: Parts, *, stamped: bool = True) -> list[Batch]:
    """The rows of each table; days whose columns differ from most days' (else the newest's) stand alone, so that a line names them."""
    found = []
    for table, files in parts.items():
        alike: dict[str, list[Part]] = defaultdict(list)
        for part in files:
            alike[str(part.schema.remove_metadata())].append(part)
        groups = sorted(alike.values(), key=lambda group: (len(group), group[-1].partition), reverse=True)
        for number, group in enumerate(groups):
            label = f"{table} {', '.join(spans(part.partition for part in group))}" if number else table
            found.append(Batch(table, label, _reader(group, stamped=stamped)))
    return found


def _reader(group: Sequence[Part], *, stamped: bool) -> Callable[[], pa.Table]:
    def read() -> pa.Table:
        table = pa.concat_tables([part.read() for part in group])
        return table if stamped else table.drop_columns([PARTITION.name])

    return read


# --- the facts of each day -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Day:
    """What one table holds of one day; ``label_newest`` only in a training set."""

    rows: int = 0
    oldest: dt.datetime | None = None
    newest: dt.datetime | None = None
    label_newest: dt.datetime | None = None


Held = Mapping[dt.date, Day]
Floor = Callable[[str, dt.date], int]
"""The least rows of a table's day."""


def held(parts: Iterable[Part]) -> dict[dt.date, Day]:
    """What the files of a table hold, day by day."""
    return {part.partition: _held(part) for part in parts}


def _held(part: Part) -> Day:
    rows = pq.read_metadata(part.path).num_rows
    if part.schema.get_field_index("event_time") < 0 or part.schema.field("event_time").type != INSTANT:
        return Day(rows)
    found = pc.min_max(pq.read_table(part.path, columns=["event_time"])["event_time"]).as_py()
    return Day(rows, found["min"], found["max"])


def day_facts(
    spec: ValidateSpec,
    asked: Mapping[str, Daily],
    found: Mapping[str, Held],
    bands: Mapping[str, Mapping[dt.date, Band]],
    floor: Floor,
) -> pa.Table:
    """One row per day: ``<table>_rows, _floor, _least, _most, _oldest, _newest`` for each table, and when the day begins and ends."""
    days = sorted({day for table in asked for day in bands[table]})
    cut_off = spec.calendar.as_of(spec.targets[-1].partition)
    columns: dict[str, pa.Array] = {
        "partition": pa.array(days, pa.date32()),
        "begins": pa.array([spec.calendar.starts(day) for day in days], INSTANT),
        "ends": pa.array([spec.calendar.ends(day) for day in days], INSTANT),
        "cut_off": pa.array([cut_off] * len(days), INSTANT),
    }
    nothing = Day()
    for table in asked:
        rows = [found[table].get(day, nothing) for day in days]
        chosen = [bands[table][day] for day in days]
        columns |= {
            f"{table}_rows": pa.array([one.rows for one in rows], pa.int64()),
            f"{table}_floor": pa.array([floor(table, day) for day in days], pa.int64()),
            f"{table}_least": pa.array([one.least for one in chosen], pa.int64()),
            f"{table}_most": pa.array([one.most for one in chosen], pa.int64()),
            f"{table}_oldest": pa.array([one.oldest for one in rows], INSTANT),
            f"{table}_newest": pa.array([one.newest for one in rows], INSTANT),
        }
        if any(one.label_newest for one in rows):
            columns["label_newest"] = pa.array([one.label_newest for one in rows], INSTANT)
    return pa.table(columns)


def unjudged(
    bands: Mapping[str, Mapping[dt.date, Band]], asked: Mapping[str, Daily]
) -> tuple[list[Outcome], list[str]]:
    """The volumes that were not compared: failures where they had to be, and a record where that is allowed."""
    faults, notes = [], []
    for table, days in bands.items():
        reasons: dict[tuple[str, bool], list[dt.date]] = defaultdict(list)
        for day, one in days.items():
            if one.none and asked[table].volume:
                reasons[one.none, one.allowed].append(day)
        for (reason, allowed), where in sorted(reasons.items()):
            text = f"volume was not compared with past weekdays on {', '.join(spans(where))}: {reason}"
            if allowed or asked[table].severity == "warning":
                notes.append(f"{table}: {text}")
            else:
                faults.append(said.failed(daily.TABLE, "expect_volume_history", table, text))
    return faults, notes


def target_bands(spec: ValidateSpec, asked: Mapping[str, Daily]) -> dict[str, dict[dt.date, Band]]:
    """The band of each table's day, from the history that the spec gives."""
    return {
        table: {
            target.partition: daily.band(target.partition, target.history.get(table, ()), spec.calendar, spec.policy)
            if one.volume
            else Band()
            for target in spec.targets
        }
        for table, one in asked.items()
    }


def set_days(rows: pa.Table, dated_by: str) -> dict[dt.date, Day]:
    """What a training set holds of each service day; the instant ``dated_by`` says which day a row belongs to."""
    needed = {"day": pa.date32(), dated_by: INSTANT, "label_time": INSTANT}
    names = {entry.name: entry.type for entry in rows.schema}
    if any(names.get(name) != kind for name, kind in needed.items()):
        return {}
    measures = [
        (dated_by, "min"),
        (dated_by, "max"),
        ("label_time", "max"),
        ([], "count_all"),
    ]
    grouped = rows.select(list(needed)).group_by("day").aggregate(measures).to_pylist()
    return {
        row["day"]: Day(row["count_all"], row[f"{dated_by}_min"], row[f"{dated_by}_max"], row["label_time_max"])
        for row in grouped
    }


def set_bands(spec: ValidateSpec, found: Held, weeks: int = 8) -> dict[str, dict[dt.date, Band]]:
    """The band of each day that a set must hold, from the same weekdays before it in the set itself."""
    (target,) = spec.targets
    wanted = target.partition - spec.policy.set_fresh
    first, last = (min(found), max(*found, wanted)) if found else (wanted, wanted)
    chosen = {}
    for day in day_range(first, last):
        past = [day - week * dt.timedelta(weeks=1) for week in range(1, weeks + 1)]
        history = tuple(found[one].rows for one in past if one in found and one not in spec.calendar.exceptions)
        chosen[day] = daily.band(day, history, spec.calendar, spec.policy, first)
    return {"rows": chosen}


# --- the flights across the tables of a day ---------------------------------------------------------------------------

FLIGHT_COLUMNS: Mapping[str, Mapping[str, pa.DataType]] = {
    "schedule": {"flight_id": pa.string(), "available_time": INSTANT},
    "departure": {"flight_id": pa.string(), "available_time": INSTANT, "event_time": INSTANT, "cancelled": pa.bool_()},
    "arrival": {"flight_id": pa.string(), "available_time": INSTANT, "event_time": INSTANT},
}
KEY = ["partition", "flight_id"]


def flights(parts: Parts) -> pa.Table:
    """One row per flight of a day: in which tables it is, whether it was cancelled, when it left and came, as known last.

    Days with a table that lacks a column are left out; the table's own suite says so.
    """
    whole = set.intersection(
        *({part.partition for part in parts[name] if _holds(part, name)} for name in FLIGHT_COLUMNS)
    )
    last = {name: _last([part for part in parts[name] if part.partition in whole], name) for name in FLIGHT_COLUMNS}
    joined = (
        last["schedule"]
        .append_column("scheduled", pa.array([True] * last["schedule"].num_rows, pa.bool_()))
        .join(last["departure"].rename_columns([*KEY, "left_at", "cancelled"]), KEY, join_type="full outer")
        .join(last["arrival"].rename_columns([*KEY, "came"]), KEY, join_type="full outer")
    )
    marks = {
        "scheduled": pc.fill_null(joined["scheduled"], False),  # noqa: FBT003  Arrow's own signature
        "departed": pc.is_valid(joined["left_at"]),
        "cancelled": pc.fill_null(joined["cancelled"], False),  # noqa: FBT003  as above
        "arrived": pc.is_valid(joined["came"]),
    }
    return pa.table({
        **{name: joined[name] for name in KEY},
        **marks,
        "left_at": joined["left_at"],
        "came": joined["came"],
    })


def _holds(part: Part, name: str) -> bool:
    types = {entry.name: entry.type for entry in part.schema}
    return all(types.get(column) == kind for column, kind in FLIGHT_COLUMNS[name].items())


def _last(parts: Sequence[Part], name: str) -> pa.Table:
    """Of each flight the version that became known last."""
    columns = FLIGHT_COLUMNS[name]
    values = [column for column in columns if column not in {"flight_id", "available_time"}]
    schema = pa.schema({**columns, PARTITION.name: PARTITION.type})
    rows = (
        pa.concat_tables([part.read(list(columns)).select(schema.names) for part in parts])
        if parts
        else schema.empty_table()
    )
    ordered = rows.sort_by([("available_time", "ascending")])
    chosen = ordered.group_by(KEY, use_threads=False).aggregate([(value, "last") for value in values])
    return chosen.select([*KEY, *(f"{value}_last" for value in values)])


def flight_counts(table: pa.Table) -> dict[dt.date, dict[str, Any]]:
    """Day -> how many flights were scheduled, and how many departed and were not cancelled."""
    flown = pc.and_(table["departed"], pc.invert(table["cancelled"])).cast(pa.int64())
    counted = pa.table({
        "partition": table["partition"],
        "scheduled": table["scheduled"].cast(pa.int64()),
        "flown": flown,
    })
    sums = counted.group_by("partition").aggregate([("scheduled", "sum"), ("flown", "sum")])
    return {
        row["partition"]: {"scheduled": row["scheduled_sum"], "flown": row["flown_sum"]} for row in sums.to_pylist()
    }
