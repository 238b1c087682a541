"""Builders of training values: a synthetic training set with a known signal, specs and signatures around it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from artifacts import store
from artifacts.refs import file_uri, sha256
from feature_repo.contract import DatasetRef
from training.contract import (
    CategoricalInput,
    Columns,
    Network,
    Signature,
    SplitPolicy,
    TorchJob,
    TrainSpec,
    Windows,
)
from training.measures import Task
from training.recipes.flight_delay import COLUMNS, MODEL

FIRST = dt.date(2013, 1, 1)
SPLIT = SplitPolicy(validation_days=5, test_days=5)
NETWORK = Network(hidden=(16,), embedding=4, dropout=0.0, global_batch=64, max_epochs=3, patience=1)
WORDS = {
    "flight__carrier": ("AA", "B6", "UA"),
    "flight__origin": ("EWR", "JFK", "LGA"),
    "flight__dest": ("ATL", "BOS", "LAX", "ORD"),
    "flight__weekday": ("0", "1", "2", "3", "4", "5", "6"),
}


def rows(days: int = 30, per_day: int = 40, seed: int = 7) -> dict[str, Any]:
    """Columns of a training set of ``days`` service days: labels follow two features, one cell in ten is null."""
    generator = np.random.default_rng(seed)
    count = days * per_day
    day = np.repeat(np.arange(days), per_day)
    numeric = {name: generator.normal(size=count) for name in COLUMNS.numeric}
    words = {name: generator.choice(choices, size=count) for name, choices in WORDS.items()}
    logit = 1.5 * numeric["origin__late_share_3h"] + 1.0 * (words["flight__carrier"] == "B6") - 1.5
    label = (generator.random(count) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    at = [dt.datetime.combine(FIRST + dt.timedelta(days=int(d)), dt.time(12), dt.UTC) for d in day]
    columns: dict[str, Any] = {
        "row_id": [f"{FIRST + dt.timedelta(days=int(d))}-{place:06d}" for place, d in enumerate(day)],
        "day": [FIRST + dt.timedelta(days=int(d)) for d in day],
        "at": at,
        "label": label,
        "label_time": [instant + dt.timedelta(hours=6) for instant in at],
    }
    hidden = generator.random((len(numeric), count)) < 0.1
    for place, (name, values) in enumerate(numeric.items()):
        columns[name] = [None if gone else float(value) for value, gone in zip(values, hidden[place], strict=True)]
    return {**columns, **{name: values.tolist() for name, values in words.items()}}


def dataset(
    folder: Path, columns: dict[str, Any] | None = None, task: Task = "classification", **shape: int
) -> DatasetRef:
    """Publishes a synthetic training set below ``folder`` and returns its reference."""
    content = rows(**shape) if columns is None else columns
    table = pa.table(content)
    for name in ("at", "label_time"):
        if name in table.column_names:
            table = table.set_column(
                table.column_names.index(name), name, table[name].cast(pa.timestamp("us", tz="UTC"))
            )
    uri = file_uri(folder / "dataset")
    with store.publish(uri, "dataset") as draft:
        pq.write_table(table, draft.path / "rows.parquet")
    last = max(content["day"])
    return DatasetRef(
        uri=uri,
        digest=draft.manifest.digest,  # type: ignore[union-attr]  # set by publish
        key=sha256(str(table.num_rows).encode()),
        model=MODEL,
        partition=last + dt.timedelta(days=1),
        as_of=dt.datetime.combine(last + dt.timedelta(days=2), dt.time(14), dt.UTC),
        rows=table.num_rows,
        positives=int(np.sum(np.asarray(content["label"]) == 1)) if "label" in content else 0,
        task=task,
        first=min(content["day"]),
        last=last,
        columns=tuple(table.column_names),
    )


def windows(found: DatasetRef, split: SplitPolicy = SPLIT) -> Windows:
    """The windows of a synthetic training set."""
    return Windows.cut(found.first, found.partition, split)


def train_spec(found: DatasetRef, output: Path, *, processes: int = 1, **changes: Any) -> TrainSpec:
    """A small evaluation fit on ``found``; any field can be changed."""
    fields: dict[str, Any] = {
        "model": MODEL,
        "training_key": sha256(b"training"),
        "dataset": found,
        "columns": COLUMNS,
        "windows": windows(found),
        "fit": "evaluation",
        "network": NETWORK,
        "job": TorchJob(processes_per_node=processes),
        "seed": 11,
        "output": file_uri(output),
    }
    return TrainSpec.model_validate({**fields, **changes})


def columns(*, numeric: tuple[str, ...] = ("x",), categorical: tuple[str, ...] = ("c",)) -> Columns:
    """A few columns."""
    return Columns(numeric=numeric, categorical=categorical)


def signature(numeric: tuple[str, ...] = ("x", "y"), vocabulary: tuple[str, ...] = ("AA", "B6")) -> Signature:
    """Two numeric inputs and one categorical one."""
    return Signature(numeric=numeric, categorical=(CategoricalInput(name="c", vocabulary=vocabulary),))
