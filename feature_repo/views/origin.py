"""How each airport of origin has been doing lately: the carrier's features, per origin. Pure: DataFrames in, DataFrame out.

Key ``origin``; meaning, unit and window of each feature are those of ``feature_repo.views.carrier``.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from feature_repo.views.carrier import punctuality
from feature_repo.views.rolling import Hours


def origin(facts: DataFrame, hours: Hours) -> DataFrame:
    """Rows (origin, event_time, available_time, features) of the hours, from ``carrier.facts``."""
    return punctuality("origin", facts, hours)
