from __future__ import annotations

import numpy as np
import pytest

from monitoring import quality
from monitoring.contract import DriftPolicy
from monitoring.windows import Labelled
from tests.make import gates as make

POLICY = DriftPolicy()


def rows(rate: float, days: int = 5, per_day: int = 300, noise: float = 0.0, seed: int = 3) -> Labelled:
    """Labels drawn from the scores, which a noise may spoil afterwards."""
    rng = np.random.default_rng(seed)
    truth = rng.beta(8 * rate, 8 * (1 - rate), days * per_day)
    label = (rng.random(len(truth)) < truth).astype(float)
    score = np.clip(truth * (1 - noise) + rng.random(len(truth)) * noise, 0.01, 0.99)
    return Labelled(score, label, np.repeat(np.arange(days), per_day), 1.0, 0)


def measured(given: Labelled, log_loss: float = 0.5) -> quality.Quality:
    evaluation = make.evaluation_ref(candidate=make.scores(log_loss), rows=13_000, positives=3_250)
    found = quality.measure(given, evaluation, POLICY, np.random.default_rng(1))
    assert found is not None
    return found


def test_skill_falls_when_a_calm_world_flatters_the_log_loss() -> None:
    """decisions.md 1.3: raw log loss improves when the base rate falls, although the model is now wrong by half."""
    stormy = rows(0.26, per_day=2000)
    fewer = stormy.label * (np.random.default_rng(9).random(len(stormy.label)) < 0.5)
    calm = Labelled(stormy.score, fewer, stormy.day, 1.0, 0)
    before, after = measured(stormy, log_loss=0.52), measured(calm, log_loss=0.52)
    assert after.log_loss < before.log_loss
    assert after.skill < before.skill
    assert after.difference_upper < 0 < before.difference_upper


def test_a_drop_is_confirmed_only_when_the_bound_is_below_zero() -> None:
    assert measured(rows(0.25)).difference_upper > 0
    assert measured(rows(0.25, noise=0.9)).difference_upper < 0


def test_two_days_confirm_nothing() -> None:
    found = measured(rows(0.25, days=2, per_day=800, noise=0.9))
    assert found.skill < found.skill_at_promotion
    assert found.difference_upper == pytest.approx(1 - found.skill_at_promotion)


def test_too_few_labels_or_events_give_no_figure() -> None:
    evaluation, rng = make.evaluation_ref(), np.random.default_rng(1)
    assert quality.measure(rows(0.25, days=1, per_day=400), evaluation, POLICY, rng) is None
    one_label = rows(0.25)
    none_late = Labelled(one_label.score, np.zeros_like(one_label.label), one_label.day, 1.0, 0)
    assert quality.measure(none_late, evaluation, POLICY, rng) is None


def test_auc_counts_ties_as_half() -> None:
    assert quality.auc(np.array([0.1, 0.5, 0.5, 0.9]), np.array([0.0, 0.0, 1.0, 1.0])) == 0.875
    assert quality.auc(np.array([0.1, 0.5]), np.array([1.0, 1.0])) is None


def test_the_bootstrap_resamples_whole_days() -> None:
    """Days that agree leave nothing to draw, however few rows they have."""
    label, score = np.tile([0.0, 1.0], 50), np.tile([0.2, 0.7], 50)
    losses = quality.row_losses(score, label)
    draws = quality.resampled_skill(losses, label, np.repeat(np.arange(5), 20), 200, np.random.default_rng(1))
    assert np.ptp(draws) == pytest.approx(0, abs=1e-12)
