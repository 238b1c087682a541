"""Looks for features that give the label away (decisions.md 3.6). Pure: numpy only.

Two tests, since neither sees every leak: no feature alone may rank the labels almost perfectly, and no sizeable group of
rows (a feature is null, a category, a quantile bin) may hold one label only. Tail numbers are null for cancelled
flights only: their AUC is harmless, the group of nulls is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from feature_repo.contract import CheckPolicy
from feature_repo.outcomes import Outcome

GROUPS = "expect_no_group_with_one_label"
BIN_SLACK = 1.1  # rows on the edges leave a bin, so bins are cut somewhat larger than the least that is judged
RANKING = "expect_auc_alone_to_be_at_most"


@dataclass(frozen=True)
class Counted:
    """The distinct values of a column in ascending order, each with its rows and its positive labels [distinct]."""

    values: np.ndarray
    rows: np.ndarray
    positives: np.ndarray


def leaks(columns: Mapping[str, np.ndarray], label: np.ndarray, policy: CheckPolicy) -> list[Outcome]:
    """Two outcomes per feature. ``columns``: name -> array [rows], float with NaN for null, or object with None for null.

    ``label`` is an integer array [rows] of 0 and 1. A label of one kind only cannot be judged, which is a failure. A column
    is sorted once and judged by its distinct values: 106 columns of 330 thousand rows take a few seconds.
    """
    outcomes = []
    for name, values in columns.items():
        numeric = values.dtype.kind == "f"
        null = np.isnan(values) if numeric else np.array([value is None for value in values])
        known, known_label = values[~null] if numeric else values[~null].astype(str), label[~null]
        distinct, codes, rows = np.unique(known, return_inverse=True, return_counts=True)
        counted = Counted(distinct, rows, np.bincount(codes, weights=known_label, minlength=len(distinct)))
        score = _auc(counted.rows, counted.positives) if numeric else _category_auc(codes, known_label)
        outcomes += [
            _groups(name, counted, (int(null.sum()), int(label[null].sum())), policy),
            _ranking(name, score, len(known), policy),
        ]
    return outcomes


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


def _groups(name: str, counted: Counted, nulls: tuple[int, int], policy: CheckPolicy) -> Outcome:
    numeric = counted.values.dtype.kind == "f"
    codes = _quantile_bins(counted, policy) if numeric else np.arange(len(counted.values))
    rows = np.bincount(codes, weights=counted.rows) if len(codes) else np.zeros(0)
    positives = np.bincount(codes, weights=counted.positives) if len(codes) else np.zeros(0)
    bad = np.flatnonzero((rows >= policy.leak_rows) & ((positives == 0) | (positives == rows)))
    found = [(_span(counted.values[codes == code]), rows[code], positives[code]) for code in bad]
    if nulls[0] >= policy.leak_rows and nulls[1] in {0, nulls[0]}:
        found.insert(0, ("null", *nulls))
    return Outcome(
        "rows",
        f"group:{name}",
        GROUPS,
        name,
        "critical",
        success=not found,
        observed=f"{len(found)} groups of {policy.leak_rows} rows or more hold one label only",
        examples=tuple(f"{group} ({size:.0f} rows, label share {hits / size:.0f})" for group, size, hits in found[:3]),
    )


def _span(values: np.ndarray) -> str:
    """Ascending values as text: one, or the first and the last."""
    if values.dtype.kind != "f":
        return str(values[0])
    return f"[{values[0]:g}, {values[-1]:g}]" if len(values) > 1 else f"{values[0]:g}"


def _ranking(name: str, score: float | None, known: int, policy: CheckPolicy) -> Outcome:
    if score is not None:
        strength = max(score, 1 - score)
        success, observed = strength <= policy.leak_auc, f"AUC {strength:.4f} alone, at most {policy.leak_auc}"
    elif known < policy.leak_rows:
        success, observed = True, f"{known} rows have a value, too few to judge"
    else:
        success, observed = False, f"could not run: {known} rows have a value, all with the same label"
    return Outcome("rows", f"auc:{name}", RANKING, name, "critical", success=success, observed=observed)


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
