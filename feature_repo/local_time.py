"""New York's clock at UTC instants. Pure; numpy only, the gateway runs it too."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

_ZONE = ZoneInfo("America/New_York")


def local(instants: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """New York's clock at UTC instants [B]; the offset is looked up once per hour that occurs."""
    hours, which = np.unique(instants.astype("datetime64[h]"), return_inverse=True)
    offsets = np.array([_offset(hour) for hour in hours], dtype="timedelta64[s]")
    return instants + offsets[which] if len(hours) else instants


def _offset(hour: np.datetime64) -> np.timedelta64:
    if np.isnat(hour):
        return np.timedelta64(0, "s")
    instant = dt.datetime.fromtimestamp(int(hour.astype("datetime64[s]").astype(np.int64)), dt.UTC)
    offset = instant.astimezone(_ZONE).utcoffset()
    return np.timedelta64(int((offset or dt.timedelta(0)).total_seconds()), "s")
