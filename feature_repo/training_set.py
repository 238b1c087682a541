"""The step that makes a training set: labels and features as they were known, one row per flight, byte-identical on a re-run."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from artifacts import store
from artifacts.step import DataFault, progress, step
from feature_repo import asof, spark, tables
from feature_repo.catalogue import ENTITY_KEYS, VIEWS, feature_columns
from feature_repo.contract import DatasetRef, TrainingSetSpec
from feature_repo.snapshot import dataset_key, feature_days, label_days, training_snapshots
from feature_repo.views import flight

READ = {
    "schedule": ["flight_id", *flight.REQUEST, "available_time"],
    "departure": ["flight_id", "cancelled", "available_time"],
    "arrival": ["flight_id", "diverted", "arrival_delay", "available_time"],
}


def training_set(spec: TrainingSetSpec) -> DatasetRef:
    """Joins, checks and publishes ``rows.parquet``; raises DataFault with a line per problem of the lake or the views."""
    progress(0.01, "checking lake and views")
    lake, views = read(spec)
    with spark.session("perennial-training-set") as session:
        progress(0.2, "joining as of each flight")
        facts = {name: spark.frame(session, lake[name].select(columns)) for name, columns in READ.items()}
        flights = outcomes(spec, facts).cache()
        joined = asof.join(flights, offers(session, views)).toArrow()
        rows_in = flights.count()
    progress(0.85, "writing")
    return _publish(spec, *finish(spec, joined, rows_in))


def offers(session: SparkSession, views: Mapping[str, pa.Table]) -> dict[str, asof.Offers]:
    """The views' rows with each view's own delay and ttl, as serving applies them: one config for both (decisions.md 3.12)."""
    return {
        view: asof.Offers(
            rows=spark.frame(session, rows),
            keys=ENTITY_KEYS[view],
            delay=VIEWS[view].delay,
            ttl=VIEWS[view].ttl,
        )
        for view, rows in views.items()
    }


def read(spec: TrainingSetSpec) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """The raw tables and the views of the days of the set; raises DataFault when they are faulty or not those of the spec."""
    days = tables.day_range(*label_days(spec.first, spec.partition, spec.label_horizon))
    lake = tables.read_days(spec.lake, days, "feature_repo.ingest")
    feature_range = feature_days(spec.calendar, spec.first, spec.partition, spec.label_horizon)
    views = tables.read_days(spec.views, tables.day_range(*feature_range), "feature_repo.build")
    loaded = tables.load_raw(lake, days), tables.load_views(views)
    snapshots = training_snapshots(
        spec.calendar,
        lake=spec.lake,
        views=spec.views,
        first=spec.first,
        partition=spec.partition,
        label_horizon=spec.label_horizon,
    )
    wanted = (spec.lake_snapshot, spec.views_snapshot)
    problems = [
        f"{place}: snapshot is {found}, the spec is for {asked}; it has changed, ask for a new set"
        for place, found, asked in zip((spec.lake, spec.views), snapshots, wanted, strict=True)
        if found != asked
    ]
    if problems:
        raise DataFault(problems)
    return loaded


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


def finish(spec: TrainingSetSpec, joined: pa.Table, rows_in: int) -> tuple[pa.Table, dict[str, object]]:
    """The rows whose label is known, with service day and request features, in the order of columns that is promised.

    Also facts about what was left out. Raises DataFault when the join lost or doubled rows, or when a day is unfit.
    """
    if joined.num_rows != rows_in or pc.count_distinct(joined["row_id"]).as_py() != rows_in:
        raise DataFault([
            f"row_id: {rows_in} flights went into the join, {joined.num_rows} rows with "
            f"{pc.count_distinct(joined['row_id']).as_py()} ids came out; find the view whose keys repeat"
        ])
    dated = joined.append_column("day", _service_days(spec, joined["scheduled_departure"]))
    whole, unknown = whole_days(spec, dated)
    known = dated.filter(pc.and_(pc.is_valid(dated["label"]), pc.is_in(dated["day"], pa.array(whole, pa.date32()))))
    if not known.num_rows:
        raise DataFault([
            f"{spec.lake}: label: no outcome of {spec.first} to {spec.partition} is known at {spec.as_of}"
        ])
    request = {name: known[name].to_numpy(zero_copy_only=False) for name in flight.REQUEST}
    for name, values in flight.derive(request).items():
        known = known.append_column(name, pa.array(values, pa.string() if values.dtype == object else pa.float64()))
    names = ["row_id", "day", "at", "label", "label_time", *flight.REQUEST, *flight.NUMERIC, *flight.CATEGORICAL]
    names += feature_columns()
    known = known.set_column(known.column_names.index("label"), "label", known["label"].cast(pa.int8()))
    return known.select(names), {"rows_without_outcome": unknown, "rows_in": rows_in}


def _service_days(spec: TrainingSetSpec, departures: pa.ChunkedArray) -> pa.Array:
    hours, which = np.unique(departures.to_numpy().astype("datetime64[h]"), return_inverse=True)
    instants = hours.astype("datetime64[s]").tolist()
    days = np.array([spec.calendar.of(instant.replace(tzinfo=dt.UTC)) for instant in instants], dtype="datetime64[D]")
    return pa.array(days[which], pa.date32())


def whole_days(spec: TrainingSetSpec, dated: pa.Table) -> tuple[list[dt.date], int]:
    """The days of which enough outcomes are known, and how many rows lack one.

    A day that is half known is biased towards early flights. At the end of the range it is left off; before, it is a fault.
    """
    counts = dated.group_by("day").aggregate([("label", "count"), ([], "count_all")]).sort_by("day").to_pylist()
    share = {row["day"]: row["label_count"] / row["count_all"] for row in counts}
    fit = [day for day in share if share[day] >= spec.known_share]
    unfit = [day for day in share if day not in fit and fit and day < fit[-1]]
    if unfit:
        raise DataFault(
            f"{spec.lake}/{day}: label: outcomes of {share[day]:.1%} of the flights are known at {spec.as_of:%Y-%m-%dT%H:%MZ}, "
            f"known_share is {spec.known_share:.1%}; ingest the day again"
            for day in unfit
        )
    return fit, sum(row["count_all"] - row["label_count"] for row in counts)


def _publish(spec: TrainingSetSpec, rows: pa.Table, left_out: Mapping[str, object]) -> DatasetRef:
    key, days = dataset_key(spec), pc.min_max(rows["day"]).as_py()
    positives = pc.sum(rows["label"]).as_py()
    with store.publish(spec.output, "dataset") as draft:
        (draft.path / "rows.parquet").write_bytes(tables.parquet_bytes(rows, ["row_id"]))
        draft.facts.update({"key": key, "rows": rows.num_rows, "positives": positives, **left_out})
    if draft.manifest is None:
        raise RuntimeError(f"{spec.output}: the store gave no manifest")
    return DatasetRef(
        uri=spec.output,
        digest=draft.manifest.digest,
        key=key,
        model=spec.model,
        partition=spec.partition,
        as_of=spec.as_of,
        rows=rows.num_rows,
        positives=positives,
        first=days["min"],
        last=days["max"],
        columns=tuple(rows.column_names),
    )


if __name__ == "__main__":
    sys.exit(step(training_set, TrainingSetSpec))
