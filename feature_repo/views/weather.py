"""The weather at each airport of origin, as observed. Pure: DataFrame in, DataFrame out.

Key ``origin``; one row per observation with its own clocks: ``event_time`` is the hour observed, ``available_time`` is when
the report was out. Features: ``temp`` and ``dewp`` (degrees Fahrenheit), ``humid`` (relative humidity, percent), ``wind_speed``
and ``wind_gust`` (miles per hour; no gust is null), ``precip`` (inches), ``pressure`` (millibars), ``visib`` (miles).
"""

from __future__ import annotations

import datetime as dt

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from feature_repo.tables import VIEW_SCHEMAS


def weather(observations: DataFrame, after: dt.datetime, until: dt.datetime) -> DataFrame:
    """Rows (origin, event_time, available_time, features) of the observations of hours in (after, until]."""
    hour = F.col("event_time")
    return observations.where((hour > F.lit(after)) & (hour <= F.lit(until))).select(*VIEW_SCHEMAS["weather"].names)
