"""Features of the hour at a weather station that is asked about, from the request alone. Pure; numpy only, the gateway runs it too.

- ``station__origin``: the airport, as asked
- ``station__hour``: the hour asked about on New York's clock, '0' to '23'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from feature_repo.local_time import local

REQUEST = ("origin", "hour")
NUMERIC: tuple[str, ...] = ()
CATEGORICAL = ("station__origin", "station__hour")

HOURS = tuple(str(hour) for hour in range(24))
_WORDS = np.array(HOURS, dtype=object)


def derive(columns: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Features [B] of requests [B]; ``hour`` is datetime64[us] in UTC. A missing time gives None."""
    asked = np.asarray(columns["hour"], dtype="datetime64[us]")
    known, clock = ~np.isnat(asked), local(asked)
    word = np.full(len(asked), None, dtype=object)
    word[known] = _WORDS[(clock[known] - clock[known].astype("datetime64[D]")) // np.timedelta64(1, "h")]
    return {"station__origin": np.asarray(columns["origin"], dtype=object), "station__hour": word}
