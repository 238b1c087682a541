"""Looks for features that give the label away (decisions.md 3.6). Pure: numpy only.

Two tests, since neither sees every leak: no feature alone may rank the labels almost perfectly (AUC, or the rank correlation
with a regression's label), and no sizeable group of rows (a feature is null, a category, a quantile bin) may hold one label
only. Tail numbers are null for cancelled flights only: their AUC is harmless, the group of nulls is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from feature_repo.contract import CheckPolicy, Task
from feature_repo.outcomes import Outcome

GROUPS = "expect_no_group_with_one_label"
BIN_SLACK = 1.1  # rows on the edges leave a bin, so bins are cut somewhat larger than the least that is judged
RANKING = "expect_auc_alone_to_be_at_most"
CORRELATION = "expect_rank_correlation_alone_to_be_at_most"


@dataclass(frozen=True)
class Counted:
    """The distinct values of a column in ascending order, each with its rows and its lowest and highest label [distinct]."""

    values: np.ndarray
    rows: np.ndarray
    low: np.ndarray
    high: np.ndarray


def leaks(
    columns: Mapping[str, np.ndarray], label: np.ndarray, policy: CheckPolicy, task: Task = "classification"
) -> list[Outcome]:
    """Two outcomes per feature. ``columns``: name -> array [rows], float with NaN for null, or object with None for null.

    ``label`` is an integer array [rows] of 0 and 1, or a regression's finite numbers. A label of one kind only cannot be
    judged, which is a failure. A column is sorted once and judged by its distinct values: 106 columns of 330 thousand rows
    take a few seconds.
    """
    outcomes = []
    for name, values in columns.items():
        numeric = values.dtype.kind == "f"
        null = np.isnan(values) if numeric else np.array([value is None for value in values])
        known, known_label = values[~null] if numeric else values[~null].astype(str), label[~null]
        distinct, codes, rows = np.unique(known, return_inverse=True, return_counts=True)
        if task == "classification":
            positives = np.bincount(codes, weights=known_label, minlength=len(distinct))
            score = _auc(rows, positives) if numeric else _category_auc(codes, known_label)
            counted = Counted(distinct, rows, (positives == rows).astype(float), (positives > 0).astype(float))
        else:
            low, high = _bounds(codes, known_label)
            score = _correlation(codes, known_label) if numeric else _category_correlation(codes, known_label)
            counted = Counted(distinct, rows, low, high)
        outcomes += [_groups(name, counted, label[null], task, policy), _ranking(name, score, len(known), task, policy)]
    return outcomes


def _bounds(codes: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest label of each code [codes]; every code up to the largest has rows."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    if not len(starts):
        return np.zeros(0), np.zeros(0)
    return np.minimum.reduceat(label[order], starts), np.maximum.reduceat(label[order], starts)


def _quantile_bins(counted: Counted, policy: CheckPolicy) -> np.ndarray:
    """The bin of each distinct number; bins are large enough to be judged, and a value on an edge is a group of its own.

    So a value that many rows share, such as 0, is not mixed with its neighbours.
    """
    total = int(counted.rows.sum())
    bins = max(1, min(policy.leak_bins, int(total / (BIN_SLACK * policy.leak_rows))))
    ranks = np.linspace(0, total - 1, bins + 1)
    places = np.unique(np.searchsorted(np.cumsum(counted.rows), ranks, side="right"))
    numbers = np.arange(len(counted.values))
    return 2 * np.searchsorted(places, numbers, side="left") + np.isin(numbers, places)


def _groups(name: str, counted: Counted, nulls: np.ndarray, task: Task, policy: CheckPolicy) -> Outcome:
    """``nulls`` are the labels of the rows in which the feature is null."""
    numeric = counted.values.dtype.kind == "f"
    bins = _quantile_bins(counted, policy) if numeric else np.arange(len(counted.values))
    _, codes = np.unique(bins, return_inverse=True)
    rows = np.bincount(codes, weights=counted.rows) if len(codes) else np.zeros(0)
    low, high = _bounds(codes, counted.low)[0], _bounds(codes, counted.high)[1]
    found = [
        (_span(counted.values[codes == code]), rows[code], low[code])
        for code in np.flatnonzero((rows >= policy.leak_rows) & (low == high))
    ]
    if len(nulls) >= policy.leak_rows and nulls.min() == nulls.max():
        found.insert(0, ("null", len(nulls), nulls[0]))
    words = "label share {:.0f}" if task == "classification" else "label {:g}"
    return Outcome(
        "rows",
        f"group:{name}",
        GROUPS,
        name,
        "critical",
        success=not found,
        observed=f"{len(found)} groups of {policy.leak_rows} rows or more hold one label only",
        examples=tuple(f"{group} ({size:.0f} rows, {words.format(label)})" for group, size, label in found[:3]),
    )


def _span(values: np.ndarray) -> str:
    """Ascending values as text: one, or the first and the last."""
    if values.dtype.kind != "f":
        return str(values[0])
    return f"[{values[0]:g}, {values[-1]:g}]" if len(values) > 1 else f"{values[0]:g}"


def _ranking(name: str, score: float | None, known: int, task: Task, policy: CheckPolicy) -> Outcome:
    auc = task == "classification"
    if score is not None:
        strength, limit = (max(score, 1 - score), policy.leak_auc) if auc else (abs(score), policy.leak_rank)
        title = "AUC" if auc else "rank correlation"
        success, observed = strength <= limit, f"{title} {strength:.4f} alone, at most {limit}"
    elif known < policy.leak_rows:
        success, observed = True, f"{known} rows have a value, too few to judge"
    else:
        success, observed = False, f"could not run: {known} rows have a value, all with the same label"
    key, kind = ("auc", RANKING) if auc else ("rank", CORRELATION)
    return Outcome("rows", f"{key}:{name}", kind, name, "critical", success=success, observed=observed)


def _category_auc(codes: np.ndarray, label: np.ndarray) -> float | None:
    """AUC of the categories' label shares, learnt on every second row and judged on the others.

    Judged on the same rows, any column of unique names would rank perfectly.
    """
    kinds = int(codes.max()) + 1 if len(codes) else 1
    positives = np.bincount(codes[::2], weights=label[::2], minlength=kinds)
    sizes = np.bincount(codes[::2], minlength=kinds)
    base = label[::2].mean() if len(label) else 0.0
    shares = np.where(sizes > 0, positives / np.maximum(sizes, 1), base)
    _, ranked = np.unique(shares, return_inverse=True)
    where = ranked[codes[1::2]]
    return _auc(np.bincount(where), np.bincount(where, weights=label[1::2]))


def _category_correlation(codes: np.ndarray, label: np.ndarray) -> float | None:
    """Rank correlation of the categories' mean labels, learnt on every second row and judged on the others."""
    kinds = int(codes.max()) + 1 if len(codes) else 1
    sizes = np.bincount(codes[::2], minlength=kinds)
    sums = np.bincount(codes[::2], weights=label[::2], minlength=kinds)
    base = label[::2].mean() if len(label) else 0.0
    return _correlation(np.where(sizes > 0, sums / np.maximum(sizes, 1), base)[codes[1::2]], label[1::2])


def _correlation(values: np.ndarray, label: np.ndarray) -> float | None:
    """Spearman's rank correlation, ties sharing their mean rank; 0 for a constant feature, None for a constant label."""
    if not len(label) or label.min() == label.max():
        return None
    one, two = _ranks(values), _ranks(label)
    spread = float(one.std() * two.std())
    return float(((one - one.mean()) * (two - two.mean())).mean()) / spread if spread else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _auc(rows: np.ndarray, positives: np.ndarray) -> float | None:
    """Probability that a random positive outranks a random negative, ties counting half (Mann-Whitney); None if undefined.

    ``rows`` and ``positives`` are counts per score, in ascending order of the scores.
    """
    negatives = rows - positives
    pairs = positives.sum() * negatives.sum()
    if not pairs:
        return None
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + negatives / 2)).sum() / pairs)
