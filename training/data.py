"""From a training set to arrays: verified reading, windows of service days, vocabularies, normalisation and shards.

Vocabularies and normalisation come from the training rows of the fit alone. Orders and shards are functions of
(seed, epoch, step, rank, world size), so a resumed training meets the same rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from artifacts import store
from artifacts.step import DataFault
from feature_repo.contract import DatasetRef
from training.contract import CategoricalInput, Columns, Signature, TrainSpec
from training.encoding import encode, words
from training.measures import Task

ROWS_FILE = "rows.parquet"
KEYS = ("day", "label")
SUMMED_ROWS = 1024
SHUFFLE_STREAM = 1  # keeps the order's random numbers apart from those of other uses of the same seed

Array: TypeAlias = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Rows:
    """Some rows of a training set: service day and label [B], and the columns by name, each [B]."""

    day: npt.NDArray[np.datetime64]
    label: npt.NDArray[np.float32]
    columns: dict[str, npt.NDArray[np.generic]]

    def __len__(self) -> int:
        return len(self.label)

    def between(self, first: dt.date, last: dt.date, purpose: str) -> Rows:
        """The rows of the service days first..last; raises DataFault when there is none."""
        chosen = (self.day >= np.datetime64(first)) & (self.day <= np.datetime64(last))
        if not chosen.any():
            have = f"{self.day.min()} to {self.day.max()}" if len(self) else "nothing"
            raise DataFault([
                f"{ROWS_FILE}: no rows in the {purpose} window {first} to {last} (the set holds {have}); build those "
                f"service days, or shorten the split"
            ])
        return Rows(
            self.day[chosen], self.label[chosen], {name: values[chosen] for name, values in self.columns.items()}
        )


@dataclass(frozen=True)
class Encoded:
    """Arrays that the network takes: numeric float32 [B, N], categorical int64 [B, M], label float32 [B]."""

    numeric: npt.NDArray[np.float32]
    categorical: npt.NDArray[np.int64]
    label: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class Material:
    """All that one fit learns from. ``validation`` is None for the final fit."""

    signature: Signature
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train: Encoded
    validation: Encoded | None
    train_last: dt.date
    seen_last: dt.date


def read_rows(dataset: DatasetRef, columns: Sequence[str], task: Task = "classification") -> Rows:
    """The columns of a verified training set; raises ArtifactCorrupt or DataFault with the fix, never guesses."""
    path = store.read_ref(dataset).file(ROWS_FILE)
    where = f"{dataset.uri}/{ROWS_FILE}"
    wanted = list(dict.fromkeys([*KEYS, *columns]))
    try:
        absent = [name for name in wanted if name not in pq.read_schema(path).names]
        if absent:
            raise DataFault(f"{where}: column '{name}' is missing; build the training set again" for name in absent)
        table = pq.read_table(path, columns=wanted, memory_map=True, pre_buffer=False)
    except pa.ArrowException as error:
        raise DataFault([f"{where}: is no readable Parquet ({error}); build the training set again"]) from error
    if table.num_rows != dataset.rows:
        raise DataFault([f"{where}: has {table.num_rows} rows, its reference says {dataset.rows}; build it again"])
    label = table["label"].cast(pa.float32()).to_numpy()
    if task == "classification" and not np.isin(label, (0.0, 1.0)).all():
        raise DataFault([f"{where}: 'label' holds something other than 0 and 1; mend the label's rule"])
    if not np.isfinite(label).all():
        raise DataFault([f"{where}: 'label' holds something that is no finite number; mend the label's rule"])
    day = table["day"].cast(pa.date32()).to_numpy().astype("datetime64[D]")
    return Rows(day, label, {name: table[name].to_numpy() for name in columns})


def varied(rows: Rows, purpose: str) -> Rows:
    """The same rows; raises DataFault when all of them have one label, since nothing can be learnt or measured."""
    if rows.label.min() == rows.label.max():
        raise DataFault([
            f"{ROWS_FILE}: all {len(rows)} rows of the {purpose} window have label {rows.label[0]:g}; check how "
            f"labels are joined, or take a longer window"
        ])
    return rows


def constant_answer(label: npt.NDArray[np.float32], task: Task) -> float:
    """The best answer that knows nothing: the share of positives (log loss), or the median (absolute error)."""
    return float(label.mean(dtype=np.float64)) if task == "classification" else float(np.median(label))


def signature_of(rows: Rows, columns: Columns) -> Signature:
    """The tensors of the graph, with the vocabularies that these rows show."""
    categorical = tuple(
        CategoricalInput(name=name, vocabulary=words(rows.columns[name])) for name in columns.categorical
    )
    return Signature(numeric=columns.numeric, categorical=categorical)


def normalisation(numeric: npt.NDArray[np.float32]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per column [N] over finite values; (0, 1) where none is, deviation 1 where constant."""
    finite = np.isfinite(numeric)
    count = np.maximum(finite.sum(axis=0), 1)
    mean = _sums(numeric, finite, np.zeros(numeric.shape[1]), 1) / count
    std = np.sqrt(_sums(numeric, finite, mean, 2) / count)
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def _sums(
    numeric: npt.NDArray[np.float32], finite: npt.NDArray[np.bool_], middle: npt.NDArray[np.float64], power: int
) -> npt.NDArray[np.float64]:
    """Sums over finite values of (value - middle) ** power per column [N], added row after row, in pieces that fit a cache."""
    total = np.zeros((1, numeric.shape[1]))
    for start in range(0, len(numeric), SUMMED_ROWS):
        rows = slice(start, start + SUMMED_ROWS)
        away = (np.where(finite[rows], numeric[rows], middle) - middle) ** power
        total = np.vstack([total, away]).sum(axis=0, keepdims=True)
    return total[0]


def encoded(rows: Rows, signature: Signature) -> Encoded:
    """The rows as the network takes them."""
    numeric, categorical = encode(rows.columns, signature)
    return Encoded(numeric, categorical, rows.label)


def material(spec: TrainSpec) -> Material:
    """What a fit learns from: the evaluation fit stops before the gap, the final fit goes through the last label."""
    rows = read_rows(spec.dataset, [*spec.columns.numeric, *spec.columns.categorical], spec.task)
    windows = spec.windows
    final = spec.fit == "final"
    train_last = windows.test_last if final else windows.train_last
    train = varied(rows.between(windows.train_first, train_last, "training"), "training")
    signature = signature_of(train, spec.columns)
    arrays = encoded(train, signature)
    mean, std = normalisation(arrays.numeric)
    validation = None
    if not final:
        held = rows.between(windows.validation_first, windows.validation_last, "validation")
        validation = encoded(varied(held, "validation"), signature)
    seen_last = train_last if final else windows.validation_last
    return Material(signature, mean, std, arrays, validation, train_last, seen_last)


def steps_per_epoch(rows: int, global_batch: int) -> int:
    """How many steps cover every row once."""
    return -(-rows // global_batch)


def epoch_order(rows: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The order of an epoch: a permutation of all rows, the same on every rank."""
    return np.random.default_rng((SHUFFLE_STREAM, seed, epoch)).permutation(rows)


def batch(order: npt.NDArray[np.int64], step: int, global_batch: int) -> npt.NDArray[np.int64]:
    """The rows of one step over all ranks; the same for every world size.

    A full batch splits evenly over the ranks, since the contract makes ``global_batch`` a multiple of the world size.
    The remainder of an epoch is one short last batch, where shards may differ by a row; its loss is divided by
    ``global_batch`` too, so each row weighs the same. No row is padded, doubled or dropped.
    """
    return order[step * global_batch : (step + 1) * global_batch]


def shard(rows: npt.NDArray[np.int64], rank: int, world: int) -> npt.NDArray[np.int64]:
    """The part of a batch that one rank works on."""
    return rows[rank::world]
