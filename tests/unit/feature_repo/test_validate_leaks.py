from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from feature_repo.contract import CheckPolicy
from feature_repo.leaks import leaks

POLICY = CheckPolicy()
ROWS = 6000


@pytest.fixture
def label() -> np.ndarray[Any, Any]:
    return (np.random.default_rng(3).random(ROWS) < 0.3).astype(np.int8)


def found(name: str, values: np.ndarray[Any, Any], label: np.ndarray[Any, Any]) -> list[str]:
    return [outcome.line() for outcome in leaks({name: values}, label, POLICY) if not outcome.success]


def test_ordinary_features_pass(label: np.ndarray[Any, Any]) -> None:
    rng = np.random.default_rng(4)
    columns = {
        "noise": rng.random(ROWS),
        "informative": label + rng.normal(0, 1, ROWS),
        "sparse": np.where(rng.random(ROWS) < 0.9, np.nan, rng.random(ROWS)),
        "constant": np.zeros(ROWS),
        "nothing": np.full(ROWS, np.nan),
        "city": rng.choice(np.array(["a", "b", None], dtype=object), ROWS),
        "unique": np.array([f"id{number}" for number in range(ROWS)], dtype=object),
    }
    outcomes = leaks(columns, label, POLICY)
    assert [outcome.line() for outcome in outcomes if not outcome.success] == []
    assert len(outcomes) == 2 * len(columns)


def test_tail_number_is_caught_by_its_nulls_though_its_auc_is_harmless(label: np.ndarray[Any, Any]) -> None:
    rng = np.random.default_rng(5)
    cancelled = (label == 1) & (rng.random(ROWS) < 0.5)
    tail = np.array([f"N{number}" for number in rng.integers(0, 300, ROWS)], dtype=object)
    tail[cancelled] = None
    (line,) = found("tailnum", tail, label)
    assert line == (
        "expect_no_group_with_one_label(rows.tailnum): 1 groups of 500 rows or more hold one label only, "
        f"first 1: null ({cancelled.sum()} rows, label share 1)"
    )


def test_a_category_with_one_label_is_caught(label: np.ndarray[Any, Any]) -> None:
    status = np.where((label == 0) & (np.arange(ROWS) % 2 == 0), "landed", "other").astype(object)
    (line,) = found("status", status, label)
    assert "landed" in line
    assert "label share 0" in line


def test_a_quantile_bin_with_one_label_is_caught_whatever_the_rest_looks_like(label: np.ndarray[Any, Any]) -> None:
    rng = np.random.default_rng(6)
    delay = np.where((label == 1) & (rng.random(ROWS) < 0.4), 100 + rng.random(ROWS), rng.random(ROWS))
    assert any("hold one label only" in line for line in found("delay", delay, label))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_feature_that_ranks_the_label_is_caught_either_way_round(label: np.ndarray[Any, Any], sign: int) -> None:
    strong = sign * (label + np.random.default_rng(7).normal(0, 0.2, ROWS))
    assert any(
        line.startswith("expect_auc_alone_to_be_at_most(rows.strong): AUC 0.99")
        for line in found("strong", strong, label)
    )


def test_a_group_below_the_minimum_is_not_judged(label: np.ndarray[Any, Any]) -> None:
    rare = np.zeros(ROWS)
    rare[np.flatnonzero(label == 1)[: POLICY.leak_rows - 1]] = np.nan
    assert found("rare", rare, label) == []
    rare[np.flatnonzero(label == 1)[: POLICY.leak_rows]] = np.nan
    assert len(found("rare", rare, label)) == 1


def test_one_kind_of_label_cannot_be_judged_and_that_is_a_failure() -> None:
    lines = found("x", np.random.default_rng(8).random(ROWS), np.zeros(ROWS, np.int8))
    assert any("could not run" in line for line in lines)


def test_auc_is_the_mann_whitney_statistic() -> None:
    scores = np.array([0.1, 0.4, 0.4, 0.8, np.nan])
    (outcome,) = [o for o in leaks({"x": scores}, np.array([0, 1, 0, 1, 1]), POLICY) if o.key == "auc:x"]
    assert outcome.observed == "AUC 0.8750 alone, at most 0.98"  # pairs: 1 + 0.5 + 1 + 1 of 4


@pytest.fixture
def reading() -> np.ndarray[Any, Any]:
    """A temperature that wanders, in steps of a tenth."""
    return np.round(60 + np.cumsum(np.random.default_rng(9).normal(0, 0.9, ROWS)), 1)


def numbers_found(name: str, values: np.ndarray[Any, Any], label: np.ndarray[Any, Any]) -> list[str]:
    return [outcome.line() for outcome in leaks({name: values}, label, POLICY, "regression") if not outcome.success]


def test_what_was_known_an_hour_before_a_number_is_no_leak(reading: np.ndarray[Any, Any]) -> None:
    rng = np.random.default_rng(10)
    columns = {
        "now": np.concatenate([[np.nan], reading[:-1]]) + rng.normal(0, 1.5, ROWS),
        "noise": rng.random(ROWS),
        "constant": np.zeros(ROWS),
        "nothing": np.full(ROWS, np.nan),
        "station": rng.choice(np.array(["a", "b", None], dtype=object), ROWS),
        "unique": np.array([f"id{number}" for number in range(ROWS)], dtype=object),
    }
    outcomes = leaks(columns, reading, POLICY, "regression")
    assert [outcome.line() for outcome in outcomes if not outcome.success] == []
    assert len(outcomes) == 2 * len(columns)


@pytest.mark.parametrize("copy", ["same", "celsius", "turned"])
def test_a_copy_of_a_number_is_caught_in_any_unit(reading: np.ndarray[Any, Any], copy: str) -> None:
    values = {"same": reading, "celsius": (reading - 32) / 1.8, "turned": -reading}[copy]
    lines = numbers_found("later", values, reading)
    assert any(
        line.startswith("expect_rank_correlation_alone_to_be_at_most(rows.later): rank correlation 1.0000")
        for line in lines
    )


def test_a_group_with_one_number_is_caught(reading: np.ndarray[Any, Any]) -> None:
    stuck = np.where(np.arange(ROWS) % 5 == 0, 32.0, reading)
    status = np.where(np.arange(ROWS) % 5 == 0, "stuck", "moves").astype(object)
    (line,) = numbers_found("status", status, stuck)
    assert "stuck (1200 rows, label 32)" in line
    nulls = np.where(np.arange(ROWS) % 5 == 0, np.nan, np.random.default_rng(11).random(ROWS))
    assert any("null (1200 rows, label 32)" in line for line in numbers_found("gone", nulls, stuck))


def test_one_number_for_all_cannot_be_judged_and_that_is_a_failure() -> None:
    lines = numbers_found("x", np.random.default_rng(8).random(ROWS), np.full(ROWS, 3.5))
    assert any("could not run" in line for line in lines)
