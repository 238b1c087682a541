"""The one way to Spark: always UTC, and stopped whatever happens inside."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from artifacts.step import DataFault
from feature_repo.engine import Budget
from feature_repo.spark import pieces, session, starting

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


def count_for_ever() -> None:
    with session("tests") as spark, Budget(0.5).cancels(spark):
        spark.range(10**15).selectExpr("sum(id % 7)").collect()


@pytest.mark.covers("field-reports 72")
def test_when_the_budget_is_spent_what_runs_is_cancelled() -> None:
    with pytest.raises((PySparkException, Py4JJavaError), match="cancel"):
        count_for_ever()
    assert SparkContext._active_spark_context is None


@pytest.mark.parametrize(("wanted", "made"), [(0.1, "2"), (8.2, "9"), (1e6, "64")])
def test_a_shuffle_has_a_piece_per_core_at_least_and_at_most_what_the_setting_says(wanted: float, made: str) -> None:
    with session("tests") as spark:
        pieces(spark, wanted)
        assert spark.conf.get("spark.sql.shuffle.partitions") == made


def test_a_session_that_starts_beside_other_work_is_ready_when_asked_for() -> None:
    with starting("tests") as started:
        spark = started()
        assert spark.range(3).count() == 3
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert SparkContext._active_spark_context is None


def test_a_session_that_nobody_waited_for_is_stopped_all_the_same() -> None:
    with pytest.raises(DataFault, match="no such day"), starting("tests"):
        raise DataFault(["no such day"])
    assert SparkContext._active_spark_context is None
