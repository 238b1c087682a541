"""Holm's rule."""

from __future__ import annotations

import math

from training.significance import holm

NAN = math.nan


def test_holm_steps_down() -> None:
    assert holm({"p50": 0.009, "p99": 0.019}, 0.02) == {"p50", "p99"}
    assert holm({"p50": 0.011, "p99": 0.019}, 0.02) == frozenset()
    assert holm({"p50": NAN, "p99": 0.019}, 0.02) == {"p99"}
