"""The step that makes a training set: labels and features as they were known, one row per question, byte-identical on a re-run."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from artifacts import store
from artifacts.step import DataFault, progress, step
from feature_repo import asof, labelled, spark, tables
from feature_repo.catalogue import ENTITY_KEYS, VIEWS
from feature_repo.contract import CheckPolicy, DatasetRef, TrainingSetSpec
from feature_repo.questions import Layout, layout
from feature_repo.snapshot import dataset_key, feature_days, label_days, training_snapshots


def training_set(spec: TrainingSetSpec) -> DatasetRef:
    """Joins, checks and publishes ``rows.parquet``; raises DataFault with a line per problem of the lake or the views."""
    progress(0.01, "checking lake and views")
    reached = _layout(spec).views
    with spark.starting("perennial-training-set") as started:
        lake, views = read(spec)
        session = started()
        progress(0.2, "joining as of each row")
        asked = labelled.rows(session, spec, lake).cache()
        offered = {view: rows for view, rows in views.items() if view in reached}
        joined = asof.join(asked, offers(session, offered)).toArrow()
        rows_in = asked.count()
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


def _layout(spec: TrainingSetSpec) -> Layout:
    return layout(spec.question, CheckPolicy(lead=spec.notice))


def finish(spec: TrainingSetSpec, joined: pa.Table, rows_in: int) -> tuple[pa.Table, dict[str, object]]:
    """The rows whose label is known, with service day and request features, in the order of columns that is promised.

    Also facts about what was left out. Raises DataFault when the join lost or doubled rows, or when a day is unfit.
    """
    if joined.num_rows != rows_in or pc.count_distinct(joined["row_id"]).as_py() != rows_in:
        raise DataFault([
            f"row_id: {rows_in} rows went into the join, {joined.num_rows} rows with "
            f"{pc.count_distinct(joined['row_id']).as_py()} ids came out; find the view whose keys repeat"
        ])
    asked = _layout(spec)
    dated = joined.append_column("day", _service_days(spec, joined[asked.dated_by]))
    whole, unknown = whole_days(spec, dated)
    known = dated.filter(pc.and_(pc.is_valid(dated["label"]), pc.is_in(dated["day"], pa.array(whole, pa.date32()))))
    if not known.num_rows:
        raise DataFault([
            f"{spec.lake}: label: no outcome of {spec.first} to {spec.partition} is known at {spec.as_of}"
        ])
    request = {name: known[name].to_numpy(zero_copy_only=False) for name in asked.request}
    for name, values in asked.derive(request).items():
        known = known.append_column(name, pa.array(values, asked.derived[name]))
    label = known["label"].cast(asked.identity["label"])
    known = known.set_column(known.column_names.index("label"), "label", label)
    return known.select(asked.schema.names), {"rows_without_outcome": unknown, "rows_in": rows_in}


def _service_days(spec: TrainingSetSpec, dated: pa.ChunkedArray) -> pa.Array:
    hours, which = np.unique(dated.to_numpy().astype("datetime64[h]"), return_inverse=True)
    instants = hours.astype("datetime64[s]").tolist()
    days = np.array([spec.calendar.of(instant.replace(tzinfo=dt.UTC)) for instant in instants], dtype="datetime64[D]")
    return pa.array(days[which], pa.date32())


def whole_days(spec: TrainingSetSpec, dated: pa.Table) -> tuple[list[dt.date], int]:
    """The days of which enough outcomes are known, and how many rows lack one.

    A day that is half known is biased towards its early rows. At the end of the range it is left off; before, it is a fault.
    """
    counts = dated.group_by("day").aggregate([("label", "count"), ([], "count_all")]).sort_by("day").to_pylist()
    share = {row["day"]: row["label_count"] / row["count_all"] for row in counts}
    fit = [day for day in share if share[day] >= spec.known_share]
    unfit = [day for day in share if day not in fit and fit and day < fit[-1]]
    if unfit:
        raise DataFault(
            f"{spec.lake}/{day}: label: outcomes of {share[day]:.1%} of the rows are known at {spec.as_of:%Y-%m-%dT%H:%MZ}, "
            f"known_share is {spec.known_share:.1%}; ingest the day again"
            for day in unfit
        )
    return fit, sum(row["count_all"] - row["label_count"] for row in counts)


def _publish(spec: TrainingSetSpec, rows: pa.Table, left_out: Mapping[str, object]) -> DatasetRef:
    key, days = dataset_key(spec), pc.min_max(rows["day"]).as_py()
    task = spec.question.task
    positives = pc.sum(rows["label"]).as_py() if task == "classification" else 0
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
        task=task,
        first=days["min"],
        last=days["max"],
        columns=tuple(rows.column_names),
    )


if __name__ == "__main__":
    sys.exit(step(training_set, TrainingSetSpec))
