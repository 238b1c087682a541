from __future__ import annotations

import dataclasses
import datetime as dt

import numpy as np
import pytest

from monitoring import quality
from monitoring.contract import DriftPolicy, Quality
from monitoring.windows import Labelled

POLICY = DriftPolicy()


def partitions(days: int) -> tuple[dt.date, ...]:
    return tuple(dt.date(2013, 9, 1) + number * dt.timedelta(days=1) for number in range(days))


def rows(rate: float, days: int = 5, per_day: int = 300, noise: float = 0.0, seed: int = 3) -> Labelled:
    """Labels drawn from the scores, which a noise may spoil afterwards."""
    rng = np.random.default_rng(seed)
    truth = rng.beta(8 * rate, 8 * (1 - rate), days * per_day)
    label = (rng.random(len(truth)) < truth).astype(float)
    score = np.clip(truth * (1 - noise) + rng.random(len(truth)) * noise, 0.01, 0.99)
    return Labelled(score, label, np.repeat(np.arange(days), per_day), np.full(days, per_day), partitions(days))


def promoted(log_loss: float = 0.5, days: np.ndarray | None = None) -> quality.Promoted:
    """Skill of a log loss on a window of which a quarter was late."""
    return quality.Promoted(1 - log_loss / quality.entropy(0.25), days)


def measured(given: Labelled, log_loss: float = 0.5) -> Quality:
    found = quality.measure(given, promoted(log_loss), POLICY, np.random.default_rng(1))
    assert found is not None
    return found


def test_skill_falls_when_a_calm_world_flatters_the_log_loss() -> None:
    """decisions.md 1.3: raw log loss improves when the base rate falls, although the model is now wrong by half."""
    stormy = rows(0.26, per_day=2000)
    fewer = stormy.label * (np.random.default_rng(9).random(len(stormy.label)) < 0.5)
    calm = dataclasses.replace(stormy, label=fewer)
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
    rng = np.random.default_rng(1)
    assert quality.measure(rows(0.25, days=1, per_day=400), promoted(), POLICY, rng) is None
    one_label = rows(0.25)
    none_late = dataclasses.replace(one_label, label=np.zeros_like(one_label.label))
    assert quality.measure(none_late, promoted(), POLICY, rng) is None


def test_auc_counts_ties_as_half() -> None:
    assert quality.auc(np.array([0.1, 0.5, 0.5, 0.9]), np.array([0.0, 0.0, 1.0, 1.0])) == 0.875
    assert quality.auc(np.array([0.1, 0.5]), np.array([1.0, 1.0])) is None


def test_the_bootstrap_resamples_whole_days() -> None:
    """Days that agree leave nothing to draw, however few rows they have."""
    label, score = np.tile([0.0, 1.0], 50), np.tile([0.2, 0.7], 50)
    given = Labelled(
        np.tile(score, 10), np.tile(label, 10), np.repeat(np.arange(5), 200), np.full(5, 200), partitions(5)
    )
    found = measured(given)
    assert found.skill_lower == pytest.approx(found.skill_upper)
    assert found.auc_lower == pytest.approx(found.auc_upper)


def test_the_days_at_promotion_widen_the_bound() -> None:
    given = rows(0.25)
    one_day = [600.0, 250.0, 1000.0]
    loose = np.array([[one_day[0] * (1 + 0.3 * (-1) ** day), *one_day[1:]] for day in range(14)]).T
    exact, both = (
        quality.measure(given, promoted(days=days), POLICY, np.random.default_rng(1)) for days in (None, loose)
    )
    assert exact is not None
    assert both is not None
    assert (exact.both_resampled, both.both_resampled) == (False, True)
    assert both.difference_upper > exact.difference_upper
    assert both.skill == exact.skill


def test_the_bound_holds_as_often_as_it_says() -> None:
    """Percentiles of resamples of three days would call one quiet window in five a drop."""
    policy = DriftPolicy(quality_confidence=0.95, bootstrap_draws=300)
    rng, wrong, windows = np.random.default_rng(8), 0, 400
    for _ in range(windows):
        truth = np.clip(rng.beta(2, 6, (3, 300)) + 0.04 * rng.normal(size=(3, 1)), 0.01, 0.99)  # days of their own
        label = (rng.random(truth.shape) < truth).astype(float)
        skill = 1 - quality.entropy(truth).mean() / quality.entropy(truth.mean())
        given = Labelled(truth.ravel(), label.ravel(), np.repeat(np.arange(3), 300), np.full(3, 300), partitions(3))
        found = quality.measure(given, quality.Promoted(float(skill)), policy, rng)
        assert found is not None
        wrong += found.difference_upper < 0
    assert wrong / windows < 0.08


def test_intervals_hold_the_figure_and_shrink_with_days() -> None:
    few, many = measured(rows(0.25, days=3)), measured(rows(0.25, days=7))
    for found in (few, many):
        assert found.skill_lower is not None
        assert found.skill_upper is not None
        assert found.auc is not None
        assert found.skill_lower < found.skill < found.skill_upper
        assert (found.auc_lower or 0) < found.auc < (found.auc_upper or 1)
    assert many.skill_upper - many.skill_lower < few.skill_upper - few.skill_lower  # type: ignore[operator]
    assert (many.days, many.first, many.last) == (7, partitions(7)[0], partitions(7)[6])
    two = measured(rows(0.25, days=2, per_day=800))
    assert two.skill_lower is two.auc_lower is None


def test_the_auc_of_days_is_the_auc_of_their_rows() -> None:
    given = rows(0.3)
    pairs = quality.day_pairs(given.score, given.label, given.day)
    sums = quality.day_sums(given.score, given.label, given.day)
    area = pairs.sum() / (sums[1].sum() * (sums[2] - sums[1]).sum())
    assert area == pytest.approx(quality.auc(given.score, given.label))


def test_a_day_that_is_labelled_in_part_is_left_out() -> None:
    """The labels of early flights come first, so they are no sample of the day."""
    given = dataclasses.replace(rows(0.25, days=3), requests=np.array([300, 330, 400]))
    kept, partial = quality.enough(given, POLICY)
    assert partial == 1
    assert np.unique(kept.day).tolist() == [0, 1]
    assert kept.coverage == pytest.approx(600 / 1030)


def test_the_estimate_is_right_when_scores_are_calibrated() -> None:
    rng = np.random.default_rng(4)
    score = rng.beta(2, 6, 200_000)
    label = (rng.random(len(score)) < score).astype(float)
    guess = quality.estimate(score)
    assert guess is not None
    assert guess.log_loss == pytest.approx(quality.row_losses(score, label).mean(), rel=0.01)
    assert guess.positives == pytest.approx(label.mean(), rel=0.01)
    assert guess.auc == pytest.approx(quality.auc(score, label), abs=0.005)
    assert guess.skill == pytest.approx(1 - guess.log_loss / quality.entropy(label.mean()), rel=0.03)


def test_the_estimate_cannot_see_a_changed_relation() -> None:
    score = np.random.default_rng(4).beta(2, 6, 2000)
    guess = quality.estimate(score)
    assert guess is not None
    assert quality.row_losses(score, np.ones(2000)).mean() > 2 * guess.log_loss


def test_alike_scores_have_no_estimated_skill_and_no_rows_no_estimate() -> None:
    guess = quality.estimate(np.full(100, 0.25))
    assert guess is not None
    assert (guess.skill, guess.auc) == (None, None)
    assert quality.estimate(np.empty(0)) is None


def test_a_gain_over_the_old_champion_has_a_bound_over_days() -> None:
    day = np.repeat(np.arange(7), 300)
    old = np.random.default_rng(2).exponential(0.5, len(day))
    mean, lower = quality.gain(old, old - 0.01, day, 500, np.random.default_rng(1))
    assert mean == pytest.approx(0.01)
    assert lower == pytest.approx(0.01)
    luck = old + 0.05 * np.where(day % 2, 1, -1)
    mean, lower = quality.gain(old, luck, day, 500, np.random.default_rng(1))
    assert lower < mean
    assert lower < 0


def readings(off: float, drift: float = 1.2, days: int = 5, per_day: int = 300, seed: int = 3) -> Labelled:
    """Temperatures, answers that are ``off`` on average, and a naive answer that is off by ``drift``."""
    rng = np.random.default_rng(seed)
    label = 60 + 15 * rng.random(days * per_day)
    return Labelled(
        score=label + rng.laplace(0, off, len(label)),
        label=label,
        day=np.repeat(np.arange(days), per_day),
        requests=np.full(days, per_day),
        partitions=partitions(days),
        task="regression",
        naive=label + rng.laplace(0, drift, len(label)),
    )


def test_a_regressions_skill_is_its_error_beside_that_of_its_naive_answer() -> None:
    found = quality.measure(readings(0.9), quality.Promoted(0.25), POLICY, np.random.default_rng(1))
    assert found is not None
    assert (found.task, found.auc, found.auc_lower) == ("regression", None, None)
    assert found.log_loss == pytest.approx(0.9, rel=0.05)
    assert found.base_log_loss == pytest.approx(1.2, rel=0.05)
    assert found.skill == pytest.approx(1 - found.log_loss / found.base_log_loss)
    assert found.skill_lower is not None
    assert found.skill_lower < found.skill
    assert found.difference_upper > 0


def test_a_regression_that_lost_its_skill_is_a_confirmed_drop_and_a_wild_week_is_none() -> None:
    worse = quality.measure(readings(1.2), quality.Promoted(0.25), POLICY, np.random.default_rng(1))
    wild = quality.measure(readings(1.8, drift=2.4), quality.Promoted(0.25), POLICY, np.random.default_rng(1))
    assert worse is not None
    assert worse.difference_upper < 0
    assert wild is not None
    assert wild.log_loss > worse.log_loss
    assert wild.difference_upper > 0


def test_a_naive_answer_that_is_missing_is_the_labels_median() -> None:
    whole = readings(0.9)
    assert whole.naive is not None
    gone = dataclasses.replace(whole, naive=np.full(len(whole.label), np.nan))
    assert quality.base_loss(gone) == pytest.approx(float(np.abs(np.median(whole.label) - whole.label).mean()))
    assert quality.base_loss(gone) == quality.base_loss(dataclasses.replace(whole, naive=None))


def test_few_labels_of_a_regression_give_no_figure() -> None:
    few = readings(0.9, days=1, per_day=POLICY.minimum_labels - 1)
    assert quality.measure(few, quality.Promoted(0.25), POLICY, np.random.default_rng(1)) is None
