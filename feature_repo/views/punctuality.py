"""How flights that share a key have been doing lately, from departures and arrivals. Pure: DataFrames in, DataFrame out.

One set of features for every key that a flight carries: carrier, origin, destination, route (origin and destination) and
flight number (carrier and number). Windows of 3 h, 1 d and 7 d on available time, at the end of each hour (``w`` stands
for the window):

- ``departures_w``: flights that left (count)
- ``departure_delay_mean_w``: mean departure delay of those (minutes; negative is early)
- ``arrival_delay_mean_w``: mean arrival delay of the flights that arrived (minutes; diverted ones have none)
- ``late_share_w``: share that was late, cancelled or diverted, among flights whose outcome became known
- ``cancelled_share_w``: share cancelled, among flights that left or were cancelled

Means and shares are null when the window holds nothing to divide by.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from feature_repo.catalogue import WINDOW_HOURS
from feature_repo.views import rolling
from feature_repo.views.rolling import Hours, ratio

KEYS = ("carrier", "flight", "origin", "dest")
MEASURES = (
    "departed", "cancelled", "departure_facts", "departure_delay", "departure_delays",
    "arrival_delay", "arrival_delays", "outcomes", "late",
)  # fmt: skip


def punctuality(keys: Sequence[str], facts: DataFrame, hours: Hours) -> DataFrame:
    """Rows (keys, event_time, available_time, features) of the hours, for a key that the ``facts`` below carry."""
    counted = rolling.in_windows(facts, keys, MEASURES, hours)
    longest = max(WINDOW_HOURS, key=lambda window: WINDOW_HOURS[window])
    alive = F.col(f"departure_facts_{longest}") + F.col(f"outcomes_{longest}") > 0
    return rolling.rows(counted, keys, features(), alive, hours)


def facts(departure: DataFrame, arrival: DataFrame, hours: Hours) -> DataFrame:
    """What departures and arrivals add up to, per flight's keys and the hours [since, until) in which it is known.

    Both come with their hours, from ``rolling.versions``.
    """
    every = _departures(departure).unionByName(_arrivals(arrival, hours.late_minutes))
    return every.groupBy(*KEYS, "since", "until").agg(*(F.sum(name).alias(name) for name in MEASURES))


def features() -> dict[str, Column]:
    """The features as expressions over the counted measures."""
    found: dict[str, Column] = {}
    for window in WINDOW_HOURS:
        found[f"departures_{window}"] = F.col(f"departed_{window}")
        found[f"departure_delay_mean_{window}"] = ratio(f"departure_delay_{window}", f"departure_delays_{window}")
        found[f"arrival_delay_mean_{window}"] = ratio(f"arrival_delay_{window}", f"arrival_delays_{window}")
        found[f"late_share_{window}"] = ratio(f"late_{window}", f"outcomes_{window}")
        found[f"cancelled_share_{window}"] = ratio(f"cancelled_{window}", f"departure_facts_{window}")
    return found


def _measured(known: DataFrame, measures: dict[str, Column]) -> DataFrame:
    every = (measures.get(name, F.lit(0)).cast("long").alias(name) for name in MEASURES)
    return known.select(*KEYS, "since", "until", *every)


def _departures(known: DataFrame) -> DataFrame:
    cancelled = F.col("cancelled").cast("long")
    return _measured(
        known,
        {
            "departed": 1 - cancelled,
            "cancelled": cancelled,
            "departure_facts": F.lit(1),
            "departure_delay": F.coalesce(F.round("departure_delay"), F.lit(0)),  # whole minutes, so sums are exact
            "departure_delays": F.col("departure_delay").isNotNull(),
            "outcomes": cancelled,
            "late": cancelled,
        },
    )


def _arrivals(known: DataFrame, late_minutes: int) -> DataFrame:
    late = F.col("diverted") | (F.col("arrival_delay").isNotNull() & (F.col("arrival_delay") >= late_minutes))
    return _measured(
        known,
        {
            "arrival_delay": F.coalesce(F.round("arrival_delay"), F.lit(0)),
            "arrival_delays": F.col("arrival_delay").isNotNull(),
            "outcomes": F.lit(1),
            "late": late,
        },
    )
