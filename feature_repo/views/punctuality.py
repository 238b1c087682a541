"""How flights that share a key have been doing lately, from departures and arrivals. Pure: DataFrames in, DataFrame out.

One set of features for every key that a flight carries: carrier, origin, destination, route (origin and destination) and
flight number (carrier and number). Windows of 3 h, 1 d and 7 d on available time, at the end of each hour (``w`` stands
for the window):

- ``departures_w``: flights that left (count)
- ``departure_delay_mean_w``: mean departure delay of those (minutes; negative is early)
- ``arrival_delay_mean_w``: mean arrival delay of the flights that arrived (minutes; diverted ones have none)
- ``late_share_w``: share that was late, cancelled or diverted, among flights whose outcome became known
- ``cancelled_share_w``: share cancelled, among flights that left or were cancelled

A window counts records by when they became known: one that is restated counts anew from then on, in place of the old one.

Means and shares are null when the window holds nothing to divide by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from feature_repo.catalogue import WINDOW_HOURS
from feature_repo.views import rolling
from feature_repo.views.rolling import Hours, ratio

KEYS = {"carrier": "STRING", "flight": "BIGINT", "origin": "STRING", "dest": "STRING"}
MEASURES = (
    "departed", "cancelled", "departure_delay", "departure_delays", "arrival_delay", "arrival_delays", "outcomes", "late",
)  # fmt: skip


def punctuality(views: Mapping[str, Sequence[str]], facts: DataFrame, hours: Hours) -> DataFrame:
    """Rows (view, carrier, flight, origin, dest, event_time, available_time, features) of the hours, for several views.

    ``views`` names the keys of each; a key that a view has not is null in its rows. One plan for all of them, because at
    an hour's size Spark spends its time on plans.
    """
    keyed = facts.selectExpr(*MEASURES, "since", "until", f"inline(array({', '.join(map(_entity, views.items()))}))")
    keys = ("view", *KEYS)
    counted = rolling.in_windows(keyed, keys, MEASURES, hours)
    longest = max(WINDOW_HOURS, key=lambda window: WINDOW_HOURS[window])
    alive = f"departed_{longest} + cancelled_{longest} + outcomes_{longest} > 0"
    return rolling.rows(counted, keys, features(), alive, hours)


def facts(departure: DataFrame, arrival: DataFrame, late_minutes: int) -> DataFrame:
    """What departures and arrivals add up to, with the keys of the flight and the hours [since, until) in which it counts.

    Both come with their hours, from ``rolling.versions``. A flight this late (minutes), or later, is late.
    """
    return _departures(departure).unionByName(_arrivals(arrival, late_minutes))


def features() -> dict[str, str]:
    """The features as SQL over the counted measures."""
    found: dict[str, str] = {}
    for window in WINDOW_HOURS:
        found[f"departures_{window}"] = f"departed_{window}"
        found[f"departure_delay_mean_{window}"] = ratio(f"departure_delay_{window}", f"departure_delays_{window}")
        found[f"arrival_delay_mean_{window}"] = ratio(f"arrival_delay_{window}", f"arrival_delays_{window}")
        found[f"late_share_{window}"] = ratio(f"late_{window}", f"outcomes_{window}")
        found[f"cancelled_share_{window}"] = ratio(f"cancelled_{window}", f"departed_{window} + cancelled_{window}")
    return found


def _entity(view: tuple[str, Sequence[str]]) -> str:
    name, keys = view
    columns = (f"'{key}', {key if key in keys else f'CAST(NULL AS {kind})'}" for key, kind in KEYS.items())
    return f"named_struct('view', '{name}', {', '.join(columns)})"


def _measured(known: DataFrame, measures: Mapping[str, str]) -> DataFrame:
    every = (f"CAST({measures.get(name, '0')} AS BIGINT) AS {name}" for name in MEASURES)
    return known.selectExpr(*KEYS, "since", "until", *every)


def _departures(known: DataFrame) -> DataFrame:
    return _measured(
        known,
        {
            "departed": "NOT cancelled",
            "cancelled": "cancelled",
            "departure_delay": "coalesce(round(departure_delay), 0)",  # whole minutes, so sums are exact
            "departure_delays": "departure_delay IS NOT NULL",
            "outcomes": "cancelled",
            "late": "cancelled",
        },
    )


def _arrivals(known: DataFrame, late_minutes: int) -> DataFrame:
    return _measured(
        known,
        {
            "arrival_delay": "coalesce(round(arrival_delay), 0)",
            "arrival_delays": "arrival_delay IS NOT NULL",
            "outcomes": "1",
            "late": f"diverted OR (arrival_delay IS NOT NULL AND arrival_delay >= {late_minutes})",
        },
    )
