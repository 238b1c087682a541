from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitoring.baseline import Monitored
from monitoring.contract import DriftPolicy
from monitoring.findings import Figures, drifted_share, measure, missing
from monitoring.reference import monitor

POLICY = DriftPolicy()
DAYS = np.repeat(np.arange(30), 200)
rng = np.random.default_rng(11)
NUMBERS = rng.normal(size=6000)
WORDS = rng.choice(np.array(["a", "b", "c"], dtype=object), 6000, p=[0.5, 0.3, 0.2])
SPARSE = np.where(rng.random(6000) < 0.02, np.nan, NUMBERS)


def feature(values: np.ndarray, days: np.ndarray = DAYS) -> Monitored:
    kind: Any = "numeric" if values.dtype.kind == "f" else "categorical"
    return monitor("origin__delay", kind, 0.4, values, days, POLICY)


def found(reference: np.ndarray, current: Any) -> Figures:
    dtype = float if reference.dtype.kind == "f" else object
    return measure(feature(reference), np.array(current, dtype=dtype), 1, POLICY)


@pytest.mark.parametrize(
    ("reference", "current", "kind"),
    [
        (NUMBERS, rng.normal(size=900), "ok"),
        (NUMBERS, rng.normal(2, 1, size=900), "drift"),
        (NUMBERS, NUMBERS[:900] + 0.4, "warn"),
        (NUMBERS, NUMBERS[:900] + 0.6, "drift"),
        (NUMBERS, [np.nan] * 900, "empty"),
        (NUMBERS, [0.5] * 900, "constant"),
        (NUMBERS, [0.5, np.nan] * 450, "constant"),
        (SPARSE, np.where(np.arange(900) % 10 == 0, np.nan, rng.normal(size=900)), "nulls"),
        (WORDS, ["a"] * 450 + ["b"] * 270 + ["c"] * 180, "ok"),
        (WORDS, ["c"] * 700 + ["a"] * 200, "drift"),
        (WORDS, ["x"] * 450 + ["y"] * 450, "unseen"),
        (WORDS, ["a"] * 450 + ["b"] * 270 + ["c"] * 160 + ["x"] * 20, "warn"),
        (WORDS, [None] * 900, "empty"),
        (WORDS, ["a"] * 900, "drift"),
        (WORDS, ["b"] * 900, "constant"),
    ],
)
def test_each_kind_of_window_is_told_apart(reference: np.ndarray, current: Any, kind: str) -> None:
    figures = found(reference, current)
    assert figures.finding.kind == kind, figures
    assert figures.psi is not None
    assert np.isfinite(figures.psi)


def test_new_categories_only_are_counted_and_named() -> None:
    mixed = found(WORDS, ["x"] * 450 + ["y"] * 450)
    assert mixed.unseen_share == 1
    assert "'x', 'y'" in mixed.finding.words


def test_a_column_that_was_always_so_is_quiet() -> None:
    """What the reference's own days did is no finding: a weekday is constant, gusts are null on calm days."""
    weekday = np.array([str(day % 7) for day in DAYS], dtype=object)
    assert found(weekday, ["3"] * 900).finding.kind == "ok"
    gusts = np.where(DAYS % 3 == 0, np.nan, NUMBERS)
    assert found(gusts, [np.nan] * 900).finding.kind == "ok"
    assert found(np.zeros(6000), [0.0] * 900).finding.kind == "ok"
    assert found(np.full(6000, np.nan), [np.nan] * 900).finding.kind == "ok"


def test_a_usual_value_all_day_is_a_good_day_and_any_other_is_a_broken_feed() -> None:
    cancelled = np.where(rng.random(6000) < 0.9, 0.0, rng.random(6000))
    assert found(cancelled, [0.0] * 900).finding.kind == "drift"
    assert found(cancelled, [0.1] * 900).finding.kind == "constant"
    assert found(NUMBERS, [0.0] * 900).finding.kind == "constant"


def test_a_feature_is_compared_with_its_own_days_of_the_same_length() -> None:
    level = np.repeat(np.sin(np.arange(30)), 200) * 5
    seasonal = feature(level + NUMBERS)
    today = np.sin(31) * 5 + rng.normal(size=900)
    assert measure(seasonal, today, 1, POLICY).finding.kind == "ok"
    assert measure(seasonal, today, 1, POLICY).psi > 10 * POLICY.psi_drift  # type: ignore[operator]
    assert measure(seasonal, today + 20, 1, POLICY).finding.kind == "drift"
    assert seasonal.limit(6).psi < seasonal.limit(1).psi
    assert seasonal.limit(99) == seasonal.limits[-1]


def test_the_share_counts_importance_not_columns() -> None:
    heavy, light = found(NUMBERS, rng.normal(2, 1, 900)).finding, found(NUMBERS, rng.normal(size=900)).finding
    assert drifted_share([heavy, light, light]) == pytest.approx(0.4)
    assert drifted_share([light]) == 0


def test_a_missing_column_has_no_score() -> None:
    finding = missing(feature(NUMBERS)).finding
    assert (finding.kind, finding.score) == ("missing", None)


@pytest.mark.covers("field-reports 109")
@pytest.mark.parametrize(("shift", "kind"), [(0.02, "ok"), (0.6, "drift")])
def test_what_is_drift_is_drift_of_five_percent_of_the_rows_too(shift: float, kind: str) -> None:
    """A test of hypotheses calls a shift of 0.02 deviations drift in nearly every check of 100,000 rows."""
    many = np.random.default_rng(3).normal(shift, 1, 100_000)
    assert {found(NUMBERS, many).finding.kind, found(NUMBERS, many[::20]).finding.kind} == {kind}
