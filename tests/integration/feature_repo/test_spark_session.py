"""The one way to Spark: always UTC, and stopped whatever happens inside."""

from __future__ import annotations

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from feature_repo.spark import session

pytestmark = pytest.mark.spark


def fail_inside() -> None:
    with session("tests") as spark:
        assert spark.sql("SELECT current_timezone() AS zone").first()["zone"] == "UTC"
        raise RuntimeError("in the middle")


@pytest.mark.covers("field-reports 49", "decisions 3.5")
def test_a_session_is_in_utc_and_is_stopped_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="in the middle"):
        fail_inside()
    assert SparkSession.getActiveSession() is None
    assert SparkContext._active_spark_context is None
