"""Which features each view has and which columns key its rows. Pure: standard library only, so recipes may import it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

WINDOWS = ("3h", "1d", "7d")

_OUTCOMES = tuple(
    f"{statistic}_{window}"
    for window in WINDOWS
    for statistic in ("departures", "departure_delay_mean", "arrival_delay_mean", "late_share", "cancelled_share")
)

FEATURES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "carrier": _OUTCOMES,
    "origin": _OUTCOMES,
    "weather": ("temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"),
    "congestion": (
        "scheduled_departures_next",
        "scheduled_departures_last_3h",
        "known_cancelled_last_3h",
        "known_late_last_3h",
    ),
})
"""View -> its features, in the order of the Parquet columns; all are float64."""

ENTITY_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "carrier": ("carrier",),
    "origin": ("origin",),
    "weather": ("origin",),
    "congestion": ("origin",),
})
"""View -> the columns that name its entity; all are strings."""


def feature_column(view: str, feature: str) -> str:
    """The training set's column of a view's feature, such as ``carrier__late_share_1d``."""
    return f"{view}__{feature}"


def feature_columns() -> tuple[str, ...]:
    """Every view feature as a column of the training set, view by view."""
    return tuple(feature_column(view, feature) for view, features in FEATURES.items() for feature in features)
