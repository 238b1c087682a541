"""The rows that ask: a pandas frame, a Spark frame or a query, or one row per entity seen, made ready for the as-of join."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import DataType, TimestampNTZType, TimestampType

from artifacts.step import DataFault
from feature_repo import asof, spark
from feature_repo.source_rows import SourceReader, Span, Wanted, checked, clocks

WHEN = "event_timestamp"
ROW = "row"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TICK = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Entities:
    """Entity rows in Spark: ``row`` (unique, in their order), ``at``, and ``e<n>`` for columns by place.

    ``held`` are the columns themselves when they never had to leave this process (a pandas frame).
    """

    names: list[str]
    when: str
    frame: DataFrame
    held: pa.Table | None = None

    def key(self, name: str) -> str:
        """The column in Spark of a join key."""
        return f"e{self.names.index(name)}"


def entities_from_pandas(session: SparkSession, frame: pd.DataFrame, keys: set[str]) -> tuple[Entities, Span]:
    """Only keys and instants go to Spark; the other columns are put beside the features when these come back."""
    held = pa.Table.from_pandas(frame, preserve_index=False)
    when = _when(held.column_names, {entry.name: entry.type for entry in held.schema}, pa.types.is_timestamp)
    kind = held.schema.field(when).type
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        raise DataFault([
            _no_instant(when, str(frame[when].dtype), next(iter(frame[when]), None), naive=pa.types.is_timestamp(kind))
        ])
    place = held.column_names.index(when)
    held = held.set_column(place, when, held[when].cast(pa.timestamp(kind.unit, "UTC")))
    at = held[when].cast(pa.timestamp("us", "UTC"), safe=False)
    columns = {f"e{n}": _plain(held.column(n)) for n, name in enumerate(held.column_names) if name in keys}
    sent = pa.table({ROW: row_numbers(held.num_rows), asof.AT: at, **columns})
    bounds = pc.min_max(at).as_py()
    return Entities(held.column_names, when, spark.frame(session, sent), held), (bounds["min"], bounds["max"])


def entities_from_spark(frame: DataFrame) -> Entities:
    """The rows of a Spark frame, or of a query, in the order in which it yields them."""
    when = _when(frame.columns, {entry.name: entry.dataType for entry in frame.schema}, _is_spark_time)
    kind = frame.schema[when].dataType
    if not isinstance(kind, TimestampType):
        raise DataFault([_no_instant(when, kind.simpleString(), None, naive=isinstance(kind, TimestampNTZType))])
    names = list(frame.columns)
    numbered = frame.toDF(*(f"e{number}" for number in range(len(names))))
    at = F.col(f"e{names.index(when)}").alias(asof.AT)
    return Entities(names, when, numbered.select(F.monotonically_increasing_id().alias(ROW), at, "*"))


def entities_seen(reader: SourceReader, views: Sequence[Wanted], start: dt.datetime, end: dt.datetime) -> Entities:
    """One row per entity that had an event in [start, end], known by ``end``; all ask at ``end``, sorted by their keys.

    Views with other keys have rows of their own, whose remaining keys are null.
    """
    names = list(dict.fromkeys(key for view in views for key in view.keys))
    seen: DataFrame | None = None
    for view in views:
        rows = checked(reader, view)
        event, available = clocks(rows, view)
        keys = [rows.column(column).alias(f"e{names.index(key)}") for key, column in view.keys.items()]
        within = event.between(F.lit(start), F.lit(end)) & (available <= F.lit(end))
        found = rows.frame.where(within).select(*keys).dropna().distinct()
        seen = found if seen is None else seen.unionByName(found, allowMissingColumns=True)
    if seen is None:
        raise DataFault(["features: no feature view is asked for"])
    order = Window.orderBy(*(f"e{number}" for number in range(len(names))))
    columns = [F.col(f"e{number}") for number in range(len(names))]
    asked = F.lit(end)
    frame = seen.distinct().select(
        (F.row_number().over(order) if columns else F.lit(1)).cast("long").alias(ROW),
        asked.alias(asof.AT),
        *columns,
        asked.alias(f"e{len(names)}"),
    )
    return Entities([*names, WHEN], WHEN, frame)


def _when(names: Sequence[str], kinds: dict[str, Any], is_time: Callable[[Any], bool]) -> str:
    """Feast's rule: the column named event_timestamp, else the only one that holds times."""
    times = [name for name in names if is_time(kinds[name])]
    if WHEN in names or len(times) == 1:
        return WHEN if WHEN in names else times[0]
    raise DataFault([
        f"entity_df: {WHEN}: column is missing and {len(times)} columns hold times ({times}); name the one to join on {WHEN}"
    ])


def _no_instant(name: str, kind: str, example: object, *, naive: bool) -> str:
    shown = "" if example is None else f" such as {example!r}"
    if naive:
        return (
            f"entity_df: {name}: values{shown} have no time zone ({kind}); say which it is, "
            f"with .dt.tz_localize('UTC') in pandas or a timestamp instead of a timestamp_ntz in Spark"
        )
    return (
        f"entity_df: {name}: values{shown} are no instants but {kind}; convert them, "
        f"with pandas.to_datetime(..., utc=True) or cast(... as timestamp)"
    )


def _is_spark_time(kind: DataType) -> bool:
    return isinstance(kind, TimestampType | TimestampNTZType)


def row_numbers(rows: int) -> pa.Array:
    """0, 1, 2 and so on: the unique row ids of a frame that came in order."""
    return pa.array(np.arange(rows, dtype=np.int64))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Spark knows no dictionaries, which is what pandas' categories are."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
