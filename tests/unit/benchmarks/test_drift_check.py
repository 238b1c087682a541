from __future__ import annotations

from benchmarks.drift_check import TARGETS, seconds


def test_a_small_check_runs_as_the_control_plane_runs_it() -> None:
    assert seconds(600, 6, per_day=50, days=20) > 0
    assert set(TARGETS) == {"seconds_50k", "seconds_1m"}
