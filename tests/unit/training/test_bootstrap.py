"""The fast bootstrap is the naive one, draw for draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from training.bootstrap import auc_of, drawn_statistics, mean_of, resamples, root_of_mean


def _window(rows: int = 300, seed: int = 4) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    label = (generator.random(rows) < 0.3).astype(np.float64)
    return np.round(generator.random(rows) + 0.3 * label, 2), label  # rounded, so that there are ties


def test_every_draw_equals_the_one_on_rows_repeated_as_often_as_they_were_drawn() -> None:
    score, label = _window()
    loss = np.random.default_rng(9).normal(size=len(label))
    drawn = drawn_statistics((mean_of(loss), auc_of(score, label), root_of_mean(loss**2)), len(label), 40, seed=5)
    for (mean, area, root), counts in zip(drawn, resamples(len(label), 40, seed=5), strict=True):
        rows = np.repeat(np.arange(len(label)), counts)
        assert mean == pytest.approx(loss[rows].mean())
        assert area == pytest.approx(roc_auc_score(label[rows], score[rows]))
        assert root == pytest.approx(np.sqrt((loss[rows] ** 2).mean()))


def test_each_draw_has_as_many_rows_as_the_window_and_is_a_choice_with_replacement() -> None:
    found = list(resamples(500, 200, seed=1))
    assert {int(counts.sum()) for counts in found} == {500}
    assert np.mean([np.mean(counts == 0) for counts in found]) == pytest.approx(np.exp(-1), abs=0.01)


@given(few=st.integers(1, 20))
def test_the_first_draws_of_many_are_the_draws_of_few(few: int) -> None:
    score, label = _window(rows=50)
    statistic = (auc_of(score, label),)
    assert np.array_equal(
        drawn_statistics(statistic, 50, few, seed=3), drawn_statistics(statistic, 50, 20, seed=3)[:few], equal_nan=True
    )


def test_the_order_of_the_rows_changes_no_auc() -> None:
    score, label = _window()
    order = np.random.default_rng(2).permutation(len(label))
    counts = next(resamples(len(label), 1, seed=6))
    assert auc_of(score, label)(counts) == auc_of(score[order], label[order])(counts[order])


def test_a_draw_of_one_class_has_no_auc() -> None:
    counts = np.array([2, 0, 1])
    assert np.isnan(auc_of(np.array([0.1, 0.2, 0.3]), np.array([0.0, 1.0, 0.0]))(counts))
