"""Feature history for Feast: entity rows and feature views in, one as-of join, the same rows in the same order out.

Inside Spark every column has a name of ours (``e0`` for an entity column, ``v0__f0`` for a feature), so any name that Feast
or a user allows works, also twice; names are put back in the Arrow table.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import NullType, NumericType

from artifacts.step import DataFault
from feature_repo import asof, spark
from feature_repo.catalogue import feature_column
from feature_repo.entity_rows import (
    EPOCH,
    ROW,
    TICK,
    Entities,
    entities_from_pandas,
    entities_from_spark,
    entities_seen,
    row_numbers,
)
from feature_repo.source_rows import Rows, SourceReader, Span, Wanted, checked, clocks

SESSION = "perennial-history"

__all__ = [
    "History", "SourceReader", "Wanted", "entities_from_pandas", "entities_from_spark", "entities_seen", "everything",
    "join", "latest", "spark",
]  # fmt: skip


@dataclass(frozen=True)
class History:
    """Entity rows with their features, not computed yet."""

    entities: Entities
    joined: DataFrame
    outputs: dict[str, str]

    def frame(self) -> DataFrame:
        """As a Spark frame, in no order."""
        if self.entities.held is None:
            return _named(self.joined, self._all_names())
        return self.joined.sparkSession.createDataFrame(self.table())

    def table(self) -> pa.Table:
        """As Arrow, in the order of the entity rows; raises RuntimeError when rows were lost or doubled."""
        found, rows = self.joined.toArrow(), self.entities.held
        place = pc.sort_indices(found[ROW])
        if rows is not None and not found[ROW].take(place).combine_chunks().equals(row_numbers(rows.num_rows)):
            raise RuntimeError(f"{rows.num_rows} entity rows went into the as-of join, {found.num_rows} came out")
        held = {} if rows is None else {f"e{n}": rows.column(n) for n in range(rows.num_columns)}
        columns = []
        for name in self._all_names():
            if name in held:
                columns.append(held[name])
            else:
                columns.append(found[name].take(place))
                found = found.drop_columns([name])  # a large result must not lie in memory twice
        return pa.table(columns, names=list(self._all_names().values()))

    def span(self) -> Span:
        """The first and last instant asked for."""
        if self.entities.held is not None:
            bounds = pc.min_max(self.entities.held[self.entities.when]).as_py()
            return bounds["min"], bounds["max"]
        found = self.entities.frame.agg(F.unix_micros(F.min(asof.AT)), F.unix_micros(F.max(asof.AT))).first()
        first, last = (None if value is None else EPOCH + value * TICK for value in found)
        return first, last

    def _all_names(self) -> dict[str, str]:
        return {f"e{n}": name for n, name in enumerate(self.entities.names)} | self.outputs


def join(
    session: SparkSession,
    entities: Entities,
    views: Sequence[Wanted],
    repo_path: Path | None,
    span: Span,
    *,
    strict: bool,
    ages: bool,
) -> History:
    """Plans the as-of join of some views; ``strict`` refuses a view that does not say when its rows became available.

    With ``ages`` each view also gives ``<view>__age``, in seconds.

    Raises DataFault with a line per column that is missing or mistyped, in the entity frame or in a source.
    """
    problems = [
        f"entity_df: {key}: column is missing, feature view '{view.view}' is joined on it; the frame has {entities.names}"
        for view in views
        for key in view.keys
        if key not in entities.names
    ]
    if problems:
        raise DataFault(problems)
    reader = SourceReader(session, repo_path)
    offers: dict[str, asof.Offers] = {}
    outputs: dict[str, str] = {}
    for number, view in enumerate(views):
        name = f"v{number}"
        rows = checked(reader, view, _needed(view, span), strict=strict)
        keys = {entities.key(key): _as_key(entities, key, rows, view) for key in view.keys}
        values = {column: f"f{n}" for n, column in enumerate(_compared(rows, view))}
        named = {value: rows.column(column) for column, value in values.items()}
        offers[name] = asof.Offers(_offered(rows, view, keys, named), tuple(keys), view.delay, view.ttl)
        outputs |= {feature_column(name, values[column]): output for output, column in view.features.items()}
        outputs |= {feature_column(name, asof.AGE): feature_column(view.view, asof.AGE)} if ages else {}
    joined = asof.join(entities.frame, offers, ages=ages)
    kept = [column for column in entities.frame.columns if column != asof.AT]
    return History(entities, joined.select(*kept, *outputs), outputs)


def latest(repo_path: Path | None, view: Wanted, start: dt.datetime, end: dt.datetime) -> pa.Table:
    """Of each entity of which a row became usable in [start, end]: its newest row by ``end``, as the join would pick it."""
    rows = checked(SourceReader(spark.running(SESSION), repo_path), view, (None, end))
    event, available = clocks(rows, view)
    usable, columns = F.greatest(event, available), _stored(view)
    values = [f"s{rows.names.index(name)}" for name in dict.fromkeys([*_compared(rows, view), *columns])]
    keys = [rows.column(column) for column in view.keys.values()]
    known = rows.frame.where(usable <= F.lit(end)).dropna(
        subset=[f"s{rows.names.index(k)}" for k in view.keys.values()]
    )
    best = known.groupBy(*keys).agg(
        F.max(F.struct(event.alias("_event"), available.alias("_available"), *values)).alias("_best"),
        F.max(usable).alias("_last"),
    )
    found = best.where(F.col("_last") >= F.lit(start)).select("_best.*")
    return _table(rows, found, columns)


def everything(repo_path: Path | None, view: Wanted, start: dt.datetime | None, end: dt.datetime | None) -> pa.Table:
    """Every row with an event in [start, end] that was available by ``end``; all columns when no feature is named."""
    rows = checked(SourceReader(spark.running(SESSION), repo_path), view, (None, end))
    event, available = clocks(rows, view)
    found = rows.frame
    if start is not None:
        found = found.where(event >= F.lit(start))
    if end is not None:
        found = found.where((event <= F.lit(end)) & (available <= F.lit(end)))
    columns = _stored(view) if view.features else {name: name for name in rows.names}
    return _table(rows, found, columns)


def _stored(view: Wanted) -> dict[str, str]:
    names = [*view.keys.values(), *view.features.values(), view.event, *([view.available] if view.available else [])]
    return {name: name for name in names}


def _table(rows: Rows, found: DataFrame, columns: dict[str, str]) -> pa.Table:
    return _named(found, {f"s{rows.names.index(column)}": name for name, column in columns.items()}).toArrow()


def _compared(rows: Rows, view: Wanted) -> list[str]:
    """The source's columns that break ties: every feature of the view in its order, so that asking for fewer changes nothing."""
    return list(dict.fromkeys([*(name for name in view.declared if name in rows.names), *view.features.values()]))


def _offered(rows: Rows, view: Wanted, keys: dict[str, Column], values: dict[str, Column]) -> DataFrame:
    event, available = clocks(rows, view)
    named = {**keys, asof.EVENT: event, asof.AVAILABLE: available, **values}
    return rows.frame.select(*(column.alias(name) for name, column in named.items()))


def _needed(view: Wanted, span: Span) -> Span:
    first, last = span
    return (first - view.ttl if first is not None and view.ttl is not None else None), last


def _as_key(entities: Entities, key: str, rows: Rows, view: Wanted) -> Column:
    """The source's key in the type that the entity frame has; a number that does not fit matches nothing."""
    column = view.keys[key]
    asked, found = entities.frame.schema[entities.key(key)].dataType, rows.kind(column)
    if asked == found or isinstance(asked, NullType):
        return rows.column(column)
    if isinstance(asked, NumericType) and isinstance(found, NumericType):
        return rows.column(column).try_cast(asked)
    raise DataFault([
        f"entity_df: {key}: type is {asked.simpleString()}, {rows.place} of feature view '{view.view}' has "
        f"{found.simpleString()} in {column}; convert one of them"
    ])


def _named(frame: DataFrame, names: dict[str, str]) -> DataFrame:
    return frame.select(*names).toDF(*names.values())
