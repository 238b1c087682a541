"""The as-of join: to each entity row the newest view row that was usable at its instant. Pure: DataFrames in and out.

A view row is usable at T when event_time <= T - delay, available_time <= T and event_time > T - ttl. Among usable rows the
latest event_time wins, then the latest available_time, then the values themselves (a null below every number, NaN above),
so the outcome never depends on the order of the input. Rows out = rows in: nothing usable gives nulls, equal entity rows
all stay, and a null in a key matches nothing, not even another null.

The plan is one shuffle, one sort and one pass per set of keys, whatever the number of views that share it; all three
spill. docs/adr/0007-the-as-of-join.md has the plans that were measured beside it, and how it grows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from feature_repo.catalogue import feature_column

EVENT = "event_time"
AVAILABLE = "available_time"
AT = "at"
AGE = "age"


@dataclass(frozen=True)
class Offers:
    """The rows of one view, and from when to when each may be used.

    ``rows`` hold ``keys`` (named and typed as in the entity rows), event_time, available_time (both timestamps) and the
    values. A row whose key or clock is null is never used. ``ttl`` None: a row never expires.
    """

    rows: DataFrame
    keys: tuple[str, ...]
    delay: dt.timedelta = dt.timedelta(0)
    ttl: dt.timedelta | None = None

    @property
    def values(self) -> list[str]:
        """The columns that are neither key nor clock."""
        return [name for name in self.rows.columns if name not in {*self.keys, EVENT, AVAILABLE}]


def join(entities: DataFrame, views: Mapping[str, Offers], *, ages: bool = False) -> DataFrame:
    """Entity rows (with the instant T in ``at``, a timestamp) plus ``<view>__<value>`` for each value of each view.

    With ``ages`` also ``<view>__age``: T minus the event_time of the row used, in seconds (double), null where none was.
    """
    groups: dict[tuple[str, ...], dict[str, Offers]] = {}
    for view, offers in views.items():
        groups.setdefault(tuple(sorted(offers.keys)), {})[view] = offers
    joined = entities
    # the finest keys come last, since the pieces of the result are theirs: three airports would make three pieces of any
    # result, however large; of equally fine ones the widest, since what one shuffle adds the next must carry
    for keys, shared in sorted(groups.items(), key=_order):
        joined = _join_shared(joined, shared, keys)
    found = [name for view, offers in views.items() for name in output_columns(view, offers, ages=ages)]
    return joined.select(*entities.columns, *found)


def _order(group: tuple[tuple[str, ...], Mapping[str, Offers]]) -> tuple[int, int, tuple[str, ...]]:
    keys, views = group
    return len(keys), sum(len(offers.values) for offers in views.values()), keys


def output_columns(view: str, offers: Offers, *, ages: bool = False) -> list[str]:
    """The columns that the join adds for a view."""
    return [feature_column(view, name) for name in (*offers.values, *([AGE] if ages else []))]


def _join_shared(entities: DataFrame, views: Mapping[str, Offers], keys: Sequence[str]) -> DataFrame:
    stream = entities.select("*", F.col(AT).alias("_usable"), F.lit(1).alias("_asks"))
    for view, offers in views.items():
        stream = stream.unionByName(_offered(view, offers), allowMissingColumns=True)
    # rows that become usable at T itself stand before those that ask at T
    seen = Window.partitionBy(*keys).orderBy("_usable", "_asks").rowsBetween(Window.unboundedPreceding, 0)
    best = stream.select("*", *(F.max(f"_{view}").over(seen).alias(f"_best_{view}") for view in views))
    columns: list[Column] = [F.col(name) for name in entities.columns]
    for view, offers in views.items():
        columns += _chosen(view, offers)
    return best.where(F.col("_asks") == 1).select(*columns)


def _offered(view: str, offers: Offers) -> DataFrame:
    """View rows as offers: usable from the later of their two clocks on; a struct compares in the order of its fields."""
    usable = F.greatest(F.col(EVENT) + F.lit(offers.delay), F.col(AVAILABLE))
    return offers.rows.dropna(subset=[*offers.keys, EVENT, AVAILABLE]).select(
        *offers.keys,
        usable.alias("_usable"),
        F.lit(0).alias("_asks"),
        F.struct(EVENT, AVAILABLE, *offers.values).alias(f"_{view}"),
    )


def _chosen(view: str, offers: Offers) -> list[Column]:
    chosen, at = F.col(f"_best_{view}"), F.col(AT)
    alive = F.lit(True) if offers.ttl is None else chosen[EVENT] > at - F.lit(offers.ttl)  # noqa: FBT003
    columns = {name: chosen[name] for name in offers.values}
    columns[AGE] = (F.unix_micros(at) - F.unix_micros(chosen[EVENT])) / F.lit(1_000_000.0)
    return [F.when(alive, value).alias(feature_column(view, name)) for name, value in columns.items()]
