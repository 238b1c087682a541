"""Scores against sklearn and by hand, and bootstraps that mean what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    precision_recall_fscore_support,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from training.scoring import (
    SCORE_FLOOR,
    at_threshold,
    auc,
    base_rate_threshold,
    calibration_bins,
    errors_of,
    paired_gains,
    pr_points,
    roc_points,
    row_losses,
    scores_of,
)


def _window(rows: int = 400, noise: float = 0.3, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    truth = generator.random(rows)
    label = (generator.random(rows) < truth).astype(np.float64)
    worse = np.clip(truth + generator.normal(scale=noise, size=rows), 0.01, 0.99)
    return truth, worse, label


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]), st.booleans()), min_size=2, max_size=60))
def test_scores_agree_with_sklearn_ties_included(pairs: list[tuple[float, bool]]) -> None:
    score = np.array([pair[0] for pair in pairs])
    label = np.array([float(pair[1]) for pair in pairs])
    found = scores_of(score, label)
    clipped = np.clip(score, SCORE_FLOOR, 1 - SCORE_FLOOR)
    assert found.log_loss == pytest.approx(log_loss(label, clipped, labels=[0, 1]))
    assert found.brier == pytest.approx(brier_score_loss(label, score))
    if 0 < label.sum() < len(label):
        assert found.auc == pytest.approx(roc_auc_score(label, score))
        assert found.pr_auc == pytest.approx(average_precision_score(label, score))


def test_a_certain_wrong_answer_costs_much_and_stays_finite() -> None:
    assert np.isfinite(row_losses(np.array([0.0]), np.array([1.0]))).all()


@pytest.mark.covers("bad evidence: equal scores")
def test_a_constant_answer_has_no_order() -> None:
    label = np.array([0.0, 1.0, 0.0, 0.0])
    found = scores_of(np.full(4, 0.25), label)
    assert (found.auc, found.pr_auc) == (0.5, 0.25)
    assert roc_points(np.full(4, 0.25), label) == [(0.0, 0.0), (1.0, 1.0)]
    assert pr_points(np.full(4, 0.25), label) == [(1.0, 0.25)]


@pytest.mark.parametrize("label", [np.zeros(5), np.ones(5)])
@pytest.mark.covers("bad evidence: no positives")
def test_one_class_has_no_auc(label: np.ndarray) -> None:
    assert np.isnan(auc(np.linspace(0, 1, 5), label))


def test_the_errors_of_a_regression_agree_with_sklearn() -> None:
    generator = np.random.default_rng(3)
    label = generator.normal(50, 20, 200)
    answer = label + generator.normal(2, 4, 200)
    found = errors_of(answer, label)
    assert found.mae == pytest.approx(mean_absolute_error(label, answer))
    assert found.rmse == pytest.approx(root_mean_squared_error(label, answer))
    assert found.r2 == pytest.approx(r2_score(label, answer))
    assert found.bias == pytest.approx((answer - label).mean())


@given(st.floats(0.05, 0.95))
def test_what_a_threshold_flags_agrees_with_sklearn(threshold: float) -> None:
    score, _, label = _window()
    found = at_threshold(score, label, threshold)
    precision, recall, f1, _ = precision_recall_fscore_support(label, score >= threshold, average="binary")
    assert found["flagged"] == int((score >= threshold).sum())
    assert (found["precision"], found["recall"], found["f1"]) == pytest.approx((precision, recall, f1))


def test_a_threshold_that_flags_nothing_has_no_precision() -> None:
    found = at_threshold(np.array([0.1, 0.2]), np.array([0.0, 1.0]), 0.5)
    assert (found["flagged"], found["precision"], found["recall"]) == (0, None, 0.0)


def test_the_threshold_of_the_base_rate_flags_as_many_rows_as_there_are_positives() -> None:
    score, _, label = _window()
    flagged = at_threshold(score, label, base_rate_threshold(score, label))["flagged"]
    assert abs(flagged - label.sum()) <= 1


def test_calibration_error_by_hand() -> None:
    score = np.repeat([0.1, 0.9], 50)
    label = np.concatenate([np.zeros(50), np.ones(50)])
    assert scores_of(score, label).ece == pytest.approx(0.1)
    assert sum(rows for _, _, rows in calibration_bins(score, label)) == 100


def test_a_better_candidate_has_a_positive_interval_and_swapping_turns_it_round() -> None:
    better, worse, label = _window()
    loss, area = paired_gains(better, worse, label, 300, seed=2)
    assert loss.lower > 0
    assert area.lower > 0
    assert loss.lower < loss.mean < loss.upper
    turned, _ = paired_gains(worse, better, label, 300, seed=2)
    assert turned.mean == pytest.approx(-loss.mean)
    assert turned.lower == pytest.approx(-loss.upper)


def test_the_same_scorer_twice_gains_nothing() -> None:
    score, _, label = _window()
    for gain in paired_gains(score, score, label, 50, seed=2):
        assert (gain.mean, gain.lower, gain.upper) == (0.0, 0.0, 0.0)


def test_the_standard_error_is_that_of_a_mean() -> None:
    better, worse, label = _window(rows=2000)
    loss, _ = paired_gains(better, worse, label, 1000, seed=2)
    difference = row_losses(worse, label) - row_losses(better, label)
    assert loss.standard_error == pytest.approx(difference.std() / np.sqrt(2000), rel=0.1)


def test_a_seed_gives_the_same_interval_and_another_one_does_not() -> None:
    better, worse, label = _window()
    assert paired_gains(better, worse, label, 50, 2) == paired_gains(better, worse, label, 50, 2)
    assert paired_gains(better, worse, label, 50, 2) != paired_gains(better, worse, label, 50, 3)


def test_the_roc_line_runs_from_corner_to_corner() -> None:
    score, _, label = _window()
    points = roc_points(score, label)
    assert points[0] == (0.0, 0.0)
    assert points[-1] == (1.0, 1.0)
    assert points == sorted(points)


def test_the_precision_line_ends_where_everything_is_flagged() -> None:
    score, _, label = _window()
    points = pr_points(score, label)
    assert points[-1] == (1.0, label.mean())
    assert [recall for recall, _ in points] == sorted(recall for recall, _ in points)


def test_a_regressions_gains_are_in_mae_and_rmse() -> None:
    generator = np.random.default_rng(5)
    label = generator.normal(size=3_000)
    better, worse = (label + generator.normal(scale=scale, size=3_000) for scale in (1.0, 1.2))
    decides, guards = paired_gains(better, worse, label, 400, 2, "regression")
    assert decides.mean == pytest.approx(errors_of(worse, label).mae - errors_of(better, label).mae)
    assert guards.mean == pytest.approx(errors_of(worse, label).rmse - errors_of(better, label).rmse)
    assert decides.lower > 0
    assert guards.lower > 0
