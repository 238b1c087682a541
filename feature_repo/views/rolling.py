"""Windows over facts as they were known, hour by hour. Pure: DataFrames in, DataFrames out.

Every count is an interval: a fact counts from the hour in which it became known until it leaves the window or a
restatement replaces it. Sums over intervals are running sums of +value and -value, exact because all are integers.
Hours are whole numbers, counted since 1970 UTC; hour h ends at h * 3600 s, and it may use what was known by then.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from feature_repo.catalogue import WINDOW_HOURS
from feature_repo.contract import BuildSpec

SECONDS = 3600
NEVER = 1 << 40
REPEAT_HOURS = 24  # a live entity's row is written again this often, so that ttl never hides it
CLOCKS = ("event_time", "available_time")
REPEAT_AT = 9  # 09:00 UTC, when a New York service day begins in winter


@dataclass(frozen=True)
class Hours:
    """Which hours to write: those that end in (start, end], and none before the first of the history; and by which rules."""

    first: int
    start: int
    end: int
    late_minutes: int
    late_days: int

    @classmethod
    def of(cls, spec: BuildSpec, after: dt.datetime, until: dt.datetime) -> Hours:
        """The hours that end in (after, until], under the rules of a build."""
        first = int(spec.calendar.starts(spec.calendar.first).timestamp()) // SECONDS + 1
        start, end = (int(instant.timestamp()) // SECONDS for instant in (after, until))
        return cls(first, max(start, first - 1), end, spec.late_minutes, spec.late_days)


def hour_of(instant: Column) -> Column:
    """The first hour whose end has this instant behind it (or at it)."""
    return F.floor((F.unix_micros(instant) + F.lit(SECONDS * 10**6 - 1)) / F.lit(SECONDS * 10**6)).cast("long")


def versions(facts: DataFrame, late_days: int) -> DataFrame:
    """Each version of each fact with the hours [since, until) in which it is the one that is known.

    A version that became known more than ``late_days`` after its day is not used: a build reads a bounded past.
    """
    timely = facts.where(
        F.col("available_time") < F.col("scheduled_departure") + F.make_dt_interval(F.lit(late_days + 1))
    )
    following = F.lead("available_time").over(Window.partitionBy("flight_id").orderBy("available_time"))
    return timely.select(
        "*",
        hour_of(F.col("available_time")).alias("since"),
        F.coalesce(hour_of(following), F.lit(NEVER)).alias("until"),
    )


def in_windows(facts: DataFrame, keys: Sequence[str], measures: Sequence[str], hours: Hours) -> DataFrame:
    """Rows (keys, hour, next_hour, ``<measure>_<window>``): sums over each window on available time, from ``running``."""
    sums = facts.groupBy(*keys, "since", "until").agg(*(F.sum(name).alias(name) for name in measures))
    edges = [_edge("since", dict.fromkeys(WINDOW_HOURS, 1))]
    edges += (_edge(f"least(until, since + {width})", {window: -1}) for window, width in WINDOW_HOURS.items())
    changes = {f"{name}_{window}": f"edge.`{window}` * {name}" for window in WINDOW_HOURS for name in measures}
    return running(sums.selectExpr("*", f"explode(array({', '.join(edges)})) AS edge"), keys, changes, hours)


def _edge(hour: str, signs: Mapping[str, int]) -> str:
    """An hour at which a fact enters windows (1) or leaves them (-1)."""
    inside = ", ".join(f"'{window}', {signs.get(window, 0)}" for window in WINDOW_HOURS)
    return f"named_struct('hour', {hour}, {inside})"


def levels(intervals: DataFrame, keys: Sequence[str], measures: Sequence[str], hours: Hours) -> DataFrame:
    """Rows (keys, hour, next_hour, measures): the sum of the intervals [lo, hi) that cover an hour, from ``running``."""
    edges = "explode(array(named_struct('hour', lo, 'sign', 1), named_struct('hour', hi, 'sign', -1))) AS edge"
    changes = {name: f"edge.sign * {name}" for name in measures}
    return running(intervals.where("hi > lo").selectExpr("*", edges), keys, changes, hours)


def running(edges: DataFrame, keys: Sequence[str], changes: Mapping[str, str], hours: Hours) -> DataFrame:
    """Rows (keys, hour, next_hour, measures): running sums of what changes at each ``edge.hour``, for [hour, next_hour).

    One row per key and hour in which something changes; what changed before ``hours.start`` is put together there.
    """
    sums = (
        edges
        .where(f"edge.hour <= {hours.end}")
        .groupBy(*keys, F.expr(f"greatest(edge.hour, {hours.start})").alias("hour"))
        .agg(*(F.expr(f"sum({change})").alias(name) for name, change in changes.items()))
    )
    order = f"PARTITION BY {', '.join(keys)} ORDER BY hour"
    return sums.selectExpr(
        *keys,
        "hour",
        f"coalesce(lead(hour) OVER ({order}), {hours.end + 1}) AS next_hour",
        *(f"sum({name}) OVER ({order} ROWS UNBOUNDED PRECEDING) AS {name}" for name in changes),
    )


def rows(counted: DataFrame, keys: Sequence[str], features: Mapping[str, str], alive: str, hours: Hours) -> DataFrame:
    """The view's rows: an hour is written when the entity's values changed, when it appears or ends, and once a day.

    All of that depends on this hour and the one before only, so that building hour by hour gives the same rows. Between
    two hours of change only the repeats are written, so no other hour is looked at. ``features`` and ``alive`` are SQL.
    """
    order = f"PARTITION BY {', '.join(keys)} ORDER BY hour"
    values = ", ".join(f"'{name}', CAST({feature} AS DOUBLE)" for name, feature in features.items())
    written = (
        f"explode(array_union(IF(turned, array(hour), array()), IF(alive, {_repeats(hours)}, array()))) AS written"
    )
    return (
        counted
        .selectExpr(*keys, "hour", "next_hour", f"{alive} AS alive", f"named_struct({values}) AS values")
        .selectExpr(
            "*",
            f"lag(alive, 1, false) OVER ({order}) AS lived",
            f"NOT (values <=> lag(values) OVER ({order})) AS changed",
        )
        .selectExpr("*", "(alive AND (changed OR NOT lived)) OR (lived AND NOT alive) AS turned")
        .selectExpr(*keys, "values", written)
        .where(f"written > {hours.start}")
        .selectExpr(*keys, *(f"timestamp_seconds(written * {SECONDS}) AS {clock}" for clock in CLOCKS), "values.*")
    )


def _repeats(hours: Hours) -> str:
    """The hours in [hour, next_hour) in which a live entity is written whatever its values: once a day, and the very first."""
    following = f"hour + pmod({REPEAT_AT} - hour, {REPEAT_HOURS})"
    daily = f"filter(sequence({following}, next_hour + {REPEAT_HOURS}, {REPEAT_HOURS}L), at -> at < next_hour)"
    opening = f"filter(array({hours.first}L), at -> at >= hour AND at < next_hour)"
    return f"array_union({daily}, {opening})"


def ratio(numerator: str, denominator: str) -> str:
    """One integer column over another as float64; null when there is nothing to divide by."""
    return f"IF({denominator} > 0, CAST({numerator} AS DOUBLE) / ({denominator}), NULL)"
