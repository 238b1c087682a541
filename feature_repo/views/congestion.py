"""How crowded each airport of origin is, from its schedule and what has become of it. Pure: DataFrames in, DataFrame out.

Key ``origin``, at the end h of each hour, all counts of flights:

- ``scheduled_departures_next``: scheduled to leave in (h + 1 h, h + 3 h]
- ``scheduled_departures_last_3h``: scheduled to leave in (h - 3 h, h]
- ``known_cancelled_last_3h``: of those, known at h to be cancelled
- ``known_late_last_3h``: of those, known at h to have left late
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from feature_repo.catalogue import CONGESTION_HOURS, FEATURES, WINDOW_HOURS
from feature_repo.views import rolling
from feature_repo.views.rolling import Hours

NEAREST_HOURS = 1
KNOWN = "known_flights"


def congestion(schedule: DataFrame, departure: DataFrame, hours: Hours) -> DataFrame:
    """Rows (origin, event_time, available_time, features) of the hours; both inputs from ``rolling.versions``."""
    upcoming, recent, cancelled, late = FEATURES["congestion"]
    around = max(WINDOW_HOURS.values())  # an origin lives while a flight of its schedule is this near
    delay = F.col("departure_delay")
    was_late = ~F.col("cancelled") & delay.isNotNull() & (delay >= hours.late_minutes)
    intervals = (
        _counted(schedule, upcoming, -CONGESTION_HOURS, -NEAREST_HOURS)
        .unionByName(_counted(schedule, recent, 0, CONGESTION_HOURS))
        .unionByName(_counted(schedule, KNOWN, -around, around))
        .unionByName(_counted(departure.where("cancelled"), cancelled, 0, CONGESTION_HOURS))
        .unionByName(_counted(departure.where(was_late), late, 0, CONGESTION_HOURS))
    )
    measures = (*FEATURES["congestion"], KNOWN)
    counted = rolling.levels(intervals, ["origin"], measures, hours)
    features: dict[str, Column] = {name: F.col(name) for name in FEATURES["congestion"]}
    return rolling.rows(counted, ["origin"], features, F.col(KNOWN) > 0, hours)


def _counted(facts: DataFrame, measure: str, begin: int, end: int) -> DataFrame:
    """Intervals in which a flight counts: hours [begin, end) around its scheduled departure, while it is known."""
    scheduled = rolling.hour_of(F.col("scheduled_departure"))
    return (
        facts
        .groupBy("origin", scheduled.alias("hour"), "since", "until")
        .agg(F.count(F.lit(1)).alias("flights"))
        .select(
            "origin",
            F.greatest("since", F.col("hour") + begin).alias("lo"),
            F.least("until", F.col("hour") + end).alias("hi"),
            *(
                (F.col("flights") if name == measure else F.lit(0)).cast("long").alias(name)
                for name in (*FEATURES["congestion"], KNOWN)
            ),
        )
    )
