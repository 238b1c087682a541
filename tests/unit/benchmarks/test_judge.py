"""The judge's simulation: the targets hold on fewer trials, and a world that is clearly worse is always caught."""

from __future__ import annotations

import pytest

from benchmarks.judge import World, caught


@pytest.mark.parametrize(
    ("world", "least", "most"),
    [
        (World(), 0.0, 0.03),
        (World(p50=1.2), 0.9, 1.0),
        (World(p99=1.3), 0.9, 1.0),
        (World(requests=7750, errors=0.01, champion_errors=0.005), 0.85, 1.0),
        (World(p50=2.0), 1.0, 1.0),
        (World(errors=0.05), 1.0, 1.0),
    ],
)
def test_a_world_is_caught_as_often_as_promised(world: World, least: float, most: float) -> None:
    assert least <= caught(world, trials=200) <= most
