"""Which views there are, which columns key their rows, and what each feature means. Pure: standard library only.

Recipes, the gateway and the docs read this; the code that computes a view is ``feature_repo/views/<view>.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

KeyType = Literal["string", "int64"]
WINDOW_HOURS = {"3h": 3, "1d": 24, "7d": 168}
CONGESTION_HOURS = 3
_SPANS = {"3h": "3 hours", "1d": "day", "7d": "week"}


@dataclass(frozen=True)
class Feature:
    """One column of a view, float64, or one value of a request; null when nothing is known."""

    name: str
    unit: str
    meaning: str
    window: str = ""
    kind: Literal["float64", "string"] = "float64"


@dataclass(frozen=True)
class View:
    """One row per entity per closed hour, when it changed; ``keys`` name its entity, column -> type."""

    name: str
    keys: Mapping[str, KeyType]
    features: tuple[Feature, ...]
    meaning: str
    ttl: dt.timedelta = dt.timedelta(days=7)
    delay: dt.timedelta = dt.timedelta(0)
    owner: str = "features@perennial.example"


def _punctuality(whose: str) -> tuple[Feature, ...]:
    """What ``views/punctuality.py`` computes for any key of a flight: three windows of five statistics."""
    statistics = (
        ("departures", "flights", "Flights of {whose} that left in the last {span}."),
        ("departure_delay_mean", "minutes", "Mean departure delay of those that left in the last {span}; early is negative."),
        ("arrival_delay_mean", "minutes", "Mean arrival delay of those that arrived in the last {span}; early is negative."),
        ("late_share", "share", "Late, cancelled or diverted, of those whose outcome became known in the last {span}."),
        ("cancelled_share", "share", "Cancelled, of those that left or were cancelled in the last {span}."),
    )  # fmt: skip
    return tuple(
        Feature(f"{name}_{window}", unit, text.format(whose=whose, span=_SPANS[window]), f"last {_SPANS[window]}")
        for window in WINDOW_HOURS
        for name, unit, text in statistics
    )


VIEWS: Mapping[str, View] = MappingProxyType({
    view.name: view
    for view in (
        View(
            "carrier",
            {"carrier": "string"},
            _punctuality("the carrier"),
            "How the carrier's flights fared in the last 3 hours, day and week, as known at the hour's end.",
        ),
        View(
            "origin",
            {"origin": "string"},
            _punctuality("the origin"),
            "How the origin's flights fared in the last 3 hours, day and week, as known at the hour's end.",
        ),
        View(
            "destination",
            {"dest": "string"},
            _punctuality("the destination"),
            "How flights to the destination fared in the last 3 hours, day and week, as known at the hour's end.",
        ),
        View(
            "route",
            {"origin": "string", "dest": "string"},
            _punctuality("the route"),
            "How flights from the origin to the destination fared in the last 3 hours, day and week.",
        ),
        View(
            "flight_number",
            {"carrier": "string", "flight": "int64"},
            _punctuality("this number"),
            "How the flights of this carrier and number fared in the last 3 hours, day and week: their own history.",
        ),
        View(
            "weather",
            {"origin": "string"},
            (
                Feature("temp", "degrees Fahrenheit", "Air temperature at the hour observed.", "hour observed"),
                Feature("dewp", "degrees Fahrenheit", "Dew point at the hour observed.", "hour observed"),
                Feature("humid", "percent", "Relative humidity at the hour observed.", "hour observed"),
                Feature("wind_speed", "miles per hour", "Mean wind speed at the hour observed.", "hour observed"),
                Feature("wind_gust", "miles per hour", "Gusts at the hour observed; null when there were none.", "hour observed"),
                Feature("precip", "inches", "Precipitation in the hour observed.", "hour observed"),
                Feature("pressure", "millibars", "Air pressure at sea level at the hour observed.", "hour observed"),
                Feature("visib", "miles", "Visibility at the hour observed.", "hour observed"),
            ),
            "What the origin's weather station observed; known 20 minutes after its hour.",
        ),
        View(
            "congestion",
            {"origin": "string"},
            (
                Feature("scheduled_departures_next", "flights", "Scheduled to leave in the second and third hour ahead.", "1 to 3 hours ahead"),
                Feature("scheduled_departures_last_3h", "flights", "Scheduled to leave in the last 3 hours.", "last 3 hours"),
                Feature("known_cancelled_last_3h", "flights", "Of those of the last 3 hours, known to be cancelled.", "last 3 hours"),
                Feature("known_late_last_3h", "flights", "Of those of the last 3 hours, known to have left late.", "last 3 hours"),
            ),
            "How much is scheduled at the origin around the hour, and what is already known to go wrong.",
        ),
    )
})  # fmt: skip

REQUEST_FEATURES = (
    Feature("flight__distance", "miles", "Great-circle distance."),
    Feature("flight__duration_minutes", "minutes", "Scheduled arrival minus scheduled departure."),
    Feature("flight__hour", "hours", "Scheduled departure on New York's clock, minutes as a fraction."),
    Feature("flight__carrier", "code", "The airline.", kind="string"),
    Feature("flight__origin", "code", "The airport of departure.", kind="string"),
    Feature("flight__dest", "code", "The airport of arrival.", kind="string"),
    Feature("flight__weekday", "0 to 6", "Weekday of the scheduled departure in New York; 0 is Monday.", kind="string"),
    Feature("station__origin", "code", "The airport of the weather station.", kind="string"),
    Feature("station__hour", "0 to 23", "The hour asked about on New York's clock.", kind="string"),
)
"""What ``views/flight.py`` and ``views/station.py`` derive from a request, in the training set's columns; no view holds them."""

FEATURES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    name: tuple(feature.name for feature in view.features) for name, view in VIEWS.items()
})
"""View -> its features, in the order of the Parquet columns; all are float64."""

ENTITY_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType({name: tuple(view.keys) for name, view in VIEWS.items()})
"""View -> the columns that name its entity."""


def feature_column(view: str, feature: str) -> str:
    """The training set's column of a view's feature, such as ``carrier__late_share_1d``."""
    return f"{view}__{feature}"


def feature_columns() -> tuple[str, ...]:
    """Every view feature as a column of the training set, view by view."""
    return tuple(feature_column(view, feature) for view, features in FEATURES.items() for feature in features)
