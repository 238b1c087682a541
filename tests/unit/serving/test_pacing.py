"""The open loop: every request once per version, latency from the instant it was due, errors kept."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from artifacts.step import TryAgain
from serving.pacing import WARM_REQUESTS, Answers, arm, ask_in_random_order, points, together


def test_every_version_is_asked_every_row_once_in_a_seeded_random_order() -> None:
    asked: list[tuple[str, int]] = []
    lock = threading.Lock()

    def asker(name: str) -> object:
        def ask(row: int) -> float:
            with lock:
                asked.append((name, row))
            return row / 100

        return ask

    found = ask_in_random_order([asker("a"), asker("b")], 50, 0.05, seed=1)  # type: ignore[list-item]
    measured = asked[2 * WARM_REQUESTS :]
    assert sorted(measured) == sorted((name, row) for name in "ab" for row in range(50))
    assert measured != sorted(measured)
    for answers in found:
        assert np.array_equal(answers.score, np.arange(50) / 100)
        assert not answers.failed.any()


def test_an_error_of_one_version_is_evidence_and_not_the_end() -> None:
    def broken(row: int) -> float:
        if row % 5 == 0:
            raise TryAgain("no answer")
        return float("nan") if row == 1 else 0.5

    (answers,) = ask_in_random_order([broken], 40, 0.02, seed=1)
    figures = arm(answers)
    assert (figures.requests, figures.errors, figures.not_finite) == (40, 8, 1)


def test_any_other_error_is_not_swallowed_as_an_answer() -> None:
    def wrong(row: int) -> float:
        if row > WARM_REQUESTS:
            raise ZeroDivisionError
        return 0.5

    with pytest.raises(ZeroDivisionError):
        ask_in_random_order([wrong], WARM_REQUESTS + 5, 0.01, seed=1)


def answers(milliseconds: list[float], second: list[int], failed: list[bool]) -> Answers:
    return Answers(
        np.full(len(second), 0.5), np.array(milliseconds), np.array(failed), np.array(second, dtype=np.int64)
    )


def test_a_point_is_a_second_with_answers_and_failed_requests_have_no_latency() -> None:
    found = points(answers([1, 3, 99, 5, 99], [0, 0, 0, 2, 3], [False, False, True, False, True]))
    assert found.second.tolist() == [0, 2]
    assert found.p50_ms.tolist() == [2.0, 5.0]
    assert found.error_rate.tolist() == [pytest.approx(1 / 3), 0.0]


def test_no_answer_at_all_gives_no_points_and_no_latency() -> None:
    figures = arm(answers([9, 9], [0, 1], [True, True]))
    assert (figures.points, figures.p50_ms, figures.p99_ms, figures.errors) == (0, None, None, 2)


def test_two_trials_become_one_whose_seconds_follow_each_other() -> None:
    first = Answers(np.array([0.1, 0.2]), np.array([1.0, 2.0]), np.array([False, False]), np.array([0, 1]))
    second = Answers(np.array([0.3]), np.array([3.0]), np.array([True]), np.array([0]))
    found = together(first, second)
    assert found.score.tolist() == [0.1, 0.2, 0.3]
    assert found.failed.tolist() == [False, False, True]
    assert found.second.tolist() == [0, 1, 2]
