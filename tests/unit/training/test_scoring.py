"""Scores against sklearn and by hand, and bootstraps that mean what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from training.scoring import SCORE_FLOOR, auc, calibration_bins, paired_gains, roc_points, row_losses, scores_of


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


def test_a_certain_wrong_answer_costs_much_and_stays_finite() -> None:
    assert np.isfinite(row_losses(np.array([0.0]), np.array([1.0]))).all()


def test_a_constant_answer_has_no_order() -> None:
    assert auc(np.full(4, 0.3), np.array([0.0, 1.0, 1.0, 0.0])) == 0.5


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
