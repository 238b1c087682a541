from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operators.jobs.utilisation import Policy, Sample, Window, advice, smaller, windows
from tests.make.jobs import gpu_job, torch_job

POLICY = Policy()
LOW, BUSY, UNKNOWN = Window(busy=0.1), Window(busy=0.9), Window(busy=None)


def samples(minutes: float, *busy: float, phase: str = "training", steps: bool = True) -> list[Sample]:
    """One each 15 seconds, of as many units as there are shares."""
    return [
        Sample(at=15.0 * at, busy=busy, phase=phase, steps=float(at) if steps else 7.0)
        for at in range(int(minutes * 4) + 1)
    ]


def said(
    found: list[Window], downscaled: tuple[float, ...] = (), now: float = 10_000, *, can_shrink: bool = True
) -> str:
    return advice(found, POLICY, now, downscaled, can_shrink=can_shrink).act


def test_the_first_ten_minutes_do_not_count() -> None:
    assert windows(samples(29, 0.1), POLICY) == ()
    assert windows(samples(30, 0.1), POLICY) == (LOW,)
    assert len(windows(samples(71, 0.1), POLICY)) == 3


def test_one_busy_card_is_enough() -> None:
    assert windows(samples(30, 0.05, 0.95), POLICY) == (Window(busy=0.95),)


def test_a_spinning_collective_does_not_look_busy() -> None:
    assert windows(samples(30, 1.0, 1.0, steps=False), POLICY) == (Window(busy=0.0, stalled=True),)


def test_download_checkpoint_and_evaluation_are_not_held_against_it() -> None:
    for phase in ("downloading", "checkpoint", "evaluating"):
        assert windows(samples(30, 0.0, phase=phase), POLICY) == (UNKNOWN,)


def test_without_metrics_nothing_is_done() -> None:
    assert windows([Sample(at=15.0 * at, busy=()) for at in range(400)], POLICY)[0] == UNKNOWN
    assert said([LOW, LOW, UNKNOWN]) == "nothing"
    assert said([]) == "nothing"


def test_two_low_windows_notify_and_the_third_makes_it_smaller() -> None:
    assert said([BUSY, LOW]) == "nothing"
    assert said([BUSY, LOW, LOW]) == "notify"
    assert said([BUSY, LOW, LOW, LOW]) == "downscale"
    assert said([LOW, LOW, BUSY, LOW]) == "nothing"


def test_never_twice_in_an_hour_and_never_three_times() -> None:
    low = [LOW, LOW, LOW]
    assert said(low, (10_000 - 3_599,)) == "nothing"
    assert said(low, (10_000 - 3_600,)) == "downscale"
    assert said(low, (100.0, 5_000.0)) == "halt"
    assert said(low, can_shrink=False) == "halt"


@given(st.lists(st.sampled_from([LOW, BUSY, UNKNOWN]), max_size=12))
def test_a_busy_window_more_never_argues_for_less(found: list[Window]) -> None:
    assert said([*found, BUSY]) == "nothing"


def test_half_of_the_processes_and_not_below_the_least() -> None:
    half = smaller(gpu_job())
    assert half is not None
    assert half.processes_per_node == 4
    assert smaller(gpu_job(min_processes_per_node=5)) is None
    assert smaller(torch_job(processes_per_node=1)) is None
    odd = smaller(torch_job(processes_per_node=6), global_batch=1024)
    assert odd is not None
    assert odd.processes_per_node == 2  # three would not split the batch
