"""When ranks look up: intervals and strides are arithmetic, and what is decided is summed over ranks first."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass

import pytest

from training.contract import CheckpointPolicy
from training.pace import LONGEST_STRIDE, Orders, Pace, interval, stoppable, stride

POLICY = CheckpointPolicy()


@dataclass
class Alone:
    """A group of one; ``others`` is what the others would add to each sum."""

    leads: bool = True
    others: tuple[float, ...] = (0.0, 0.0, 0.0)

    def total(self, *values: float) -> list[float]:
        return [own + other for own, other in zip(values, self.others, strict=True)]

    def say(self, *said: object) -> None:
        pass


def _pace(ranks: Alone, policy: CheckpointPolicy = POLICY) -> Pace:
    return Pace(ranks, policy, 0, 1000, threading.Event(), began=0.0, saved=0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("run", "seconds"), [(100.0, 5.0), (18_000.0, 900.0), (36_000.0, 900.0)])
def test_checkpoints_come_every_15_minutes_or_5_percent_of_the_run(run: float, seconds: float) -> None:
    assert interval(POLICY, run) == seconds


def test_looks_are_a_quarter_of_a_second_apart_and_never_further_than_a_checkpoint() -> None:
    assert stride(0.01, 900.0) == 25
    assert stride(10.0, 900.0) == 1
    assert stride(1e-9, 900.0) == LONGEST_STRIDE
    assert stride(0.01, 0.05) == 5
    assert stride(0.01, 0.0) == 1


def test_between_two_looks_nobody_is_asked() -> None:
    pace = _pace(Alone())
    pace.next = 10
    pace.ranks.total = None  # type: ignore[method-assign,assignment]
    assert pace.look(9) == Orders(save=False, stop=False)


def test_a_stop_that_only_another_rank_heard_is_obeyed_and_saved() -> None:
    assert _pace(Alone(others=(1.0, 0.0, 0.0)), CheckpointPolicy(run_share=1.0)).look(1) == Orders(save=True, stop=True)


def test_a_rank_that_does_not_lead_decides_by_the_clock_of_rank_0() -> None:
    early = _pace(Alone(leads=False, others=(0.0, 10.0, 0.1)))
    late = _pace(Alone(leads=False, others=(0.0, 10.0, 500.0)))
    assert early.look(10) == Orders(save=False, stop=False)
    assert late.look(10) == Orders(save=True, stop=False)


def test_sigterm_is_heard_inside_and_only_inside() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stoppable() as asked:
        assert not asked.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert asked.is_set()
    assert signal.getsignal(signal.SIGTERM) is before
