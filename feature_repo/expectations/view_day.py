"""What days of the views must look like: schema, volume, nulls, ranges, keys, freshness, and rules across columns. Pure.

A feature's range follows from its unit in the catalogue, so a new feature is checked as soon as it is declared. The
weather only warns, as in the lake.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pyarrow as pa

from feature_repo.catalogue import ENTITY_KEYS, FEATURES, VIEWS, WINDOW_HOURS, Feature
from feature_repo.contract import CheckPolicy
from feature_repo.expectations import daily
from feature_repo.expectations.daily import Daily
from feature_repo.expectations.raw_day import (
    ARRIVAL_DELAY,
    DEPARTURE_DELAY,
    IN_ORDER,
    KNOWN_IN_ORDER,
    WEATHER_KNOWN,
    WEATHER_RANGES,
)
from feature_repo.expectations.rules import Rule, Severity, TableSuite, between, columns, holds, known, rows, unique
from feature_repo.tables import VIEW_SCHEMAS

TABLES = tuple(VIEWS)
WEATHER = "weather"
UNIT_RANGES: Mapping[str, tuple[float, float | None]] = {
    "share": (0, 1),
    "flights": (0, None),
    "minutes": (min(DEPARTURE_DELAY[0], ARRIVAL_DELAY[0]), max(DEPARTURE_DELAY[1], ARRIVAL_DELAY[1])),
    "percent": (0, 100),
}
"""Unit -> the values that it can take; a weather reading is held to the lake's own range."""
COUNTED = "flights"
KNOWN = 0.9  # least share of a weather reading that is known, as in the lake


def suites(policy: CheckPolicy, days: int) -> tuple[TableSuite, ...]:
    """The suites of the views, and of their days as a whole, for ``days`` days."""
    return (*(_suite(view, days) for view in VIEWS), daily.suite(daily_checks(policy), days))


def daily_checks(policy: CheckPolicy) -> dict[str, Daily]:
    """What is asked of each view's days."""
    return {
        view: Daily(policy.weather_fresh if view == WEATHER else policy.views_fresh, _severity(view), inside=True)
        for view in VIEWS
    }


def value_range(feature: Feature) -> tuple[float, float | None]:
    """The least and the most that a feature can be; raises LookupError for a unit that nobody has given limits."""
    if feature.name in WEATHER_RANGES:
        return WEATHER_RANGES[feature.name]
    if feature.unit not in UNIT_RANGES:
        raise LookupError(
            f"{feature.name}: unit '{feature.unit}' has no limits; add it to UNIT_RANGES, it has {list(UNIT_RANGES)}"
        )
    return UNIT_RANGES[feature.unit]


def feature_rules(view: str, prefix: str = "") -> list[Rule]:
    """One range per feature of a view, of columns that begin with ``prefix``."""
    return [
        between(f"{prefix}{feature.name}", *value_range(feature), severity=_severity(view))
        for feature in VIEWS[view].features
    ]


def _severity(view: str) -> Severity:
    return "warning" if view == WEATHER else "critical"


def _suite(view: str, days: int) -> TableSuite:
    key = (*ENTITY_KEYS[view], *IN_ORDER)
    counts = [feature.name for feature in VIEWS[view].features if feature.unit == COUNTED]
    readings = [name for name in FEATURES[view] if view == WEATHER and name in WEATHER_KNOWN]
    rules = (
        *columns(VIEW_SCHEMAS[view].append(pa.field("partition", pa.date32()))),
        rows(days, severity=_severity(view)),
        *known((*ENTITY_KEYS[view], *IN_ORDER, *counts)),
        *known(readings, share=KNOWN, severity="warning"),
        *feature_rules(view),
        unique(*key),
        holds("known_in_order", "available_time", KNOWN_IN_ORDER, IN_ORDER),
        *_across(view),
    )
    return TableSuite(view, (*ENTITY_KEYS[view], "event_time"), rules)


def _across(view: str) -> list[Rule]:
    """A count over a longer window is no less than over a shorter one; parts are no more than the whole."""
    names = FEATURES[view]
    windows = sorted(WINDOW_HOURS, key=lambda window: WINDOW_HOURS[window])
    counts = [f"departures_{window}" for window in windows]
    if set(counts) <= set(names):
        condition = " AND ".join(f"{one} <= {two}" for one, two in pairwise(counts))
        return [holds("windows_grow", counts[0], condition, counts)]
    parts = ("known_cancelled_last_3h", "known_late_last_3h", "scheduled_departures_last_3h")
    if set(parts) <= set(names):
        # A flight may leave before its schedule row is known, and rows are history as it was known: nobody can mend them.
        condition = f"{parts[0]} + {parts[1]} <= {parts[2]}"
        return [holds("parts_of_the_whole", parts[2], condition, parts, severity="warning")]
    return []
