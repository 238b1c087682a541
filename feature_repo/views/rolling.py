"""Windows over facts as they were known, hour by hour. Pure: DataFrames in, DataFrames out.

Every count is an interval: a fact counts from the hour in which it became known until it leaves the window or a
restatement replaces it. Sums over intervals are running sums of +value and -value, exact because all are integers.
Hours are whole numbers, counted since 1970 UTC; hour h ends at h * 3600 s, and it may use what was known by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from feature_repo.catalogue import WINDOW_HOURS
from feature_repo.contract import BuildSpec

SECONDS = 3600
NEVER = 1 << 40
REPEAT_HOURS = 24  # a live entity's row is written again this often, so that ttl never hides it
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
    def of(cls, spec: BuildSpec) -> Hours:
        """The hours that a build asks for."""
        first = int(spec.calendar.starts(spec.calendar.first).timestamp()) // SECONDS + 1
        start, end = (int(instant.timestamp()) // SECONDS for instant in (spec.start, spec.end))
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
    """Rows (keys, hour, ``<measure>_<window>``): sums over each window on available time, from a key's first change on."""
    sums = facts.groupBy(*keys, "since", "until").agg(*(F.sum(name).alias(name) for name in measures))
    begins = F.struct(F.col("since").alias("hour"), *(F.lit(1).alias(window) for window in WINDOW_HOURS))
    ends = (
        F.struct(
            F.least("until", F.col("since") + width).alias("hour"),
            *(F.lit(-1 if window == closing else 0).alias(window) for window in WINDOW_HOURS),
        )
        for closing, width in WINDOW_HOURS.items()
    )
    changes = {
        f"{name}_{window}": F.col(f"edge.{window}") * F.col(name) for window in WINDOW_HOURS for name in measures
    }
    return running(sums.withColumn("edge", F.explode(F.array(begins, *ends))), keys, changes, hours)


def levels(intervals: DataFrame, keys: Sequence[str], measures: Sequence[str], hours: Hours) -> DataFrame:
    """Rows (keys, hour, measures): the sum of the intervals [lo, hi) that cover each hour, from a key's first change on."""
    edges = F.array(
        F.struct(F.col("lo").alias("hour"), F.lit(1).alias("sign")),
        F.struct(F.col("hi").alias("hour"), F.lit(-1).alias("sign")),
    )
    changes = {name: F.col("edge.sign") * F.col(name) for name in measures}
    return running(intervals.where("hi > lo").withColumn("edge", F.explode(edges)), keys, changes, hours)


def running(edges: DataFrame, keys: Sequence[str], changes: Mapping[str, Column], hours: Hours) -> DataFrame:
    """Rows (keys, hour, measures) for the hours start to end: running sums of what changes at each ``edge.hour``."""
    sums = (
        edges
        .where(F.col("edge.hour") <= hours.end)
        .groupBy(*keys, F.greatest("edge.hour", F.lit(hours.start)).alias("hour"))
        .agg(*(F.sum(change).alias(name) for name, change in changes.items()))
    )
    order = Window.partitionBy(*keys).orderBy("hour")
    totals = sums.select(
        *keys,
        "hour",
        (F.coalesce(F.lead("hour").over(order), F.lit(hours.end + 1)) - 1).alias("through"),
        *(F.sum(name).over(order.rowsBetween(Window.unboundedPreceding, 0)).alias(name) for name in changes),
    )
    return totals.withColumn("hour", F.explode(F.sequence("hour", "through"))).drop("through")


def rows(
    counted: DataFrame, keys: Sequence[str], features: Mapping[str, Column], alive: Column, hours: Hours
) -> DataFrame:
    """The view's rows: an hour is written when the entity's values changed, when it appears or ends, and once a day.

    All of that depends on this hour and the one before only, so that building hour by hour gives the same rows.
    """
    order = Window.partitionBy(*keys).orderBy("hour")
    valued = counted.select(
        *keys,
        "hour",
        alive.alias("alive"),
        F.struct(*(column.cast("double").alias(name) for name, column in features.items())).alias("values"),
    )
    compared = valued.select(
        "*",
        F.lag("alive", default=False).over(order).alias("lived"),
        (~F.col("values").eqNullSafe(F.lag("values").over(order))).alias("changed"),
    )
    repeats = (F.col("hour") % REPEAT_HOURS == REPEAT_AT) | (F.col("hour") == hours.first)
    written = (F.col("alive") & (repeats | ~F.col("lived") | F.col("changed"))) | (F.col("lived") & ~F.col("alive"))
    end = F.timestamp_seconds(F.col("hour") * SECONDS)
    return compared.where((F.col("hour") > hours.start) & written).select(
        *keys, end.alias("event_time"), end.alias("available_time"), "values.*"
    )


def ratio(numerator: str, denominator: str) -> Column:
    """One integer column over another as float64; null when there is nothing to divide by."""
    return F.when(F.col(denominator) > 0, F.col(numerator).cast("double") / F.col(denominator))
