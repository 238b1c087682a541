"""Features of the flight that is asked about, from the request alone. Pure; numpy only, the gateway runs it too.

- ``flight__distance``: great-circle distance (miles)
- ``flight__hour``: scheduled departure on New York's clock (hours, 0 <= hour < 24, minutes as fraction)
- ``flight__weekday``: its weekday there, '0' (Monday) to '6'
- ``flight__duration_minutes``: scheduled arrival minus scheduled departure (minutes)
- ``flight__carrier``, ``flight__origin``, ``flight__dest``: as asked
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from feature_repo.local_time import local as on_the_clock

REQUEST = ("carrier", "flight", "origin", "dest", "distance", "scheduled_departure", "scheduled_arrival")
NUMERIC = ("flight__distance", "flight__hour", "flight__duration_minutes")
CATEGORICAL = ("flight__carrier", "flight__origin", "flight__dest", "flight__weekday")

_WEEKDAYS = np.array([str(day) for day in range(7)], dtype=object)
_EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday


def derive(columns: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Features [B] of requests [B]; ``scheduled_*`` are datetime64[us] in UTC. A missing time gives NaN and None."""
    departure = np.asarray(columns["scheduled_departure"], dtype="datetime64[us]")
    arrival = np.asarray(columns["scheduled_arrival"], dtype="datetime64[us]")
    known = ~np.isnat(departure)
    local = on_the_clock(departure)
    day = local.astype("datetime64[D]")
    weekday = np.full(len(local), None, dtype=object)
    weekday[known] = _WEEKDAYS[(day[known].astype(np.int64) + _EPOCH_WEEKDAY) % 7]
    return {
        "flight__distance": np.asarray(columns["distance"], dtype=np.float64),
        "flight__hour": (local - day) / np.timedelta64(1, "h"),
        "flight__weekday": weekday,
        "flight__duration_minutes": (arrival - departure) / np.timedelta64(1, "m"),
        **{f"flight__{name}": np.asarray(columns[name], dtype=object) for name in ("carrier", "origin", "dest")},
    }
