"""Reads what a check compares: a window of the prediction log with its labels, and the reference's rows.

One row per request id (the first answer counts), of the live version only; samples are seeded, so the same artifacts
and seed give the same rows.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from artifacts.refs import Digest, Ref
from artifacts.step import DataFault
from artifacts.store import read_ref
from feature_repo.contract import DatasetRef
from monitoring.contract import DriftPolicy
from serving.contract import FeedbackRef, PredictionsRef
from training.measures import Task

FEATURE = "feature__"
AGE = "age__"
DAY = dt.timedelta(days=1)
DAY_NUMBER = "day number"
LOG_COLUMNS = ("request_id", "at", "package_digest", "score")


@dataclass(frozen=True)
class Window:
    """Rows of one or more partitions of the log; ``at`` is the answer's time, ``day`` [B] the row's partition."""

    table: pa.Table
    partitions: tuple[dt.date, ...]
    day: npt.NDArray[np.int64]
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """The number of distinct requests."""
        return int(self.table.num_rows)

    def tail(self, partitions: int) -> Window:
        """The newest partitions only."""
        first = len(self.partitions) - partitions
        keep = self.day >= first
        return Window(self.table.filter(pa.array(keep)), self.partitions[first:], self.day[keep] - first, self.notes)


def generator(seed: int, *names: object) -> np.random.Generator:
    """A random generator that depends on the seed and the names of what is sampled, never on the time."""
    digest = hashlib.sha256("\0".join(str(name) for name in names).encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])


def sample(table: pa.Table, cap: int, rng: np.random.Generator) -> pa.Table:
    """At most ``cap`` rows without replacement, in their old order."""
    if table.num_rows <= cap:
        return table
    return table.take(pa.array(np.sort(rng.choice(table.num_rows, cap, replace=False))))


def column(table: pa.Table, name: str, kind: Literal["numeric", "categorical"]) -> npt.NDArray[Any]:
    """One column: float64 with NaN for null, or objects (text) with None for null."""
    values = table.column(name)
    if kind == "numeric":
        try:
            numbers = pc.cast(values, pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataFault([f"column '{name}' holds {values.type}, numbers are expected; fix its producer"]) from error
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    if pa.types.is_null(values.type):
        return np.full(table.num_rows, None, dtype=object)
    if pa.types.is_floating(values.type):
        values = pc.cast(values, pa.int64())  # whole numbers that a null turned into floats
    text: npt.NDArray[Any] = pc.cast(values, pa.string()).to_numpy(zero_copy_only=False)
    return text


def log_window(predictions: Sequence[PredictionsRef], live: Digest, cap: int, seed: int) -> Window:
    """All given partitions of the log, answers of the live version only, each capped by a seeded sample.

    Raises DataFault when partitions are out of order, a column is missing or a score is no number.
    """
    days = [ref.partition for ref in predictions]
    if days != sorted(set(days)):
        raise DataFault([
            f"predictions: partitions {[str(day) for day in days]} are out of order; sort them, each once"
        ])
    tables, notes = [], []
    for number, ref in enumerate(predictions):
        logged = _read_log(ref)
        answered = logged.filter(pc.equal(logged.column("package_digest"), live))
        if others := logged.num_rows - answered.num_rows:
            notes.append(f"{ref.partition}: {others} answers of other versions left out")
        part = _untyped_nulls(sample(answered, cap, generator(seed, ref.model, ref.partition)))
        tables.append(part.append_column(DAY_NUMBER, pa.array(np.full(part.num_rows, number))))
    _clock_runs_forward(tables, days)
    every = pa.concat_tables(tables, promote_options="permissive")
    table = _distinct(every)
    if repeated := every.num_rows - table.num_rows:
        notes.append(f"{repeated} repeated request ids left out, the first answer counts")
    number = table.column(DAY_NUMBER).to_numpy().astype(np.int64)
    return Window(table.drop_columns([DAY_NUMBER]), tuple(days), number, tuple(notes))


def _parquet(ref: Ref, name: str) -> pa.Table:
    try:
        return pq.read_table(read_ref(ref).file(name))
    except pa.ArrowInvalid as error:
        why = str(error).partition("\n")[0]
        raise DataFault([f"{ref.uri}: {name} is no Parquet file ({why}); compact the log again"]) from error


def _clock_runs_forward(tables: Sequence[pa.Table], days: Sequence[dt.date]) -> None:
    """Raises DataFault when a partition's answers begin before those of an earlier one."""
    begins = [
        (day, pc.min(table.column("at")).as_py()) for day, table in zip(days, tables, strict=True) if table.num_rows
    ]
    problems = [
        f"predictions: partition {later[0]} begins at {later[1]:%Y-%m-%dT%H:%MZ}, before partition {earlier[0]} "
        f"({earlier[1]:%Y-%m-%dT%H:%MZ}); the gateway's clock has gone back, mend it and compact the log again"
        for earlier, later in itertools.pairwise(begins)
        if later[1] < earlier[1]
    ]
    if problems:
        raise DataFault(problems)


def _read_log(ref: PredictionsRef) -> pa.Table:
    table = _parquet(ref, "predictions.parquet")
    missing = [name for name in LOG_COLUMNS if name not in table.column_names]
    if missing:
        raise DataFault(f"{ref.uri}: column '{name}' is missing; compact the log again" for name in missing)
    wrong = table.num_rows - int(np.isfinite(column(table, "score", "numeric")).sum())
    if wrong:
        raise DataFault([f"{ref.uri}: score is no finite number in {wrong} rows; find out what the model answered"])
    return table


def _untyped_nulls(table: pa.Table) -> pa.Table:
    """Columns without any value get the null type: their partition cannot know whether they hold text or numbers."""
    for place, name in enumerate(table.column_names):
        if table.column(name).null_count == table.num_rows:
            table = table.set_column(place, name, pa.nulls(table.num_rows))
    return table


def _distinct(table: pa.Table) -> pa.Table:
    """One row per request id, the earliest answer."""
    table = table.sort_by([(DAY_NUMBER, "ascending"), ("at", "ascending"), ("request_id", "ascending")])
    _, first = np.unique(table.column("request_id").to_numpy(zero_copy_only=False).astype(str), return_index=True)
    return table if len(first) == table.num_rows else table.take(pa.array(np.sort(first)))


def merged(window: Window, policy: DriftPolicy) -> Window:
    """The fewest of the newest partitions that reach ``minimum_rows``, at most ``merge_partitions`` of them."""
    limit = min(policy.merge_partitions, len(window.partitions))
    lengths = (n for n in range(1, limit + 1) if window.tail(n).rows >= policy.minimum_rows)
    return window.tail(next(lengths, limit))


@dataclass(frozen=True)
class Labelled:
    """The rows of a window whose label is known: score, label (0 or 1, or a regression's number) and day number, each [B].

    ``partitions`` and ``requests`` [days] name each day and count its requests; ``day`` indexes both. ``naive`` [B] is a
    regression's naive answer, NaN where the request had none.
    """

    score: npt.NDArray[np.float64]
    label: npt.NDArray[np.float64]
    day: npt.NDArray[np.int64]
    requests: npt.NDArray[np.int64]
    partitions: tuple[dt.date, ...]
    unknown: int = 0
    task: Task = "classification"
    naive: npt.NDArray[np.float64] | None = None

    @property
    def coverage(self) -> float:
        """Share of the requests whose label is known."""
        total = int(self.requests.sum())
        return len(self.label) / total if total else 0.0

    def only(self, kept: npt.NDArray[np.bool_]) -> Labelled:
        """Some of the rows, out of the same requests."""
        naive = None if self.naive is None else self.naive[kept]
        return dataclasses.replace(
            self, score=self.score[kept], label=self.label[kept], day=self.day[kept], naive=naive
        )


def labelled(
    window: Window, feedback: Sequence[FeedbackRef], task: Task = "classification", naive: str | None = None
) -> Labelled:
    """Joins labels by request id; the newest one counts. ``unknown`` labels belong to no request of the window.

    ``naive`` is the model input that is a regression's naive answer, as it was served.
    """
    labels = _labels(feedback)
    requests = window.table.column("request_id").to_pylist()
    found = np.array([labels.get(request, np.nan) for request in requests], dtype=np.float64)
    known = ~np.isnan(found)
    return Labelled(
        score=column(window.table, "score", "numeric")[known],
        label=found[known],
        day=window.day[known],
        requests=np.bincount(window.day, minlength=len(window.partitions)),
        partitions=window.partitions,
        unknown=len(labels) - int(known.sum()),
        task=task,
        naive=_served(window, naive)[known] if naive else None,
    )


def _served(window: Window, feature: str) -> npt.NDArray[np.float64]:
    """A numeric model input as it was served [B]; NaN where the log lacks it, which the check of that feature says."""
    name = FEATURE + feature
    if name not in window.table.column_names:
        return np.full(window.rows, np.nan)
    return column(window.table, name, "numeric")


def _labels(feedback: Sequence[FeedbackRef]) -> dict[str, float]:
    if not feedback:
        return {}
    table = pa.concat_tables([_parquet(ref, "feedback.parquet") for ref in feedback])
    table = table.sort_by([("known_at", "ascending"), ("request_id", "ascending")])
    return dict(zip(table.column("request_id").to_pylist(), column(table, "label", "numeric").tolist(), strict=True))


@dataclass(frozen=True)
class ReferenceRows:
    """The reference's rows: the last days that touched the live version's weights. ``day`` [B] numbers ``days``."""

    table: pa.Table
    days: tuple[dt.date, ...]
    day: npt.NDArray[np.int64]


def reference_rows(
    dataset: DatasetRef, last: dt.date, features: Sequence[str], policy: DriftPolicy, seed: int
) -> ReferenceRows:
    """The rows of the ``reference_days`` up to ``last``, sorted by day, each day capped by a seeded sample.

    Raises DataFault when a feature is missing or fewer than ``minimum_blocks`` days have rows.
    """
    path = read_ref(dataset).file("rows.parquet")
    missing = sorted(set(features) - set(pq.read_schema(path).names))
    if missing:
        raise DataFault(f"{dataset.uri}: column '{name}' is missing; the final fit reads it" for name in missing)
    first = last - (policy.reference_days - 1) * DAY
    chosen = (pc.field("day") >= pa.scalar(first, pa.date32())) & (pc.field("day") <= pa.scalar(last, pa.date32()))
    table = pq.read_table(path, columns=["day", "at", "label", *features], filters=chosen).sort_by("day")
    days, number = np.unique(table.column("day").to_numpy(), return_inverse=True)
    if len(days) < policy.minimum_blocks:
        raise DataFault([
            f"{dataset.uri}: {len(days)} days from {first} to {last} have rows, "
            f"a reference needs {policy.minimum_blocks}; widen reference_days or train on more days"
        ])
    picked = [
        _capped(np.flatnonzero(number == place), policy.sample_rows, generator(seed, dataset.model, day))
        for place, day in enumerate(days)
    ]
    chosen_rows = np.concatenate(picked)
    return ReferenceRows(table.take(pa.array(chosen_rows)), tuple(days.astype(object)), number[chosen_rows])


def _capped(rows: npt.NDArray[np.int64], cap: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    return rows if len(rows) <= cap else np.sort(rng.choice(rows, cap, replace=False))
