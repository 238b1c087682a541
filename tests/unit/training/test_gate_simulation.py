"""The bootstrap and G4 on worlds whose truth is known: a short run of ``benchmarks.gates``."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.gates import POLICY, World, covered, trial, verdict, world

TRIALS, ROWS, DRAWS = 60, 6_000, 250


def statuses(given: World) -> Counter[str]:
    return Counter(verdict(trial(given, number, ROWS, DRAWS), ROWS) for number in range(TRIALS))


@pytest.fixture(scope="module", params=[0.0, 1.0, 2.0], ids=["equal", "margin", "twice"])
def case(request: pytest.FixtureRequest) -> tuple[float, World]:
    return request.param, world(request.param * POLICY.margin, 0)


def test_a_world_is_as_much_worse_as_it_says(case: tuple[float, World]) -> None:
    margins, given = case
    assert given.gain == pytest.approx(-margins * POLICY.margin, abs=2e-4)
    assert abs(given.gain_auc) < 3e-4


def test_worse_candidates_are_refused_and_equal_ones_mostly_go_on(case: tuple[float, World]) -> None:
    margins, given = case
    found = statuses(given)
    if margins == 0:
        assert found["pass"] >= 0.8 * TRIALS
    elif margins == 1:
        assert found["pass"] <= 0.05 * TRIALS
    else:
        assert found["fail"] >= 0.95 * TRIALS


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    given = world(POLICY.margin, 0)
    inside = [
        (covered(gain, given.gain), covered(guard, given.gain_auc))
        for gain, guard in (trial(given, number, 1_000, 300) for number in range(200))
    ]
    for share in np.mean(inside, axis=0):
        assert 0.90 <= share <= 0.99  # of 200: within three standard errors of 95 %
