"""The as-of join: to each entity row the newest view row that was usable at its instant. Pure: DataFrames in and out.

A view row is usable at T when event_time <= T - delay, available_time <= T and event_time > T - ttl. Among usable rows the
latest event_time wins, then the latest available_time, then the values themselves, so the outcome never depends on the
order of the input. Rows out = rows in: nothing usable gives nulls, and equal entity rows all stay.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from feature_repo.catalogue import feature_column

CLOCKS = ("event_time", "available_time")
AT = "at"


def join(
    entities: DataFrame,
    views: Mapping[str, DataFrame],
    keys: Mapping[str, Sequence[str]],
    delay: dt.timedelta,
    ttl: dt.timedelta,
) -> DataFrame:
    """Entity rows (with the instant T in ``at``) plus ``<view>__<feature>``; one shuffle per set of keys.

    ``views`` hold their keys, event_time, available_time and features; ``keys`` names the keys of each view.
    """
    joined = entities
    for shared in sorted({tuple(keys[view]) for view in views}):
        together = {view: rows for view, rows in views.items() if tuple(keys[view]) == shared}
        joined = _join_shared(joined, together, shared, delay, ttl)
    return joined


def _join_shared(
    entities: DataFrame, views: Mapping[str, DataFrame], keys: Sequence[str], delay: dt.timedelta, ttl: dt.timedelta
) -> DataFrame:
    stream = entities.select("*", F.col(AT).alias("_usable"), F.lit(1).alias("_asks"))
    for view, rows in views.items():
        stream = stream.unionByName(_offers(view, rows, keys, delay), allowMissingColumns=True)
    # rows that become usable at T itself stand before those that ask at T
    seen = Window.partitionBy(*keys).orderBy("_usable", "_asks").rowsBetween(Window.unboundedPreceding, 0)
    best = stream.select("*", *(F.max(f"_{view}").over(seen).alias(f"_best_{view}") for view in views))
    columns: list[Column] = [F.col(name) for name in entities.columns]
    for view, rows in views.items():
        chosen = F.col(f"_best_{view}")
        fresh = chosen["event_time"] > F.col(AT) - F.lit(ttl)
        columns += [
            F.when(fresh, chosen[name]).alias(feature_column(view, name))
            for name in rows.columns
            if name not in {*keys, *CLOCKS}
        ]
    return best.where(F.col("_asks") == 1).select(*columns)


def _offers(view: str, rows: DataFrame, keys: Sequence[str], delay: dt.timedelta) -> DataFrame:
    """View rows as offers: usable from the later of their two clocks on; a struct compares in the order of its fields."""
    values = [name for name in rows.columns if name not in {*keys, *CLOCKS}]
    return rows.select(
        *keys,
        F.greatest(F.col("event_time") + F.lit(delay), F.col("available_time")).alias("_usable"),
        F.lit(0).alias("_asks"),
        F.struct(*CLOCKS, *values).alias(f"_{view}"),
    )
