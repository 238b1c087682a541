"""Looks for features that give the label away (decisions.md 3.6). Pure: numpy only.

Two tests, since neither sees every leak: no feature alone may rank the labels almost perfectly, and no sizeable group of
rows (a feature is null, a category, a quantile bin) may hold one label only. Tail numbers are null for cancelled
flights only: their AUC is harmless, the group of nulls is not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from feature_repo.contract import CheckPolicy
from feature_repo.outcomes import Outcome

GROUPS = "expect_no_group_with_one_label"
BIN_SLACK = 1.1  # rows on the edges leave a bin, so bins are cut somewhat larger than the least that is judged
RANKING = "expect_auc_alone_to_be_at_most"


def leaks(columns: Mapping[str, np.ndarray], label: np.ndarray, policy: CheckPolicy) -> list[Outcome]:
    """Two outcomes per feature. ``columns``: name -> array [rows], float with NaN for null, or object with None for null.

    ``label`` is an integer array [rows] of 0 and 1. A label of one kind only cannot be judged, which is a failure.
    """
    outcomes = []
    for name, values in columns.items():
        numeric = values.dtype.kind == "f"
        null = np.isnan(values) if numeric else np.array([value is None for value in values])
        codes = np.full(len(values), -1)
        if numeric:
            codes[~null] = _quantile_bins(values[~null], policy)
        else:
            codes[~null] = np.unique(values[~null].astype(str), return_inverse=True)[1]
        outcomes += [
            _groups(name, values, codes, label, policy.leak_rows),
            _ranking(name, values[~null] if numeric else codes[~null], label[~null], policy, numeric=numeric),
        ]
    return outcomes


def _quantile_bins(values: np.ndarray, policy: CheckPolicy) -> np.ndarray:
    """The bin of each value; bins are large enough to be judged, and a value on an edge is a group of its own.

    So a value that many rows share, such as 0, is not mixed with its neighbours.
    """
    if not len(values):
        return np.empty(0, dtype=np.int64)
    bins = max(1, min(policy.leak_bins, int(len(values) / (BIN_SLACK * policy.leak_rows))))
    edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)))
    return 2 * np.searchsorted(edges, values, side="left") + np.isin(values, edges)


def _groups(name: str, values: np.ndarray, codes: np.ndarray, label: np.ndarray, least: int) -> Outcome:
    found, inverse, sizes = np.unique(codes, return_inverse=True, return_counts=True)
    positives = np.bincount(inverse, weights=label, minlength=len(found))
    bad = np.flatnonzero((sizes >= least) & ((positives == 0) | (positives == sizes)))
    texts = []
    for place in bad[:3]:
        inside = values[inverse == place]
        group = "null" if found[place] < 0 else _span(inside)
        texts.append(f"{group} ({sizes[place]} rows, label share {positives[place] / sizes[place]:.0f})")
    observed = f"{len(bad)} groups of {least} rows or more hold one label only"
    return Outcome(
        "rows",
        f"group:{name}",
        GROUPS,
        name,
        "critical",
        success=not len(bad),
        observed=observed,
        examples=tuple(texts),
    )


def _span(values: np.ndarray) -> str:
    if values.dtype.kind != "f":
        return str(values[0])
    return f"[{values.min():g}, {values.max():g}]" if values.min() < values.max() else f"{values[0]:g}"


def _ranking(name: str, values: np.ndarray, label: np.ndarray, policy: CheckPolicy, *, numeric: bool) -> Outcome:
    score = _auc(values, label) if numeric else _category_auc(values, label)
    if score is not None:
        strength = max(score, 1 - score)
        success, observed = strength <= policy.leak_auc, f"AUC {strength:.4f} alone, at most {policy.leak_auc}"
    elif len(label) < policy.leak_rows:
        success, observed = True, f"{len(label)} rows have a value, too few to judge"
    else:
        success, observed = False, f"could not run: {len(label)} rows have a value, all with the same label"
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
    return _auc(shares[codes[1::2]], label[1::2])


def _auc(scores: np.ndarray, label: np.ndarray) -> float | None:
    """Probability that a random positive outranks a random negative, ties counting half (Mann-Whitney); None if undefined."""
    positives = int(label.sum())
    negatives = len(label) - positives
    if not positives or not negatives:
        return None
    _, inverse, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[inverse]
    return float((ranks[label == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))
