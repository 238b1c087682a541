"""Permutation importance finds what an answer depends on, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from training.contract import Columns
from training.data import Encoded
from training.importance import increases, shares

COLUMNS = Columns(numeric=("signal", "noise"), categorical=("word",))
GENERATOR = np.random.default_rng(8)
ROWS = Encoded(
    numeric=GENERATOR.normal(size=(3_000, 2)).astype(np.float32),
    categorical=GENERATOR.integers(0, 3, (3_000, 1)),
    label=np.zeros(3_000, dtype=np.float32),
)
LOGIT = 2 * ROWS.numeric[:, 0] + 0.5 * (ROWS.categorical[:, 0] == 1)
KNOWING = Encoded(
    ROWS.numeric, ROWS.categorical, (GENERATOR.random(3_000) < 1 / (1 + np.exp(-LOGIT))).astype(np.float32)
)


def answer(numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:
    logit = 2 * numeric[:, :1] + 0.5 * (categorical[:, :1] == 1)
    return (1 / (1 + np.exp(-logit))).astype(np.float32)


def found(columns: Columns = COLUMNS, rows: Encoded = KNOWING, seed: int = 1) -> dict[str, tuple[float, float]]:
    return increases(answer, rows, columns, "classification", sample=2_000, seed=seed)


def test_what_the_answer_depends_on_costs_and_what_it_ignores_is_free() -> None:
    each = found()
    assert each["signal"][0] > 10 * each["word"][0] > 0
    assert each["noise"] == (0.0, 0.0)
    assert each["signal"][0] > 5 * each["signal"][1]


def test_the_rows_are_left_as_they_were_and_a_seed_gives_the_same_answer() -> None:
    before = KNOWING.numeric.copy(), KNOWING.categorical.copy()
    assert found() == found()
    assert found() != found(seed=2)
    assert np.array_equal(before[0], KNOWING.numeric)
    assert np.array_equal(before[1], KNOWING.categorical)


def test_a_feature_more_changes_no_other_features_importance() -> None:
    fewer = Encoded(KNOWING.numeric[:, :1], KNOWING.categorical, KNOWING.label)
    alone = found(Columns(numeric=("signal",), categorical=("word",)), fewer)
    assert alone["signal"] == found()["signal"]


def test_shares_sum_to_one_and_what_helps_when_shuffled_weighs_nothing() -> None:
    assert shares({"a": 0.03, "b": 0.01, "c": -0.02}) == pytest.approx({"a": 0.75, "b": 0.25, "c": 0.0})
    assert shares({"a": -0.1, "b": 0.0}) == {"a": 0.5, "b": 0.5}
