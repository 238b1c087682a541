"""How crowded each airport of origin is, from its schedule and what has become of it. Pure: DataFrames in and out.

Key ``origin``, at the end h of each hour, all counts of flights:

- ``scheduled_departures_next``: scheduled to leave in (h + 1 h, h + 3 h]
- ``scheduled_departures_last_3h``: scheduled to leave in (h - 3 h, h]
- ``known_cancelled_last_3h``: of those, known at h to be cancelled
- ``known_late_last_3h``: of those, known at h to have left late

A flight asks 2 h before it leaves, at T, and gets the row of the last whole hour h <= T < h + 1 h: it leaves in
[h + 2 h, h + 3 h), so the first count always holds its own hour, and the flight itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from feature_repo.catalogue import CONGESTION_HOURS, FEATURES, WINDOW_HOURS
from feature_repo.views import rolling
from feature_repo.views.rolling import Hours

NEAREST_HOURS = 1
KNOWN = "known_flights"
MEASURES = (*FEATURES["congestion"], KNOWN)


def congestion(schedule: DataFrame, departure: DataFrame, hours: Hours) -> DataFrame:
    """Rows (origin, event_time, available_time, features) of the hours; both inputs from ``rolling.versions``."""
    upcoming, recent, cancelled, late = FEATURES["congestion"]
    week = max(WINDOW_HOURS.values())  # an origin lives from its next flights on, until a week after its last
    was_late = f"NOT cancelled AND departure_delay IS NOT NULL AND departure_delay >= {hours.late_minutes}"
    planned = {
        upcoming: (-CONGESTION_HOURS, -NEAREST_HOURS),
        recent: (0, CONGESTION_HOURS),
        KNOWN: (-CONGESTION_HOURS, week),
    }
    became = {cancelled: (0, CONGESTION_HOURS), late: (0, CONGESTION_HOURS)}
    intervals = _counted(schedule, planned, {}).unionByName(
        _counted(departure, became, {cancelled: "cancelled", late: was_late})
    )
    counted = rolling.levels(intervals, ["origin"], MEASURES, hours)
    return rolling.rows(counted, ["origin"], {name: name for name in FEATURES["congestion"]}, f"{KNOWN} > 0", hours)


def _counted(facts: DataFrame, spans: Mapping[str, tuple[int, int]], conditions: Mapping[str, str]) -> DataFrame:
    """Intervals [lo, hi) in which flights count: hours [begin, end) around their scheduled departure, while known."""
    counts = {name: f"sum(CAST({conditions.get(name, '1')} AS BIGINT))" for name in spans}
    intervals = (
        f"named_struct('lo', greatest(since, due + {begin}), 'hi', least(until, due + {end}), "
        + ", ".join(f"'{one}', {one if one == name else '0L'}" for one in MEASURES)
        + ")"
        for name, (begin, end) in spans.items()
    )
    return (
        facts
        .groupBy("origin", rolling.hour_of(F.col("scheduled_departure")).alias("due"), "since", "until")
        .agg(*(F.expr(count).alias(name) for name, count in counts.items()))
        .selectExpr("origin", f"inline(array({', '.join(intervals)}))")
    )
