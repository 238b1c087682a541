"""Step: a closed partition of the prediction log becomes two artifacts, its predictions and its labels.

The same segments give the same bytes, so repeating it publishes nothing new.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from artifacts.refs import Uri, local_path, sha256
from artifacts.step import DataFault, step
from artifacts.store import Manifest, manifest, publish
from feature_repo.contract import Task
from feature_repo.questions import LABELS
from serving.contract import CompactRef, CompactSpec, Feedback, FeedbackRef, Prediction, PredictionsRef
from serving.log import rows, segments

INSTANT = pa.timestamp("us", tz="UTC")
PREDICTION_SCHEMA = pa.schema([
    ("request_id", pa.string()),
    ("at", INSTANT),
    ("partition", pa.date32()),
    ("version", pa.int64()),
    ("name", pa.string()),
    ("package_digest", pa.string()),
    ("score", pa.float64()),
])


def compact(spec: CompactSpec) -> CompactRef:
    """Compacts both kinds of segments; repeating it with the same segments publishes nothing new."""
    log = local_path(spec.log)
    if log is None:
        raise DataFault([f"log: '{spec.log}' is no file:// URI; gateways append to a local or mounted folder"])
    return CompactRef(
        predictions=compact_predictions(log, spec.model, spec.partition, spec.predictions),
        feedback=compact_feedback(log, spec.model, spec.partition, spec.feedback, spec.task),
    )


def compact_predictions(log: Path, model: str, partition: dt.date, output: Uri) -> PredictionsRef:
    """Publishes a partition's answers as ``predictions.parquet``, sorted by request id; the first answer counts.

    Columns as in ``Prediction``'s docstring. Calling it again with the same segments changes nothing.
    """
    table = prediction_table(
        row for path in segments(log, "predictions", model, partition) for row in rows(path, Prediction)
    )
    published = _publish(output, "predictions", table, {"model": model, "partition": partition.isoformat()})
    return PredictionsRef(uri=output, digest=published.digest, model=model, partition=partition, rows=table.num_rows)


def compact_feedback(
    log: Path, model: str, partition: dt.date, output: Uri, task: Task = "classification"
) -> FeedbackRef:
    """Publishes the labels of a partition as ``feedback.parquet``, sorted by request id; the latest known one counts."""
    found = (row for path in segments(log, "feedback", model, partition) for row in rows(path, Feedback))
    table = feedback_table(found, task)
    published = _publish(output, "feedback", table, {"model": model, "partition": partition.isoformat()})
    return FeedbackRef(uri=output, digest=published.digest, model=model, partition=partition, rows=table.num_rows)


def prediction_table(found: Iterable[Prediction]) -> pa.Table:
    """Answers as columns, sorted by request id; of several with one id the first counts."""
    first: dict[str, Prediction] = {}
    for row in sorted(found, key=lambda row: row.at):  # stable: segment and line decide between equal instants
        first.setdefault(row.request_id, row)
    return _table([first[request_id] for request_id in sorted(first)])


def feedback_table(found: Iterable[Feedback], task: Task) -> pa.Table:
    """Labels as columns, sorted by request id; of several with one id the latest known one counts."""
    latest: dict[str, Feedback] = {}
    for row in sorted(found, key=lambda row: row.known_at):
        latest[row.request_id] = row
    schema = pa.schema([("request_id", pa.string()), ("label", LABELS[task]), ("known_at", INSTANT)])
    return pa.Table.from_pylist([latest[request_id].model_dump() for request_id in sorted(latest)], schema=schema)


def _table(answers: list[Prediction]) -> pa.Table:
    fixed = [row.model_dump(include=set(PREDICTION_SCHEMA.names)) for row in answers]
    table = pa.Table.from_pylist(fixed, schema=PREDICTION_SCHEMA)
    for prefix, part in (("input", "inputs"), ("feature", "features"), ("age", "ages")):
        values = [getattr(row, part) for row in answers]
        for name in sorted({name for value in values for name in value}):
            table = table.append_column(f"{prefix}__{name}", _column([value.get(name) for value in values]))
    return table


def _column(values: list[Any]) -> pa.Array:
    """A column of the narrowest of int64, float64 and string that holds all values; all null is float64."""
    kinds = {type(value) for value in values if value is not None}
    if str in kinds:
        return pa.array([value if value is None else str(value) for value in values], pa.string())
    return pa.array(values, pa.int64() if kinds == {int} else pa.float64())


def _publish(output: Uri, kind: str, table: pa.Table, facts: dict[str, Any]) -> Manifest:
    """Publishes one Parquet file, unless exactly this content is there already."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    content = sink.getvalue().to_pybytes()
    name = f"{kind}.parquet"
    there = manifest(output)
    if there and [(entry.path, entry.digest) for entry in there.files] == [(name, sha256(content))]:
        return there
    with publish(output, kind) as draft:
        (draft.path / name).write_bytes(content)
        draft.facts.update(facts, rows=table.num_rows)
    if draft.manifest is None:
        raise AssertionError("a published draft has a manifest")
    return draft.manifest


if __name__ == "__main__":
    sys.exit(step(compact, CompactSpec))
