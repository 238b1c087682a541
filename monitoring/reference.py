"""Step: freezes what a live version knows as normal, and how far its own days lie apart.

Each block of 1, 2, ... days of the reference is scored against its other days, as a window is later: those of the same
weekdays for a feature that a week explains, else all. A feature drifts only above the ``block_quantile`` of these scores, so what is seasonal or autocorrelated is quiet by
its own history (decisions.md 1.2b), and a weekly wave cancels (docs/adr/0011).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from artifacts.step import DataFault, progress, step
from artifacts.store import publish, read_ref
from monitoring.baseline import LABEL, PREDICTION, Baseline, Limits, Monitored, Usual
from monitoring.contract import DriftPolicy, ReferenceRef, ReferenceSpec
from monitoring.drift import Bins, bins_of, day_counts, finite, nulls, psi, sliding
from monitoring.windows import ReferenceRows, column, generator, reference_rows, sample
from serving.contract import PackageRef
from serving.engines.interface import run_all
from serving.package import open_engine
from training.contract import Columns, EvaluationRef
from training.encoding import encode

Kind = Literal["numeric", "categorical"]
WEEK = 7


def freeze(spec: ReferenceSpec) -> ReferenceRef:
    """Writes ``reference.parquet`` and ``baseline.json`` for a live version; raises DataFault on unusable rows."""
    features = _kinds(spec.final.columns)
    weights = importance(spec.evaluation, tuple(features))
    progress(0.1, "reading the reference's rows")
    rows = reference_rows(spec.final.dataset, spec.final.train_last, tuple(features), spec.policy, spec.seed)
    progress(0.3, "scoring the reference with the live model")
    scores = package_scores(spec.package, {name: column(rows.table, name, kind) for name, kind in features.items()})
    day = np.array([each.toordinal() for each in rows.days])[rows.day]
    monitored = []
    for number, (name, kind) in enumerate(features.items()):
        progress(0.4 + 0.5 * number / len(features), f"scoring the reference's own days: {name}")
        monitored.append(monitor(name, kind, weights[name], column(rows.table, name, kind), day, spec.policy))
    label: Kind = "categorical" if spec.final.task == "classification" else "numeric"
    baseline = Baseline(
        model=spec.model,
        package_digest=spec.package.digest,
        dataset_digest=spec.final.dataset.digest,
        first=rows.days[0],
        last=rows.days[-1],
        rows=rows.table.num_rows,
        blocks=len(rows.days),
        features=tuple(monitored),
        prediction=monitor(PREDICTION, "numeric", 0.0, scores, day, spec.policy),
        label=monitor(LABEL, label, 0.0, column(rows.table, "label", label), day, spec.policy),
    )
    return _publish(spec, rows, scores, baseline)


def _publish(spec: ReferenceSpec, rows: ReferenceRows, scores: npt.NDArray[Any], baseline: Baseline) -> ReferenceRef:
    table = rows.table.append_column("score", pa.array(scores))
    kept = sample(table, spec.policy.reference_rows, generator(spec.seed, spec.model, spec.final.train_last))
    with publish(spec.output, "reference") as draft:
        pq.write_table(
            kept.replace_schema_metadata(None), draft.path / "reference.parquet", compression="zstd", store_schema=False
        )
        (draft.path / "baseline.json").write_text(baseline.model_dump_json(indent=1))
        draft.facts.update(model=spec.model, rows=kept.num_rows, blocks=baseline.blocks)
    if draft.manifest is None:
        raise AssertionError("a published draft has a manifest")
    return ReferenceRef(
        uri=spec.output,
        digest=draft.manifest.digest,
        model=spec.model,
        package_digest=spec.package.digest,
        rows=kept.num_rows,
        blocks=baseline.blocks,
        first=baseline.first,
        last=baseline.last,
    )


def _kinds(columns: Columns) -> dict[str, Literal["numeric", "categorical"]]:
    return {**dict.fromkeys(columns.numeric, "numeric"), **dict.fromkeys(columns.categorical, "categorical")}


def importance(evaluation: EvaluationRef, features: Sequence[str]) -> dict[str, float]:
    """Weights of the monitored features, from ``evaluation.json``, renormalised to a sum of 1."""
    found: Mapping[str, float] = json.loads(read_ref(evaluation).file("evaluation.json").read_text()).get(
        "importance", {}
    )
    weights = {name: max(float(found.get(name, 0.0)), 0.0) for name in features}
    total = sum(weights.values())
    if not np.isfinite(total) or total <= 0:
        raise DataFault([
            f"{evaluation.uri}/evaluation.json: importance has no positive share for any of the {len(features)} model "
            "inputs; evaluate the version again"
        ])
    return {name: weight / total for name, weight in weights.items()}


def package_scores(package: PackageRef, columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """Scores [B] of a package's own engine on feature columns [B]; raises DataFault when one is no finite number."""
    numeric, categorical = encode(columns, package.signature)
    scores = run_all(open_engine(read_ref(package), package), numeric, categorical, package.signature.max_batch).astype(
        np.float64
    )
    if wrong := len(scores) - int(np.isfinite(scores).sum()):
        raise DataFault([f"{package.uri}: the model answers no finite number for {wrong} of {len(scores)} rows"])
    return scores


def monitor(
    name: str,
    kind: Literal["numeric", "categorical"],
    weight: float,
    values: npt.NDArray[Any],
    day: npt.NDArray[np.int64],
    policy: DriftPolicy,
) -> Monitored:
    """One feature's bins, counts and block limits from its values [B], sorted by day, and their dates' ordinals [B]."""
    bins = bins_of(values, kind, policy.bins)
    codes = bins.codes(values)
    begins = np.diff(day, prepend=day[0] - 1) != 0  # of each day: the rows are sorted by it
    ordinals, number = day[begins], np.cumsum(begins) - 1
    per_day = day_counts(codes, number, bins.width)
    low, high = day_range(values if kind == "numeric" else np.where(nulls(values), np.nan, codes), day)
    days = closest(name, bins, Days(per_day, weekdays_of(ordinals, policy.weekday_weeks), low, high), policy)
    known = values[~nulls(values)]
    longest = min(policy.merge_partitions, len(per_day) - 1)
    common, common_share = most_common(known, len(values), bins, per_day.sum(axis=0))
    return Monitored(
        name=name,
        kind=kind,
        weight=weight,
        edges=bins.edges,
        categories=bins.categories,
        counts=tuple(per_day.sum(axis=0).tolist()),
        mean=float(known.mean()) if kind == "numeric" and len(known) else None,
        median=float(np.median(known)) if kind == "numeric" and len(known) else None,
        common=common,
        common_share=common_share,
        limits=tuple(block_limits(name, bins, days, length, policy) for length in range(1, longest + 1)),
        weekdays=tuple(
            usual(kind, values[days.weekday[number] == which], per_day[days.weekday == which].sum(axis=0))
            for which in range(WEEK)
        )
        if days.weekday.any()
        else (),
    )


def weekdays_of(ordinals: npt.NDArray[np.int64], weeks: int) -> npt.NDArray[np.int64]:
    """The weekday of each date [days], Monday 0; all 0 when one weekday occurs less than ``weeks`` times: all count alike."""
    weekday = (ordinals - 1) % WEEK
    few = int(np.bincount(weekday, minlength=WEEK).min()) < weeks
    return np.zeros_like(weekday) if few else weekday


def usual(kind: Literal["numeric", "categorical"], values: npt.NDArray[Any], counts: npt.NDArray[np.int64]) -> Usual:
    """What is usual of the values [B] of some days, with their counts per bin."""
    known = values[~nulls(values)] if kind == "numeric" else values[:0]
    return Usual(
        counts=tuple(counts.tolist()),
        mean=float(known.mean()) if len(known) else None,
        median=float(np.median(known)) if len(known) else None,
    )


def most_common(
    known: npt.NDArray[Any], rows: int, bins: Bins, per_bin: npt.NDArray[np.int64]
) -> tuple[float | str | None, float]:
    """The most frequent of the known values and its share of all ``rows``; categories are counted already."""
    if not len(known):
        return None, 0.0
    if bins.kind == "categorical":
        most = int(per_bin[:-1].argmax())
        return bins.categories[most], float(per_bin[most] / rows)
    values, counts = np.unique(known, return_counts=True)
    place = int(counts.argmax())
    return values[place].item(), float(counts[place] / rows)


def day_range(values: npt.NDArray[Any], day: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The smallest and the largest value of each day [days]; NaN where a day has none. ``day`` is sorted."""
    starts = np.flatnonzero(np.diff(day, prepend=-1))
    return np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)


class Days(NamedTuple):
    """The days of a reference: counts [days, width], weekday [days], smallest and largest value [days]."""

    counts: npt.NDArray[np.int64]
    weekday: npt.NDArray[np.int64]
    low: npt.NDArray[Any]
    high: npt.NDArray[Any]


def others(counts: npt.NDArray[np.int64], weekday: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """What each run of ``length`` days is held against: for each of its days, all other days of that weekday.

    Counts [days, width] -> [days - length + 1, width]. With one weekday for all days it is ``length`` times the rest.
    """
    total = np.zeros((len(counts) - length + 1, counts.shape[1]), dtype=np.int64)
    for which in np.unique(weekday):
        here = weekday == which
        own = np.where(here[:, None], counts, 0)
        total += sliding(here.astype(np.int64)[:, None], length) * (own.sum(axis=0) - sliding(own, length))
    return total


def closest(name: str, bins: Bins, days: Days, policy: DriftPolicy) -> Days:
    """The days with their weekdays when these explain them: single days lie closer to their weekday than to all days.

    Else with one weekday for all. A wave of the week lies closer; weather, whose days differ by their own level, does not, and
    a seventh of its days would not show how far such a day may go.
    """
    alike = days._replace(weekday=np.zeros_like(days.weekday))
    if not days.weekday.any():
        return alike
    by_weekday, by_all = (block_limits(name, bins, each, 1, policy).psi for each in (days, alike))
    return days if by_weekday < by_all else alike


def block_limits(name: str, bins: Bins, days: Days, length: int, policy: DriftPolicy) -> Limits:
    """The limits for blocks of ``length`` days: each run of days against its ``others``."""
    block, rest = sliding(days.counts, length), others(days.counts, days.weekday, length)
    rare = policy.rare_share if bins.kind == "categorical" else 0.0
    scores = psi(block, rest, rare)
    null_share = block[:, -1] / block.sum(axis=1)
    differences = np.abs(null_share - rest[:, -1] / rest.sum(axis=1))
    known = (
        days.counts.sum(axis=0) > block
    )  # on any other day: a window's new categories are new to the whole reference
    unseen = np.where(known[:, :-1], 0, block[:, :-1]).sum(axis=1) / block.sum(axis=1)
    low, high = (
        reduce(np.lib.stride_tricks.sliding_window_view(side, length), axis=1)
        for reduce, side in ((np.fmin.reduce, days.low), (np.fmax.reduce, days.high))
    )
    beyond = np.quantile(np.stack([scores, differences, unseen]), policy.block_quantile, axis=1)
    return Limits(
        psi=finite(float(beyond[0]), f"reference block scores of '{name}'"),
        nulls=float(beyond[1]),
        unseen=float(beyond[2]) if bins.kind == "categorical" else 0.0,
        constant=float((low == high).mean()),
    )


if __name__ == "__main__":
    sys.exit(step(freeze, ReferenceSpec))
