"""The rows that ask, each with its label as it was known: one function per kind of question. Spark; reads and writes nothing.

A row has ``row_id``, the instant T in ``at``, ``label`` and ``label_time`` (null where not yet known at ``as_of``), and the
columns of the request. Whatever it says of the world was known at T; the label alone comes from later.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from feature_repo import spark
from feature_repo.contract import NextObservation, TrainingSetSpec
from feature_repo.snapshot import label_days
from feature_repo.views import flight

HOUR = dt.timedelta(hours=1)
FLIGHTS = {
    "schedule": ["flight_id", *flight.REQUEST, "available_time"],
    "departure": ["flight_id", "cancelled", "available_time"],
    "arrival": ["flight_id", "diverted", "arrival_delay", "available_time"],
}


def rows(session: SparkSession, spec: TrainingSetSpec, lake: Mapping[str, pa.Table]) -> DataFrame:
    """The rows of the spec's question over its service days."""
    question = spec.question
    if isinstance(question, NextObservation):
        columns = ["origin", question.value, "event_time", "available_time"]
        return observations(spec, question, spark.frame(session, lake["weather"].select(columns)))
    return outcomes(spec, {name: spark.frame(session, lake[name].select(columns)) for name, columns in FLIGHTS.items()})


def outcomes(spec: TrainingSetSpec, facts: Mapping[str, DataFrame]) -> DataFrame:
    """One row per flight: request columns, T (``at``), and label with label_time, null where not yet known at ``as_of``.

    The schedule is the version known at T. Label 1: late by ``late_minutes`` or more, cancelled, or diverted.
    """
    at = F.col("scheduled_departure") - F.lit(spec.notice)
    request = latest(facts["schedule"], F.least(at, F.lit(spec.as_of))).select(
        "flight_id", *flight.REQUEST, at.alias("at")
    )
    left = latest(facts["departure"], F.lit(spec.as_of)).select(
        "flight_id", "cancelled", F.col("available_time").alias("_left")
    )
    came = latest(facts["arrival"], F.lit(spec.as_of)).select(
        "flight_id", "diverted", "arrival_delay", F.col("available_time").alias("_came")
    )
    late = F.col("diverted") | (F.col("arrival_delay").isNotNull() & (F.col("arrival_delay") >= spec.late_minutes))
    return (
        request
        .join(left, "flight_id", "left")
        .join(came, "flight_id", "left")
        .select(
            F.col("flight_id").alias("row_id"),
            "at",
            F.when(F.col("cancelled"), 1).when(F.col("_came").isNotNull(), late.cast("int")).alias("label"),
            F.when(F.col("cancelled"), F.col("_left")).otherwise(F.col("_came")).alias("label_time"),
            *flight.REQUEST,
        )
    )


def latest(facts: DataFrame, cut_off: Column) -> DataFrame:
    """Of each flight's fact the version that was known last at the cut-off."""
    order = Window.partitionBy("flight_id").orderBy(F.col("available_time").desc())
    known = facts.where(F.col("available_time") <= cut_off)
    return known.withColumn("_rank", F.row_number().over(order)).where("_rank = 1").drop("_rank")


def observations(spec: TrainingSetSpec, question: NextObservation, weather: DataFrame) -> DataFrame:
    """One row per station and hour from its first report on, whether or not the hour was observed in the end.

    A row that existed only because a report came later would know that the station is not silent.
    """
    station = F.col("origin")
    first_seen = weather.groupBy(station).agg(F.min("available_time").alias("_seen"))
    at = F.col("hour") - F.lit(question.notice)
    first, last = map(F.lit, hours(spec))
    every = F.explode(F.sequence(first, last, F.lit(HOUR))).alias("hour")
    asked = first_seen.select(station, "_seen", every)
    asked = asked.where(F.col("_seen") <= at).select(station, "hour", at.alias("at"))
    known = weather.where(F.col("available_time") <= F.lit(spec.as_of))
    order = Window.partitionBy(station, "event_time").orderBy(F.col("available_time").desc())
    newest = known.withColumn("_rank", F.row_number().over(order)).where("_rank = 1")
    observed = newest.where(F.col(question.value).isNotNull()).select(
        station,
        F.col("event_time").alias("hour"),
        F.col(question.value).alias("label"),
        F.col("available_time").alias("label_time"),
    )
    named = F.concat_ws("-", station, F.date_format("hour", "yyyy-MM-dd'T'HH'Z'")).alias("row_id")
    return asked.join(observed, ["origin", "hour"], "left").select(named, "at", "label", "label_time", "origin", "hour")


def hours(spec: TrainingSetSpec) -> tuple[dt.datetime, dt.datetime]:
    """First and last hour of the set's service days: those in (begin, end] of each, as the lake cuts its weather."""
    first, last = label_days(spec.first, spec.partition, spec.label_horizon)
    return spec.calendar.starts(first) + HOUR, spec.calendar.ends(last)
