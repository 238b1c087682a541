"""The simulation runs, through the real policy, and its fast baselines are Evidently's."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from benchmarks import drift_policy
from benchmarks.drift.loop import evidently_default, first_version, live_through, version, wasserstein
from benchmarks.drift.worlds import FEATURES, MEMORY, ROWS, Plant, World
from monitoring.contract import DriftPolicy

SHORT = DriftPolicy(reference_days=20)


def test_a_world_repeats_itself_and_its_days_depend_on_each_other() -> None:
    one, two = World(3), World(3)
    days = [one.day().features for _ in range(120)]
    assert all(np.array_equal(features, two.day().features) for features in days[:5])
    calm = World(3, level=1.0)
    means = np.stack([calm.day().features.mean(axis=0) for _ in range(400)])
    means = means - means.mean(axis=0)
    memory = (means[1:] * means[:-1]).sum(axis=0) / (means**2).sum(axis=0)
    assert memory.mean() == pytest.approx(MEMORY, abs=0.05)
    assert days[0].shape == (ROWS, FEATURES) == (950, 20)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_planted_holds_the_importance_that_was_asked_for(seed: int) -> None:
    world = World(seed, Plant(start=0, held=0.4))
    assert world.weights[world.shifted].sum() == pytest.approx(0.4, abs=0.03)
    assert world.weights.sum() == pytest.approx(1)


def test_a_planted_shift_retrains_and_a_broken_feed_never_does() -> None:
    shifted = live_through(World(1, Plant(22, 1.0)), 27, SHORT, begin=22, stop=1)
    assert [day for day in shifted.retrains if day >= 22]
    broken = live_through(World(1, Plant(21, broken="null")), 26, SHORT)
    assert broken.retrains == []
    assert set(broken.states[1:]) == {"DATA_INCIDENT"}


def test_a_weekly_wave_is_no_drift_though_one_day_of_it_is_far_from_the_mean_of_all() -> None:
    policy = DriftPolicy(reference_days=35)
    life = live_through(World(2, Plant(wave=1.0)), 35 + 20, policy)
    assert life.retrains == []
    assert set(life.states) == {"STABLE"}


def test_scenarios_that_begin_alike_share_their_first_version() -> None:
    kept = [World(4).day()] * 20
    planted = first_version(World(4, Plant(20, 1.0)), kept, SHORT)
    assert planted is first_version(World(4, Plant(30, broken="null")), kept, SHORT)
    world = World(4)
    own = version(0, world, 19, [world.day() for _ in range(20)], SHORT)
    assert planted.baseline == own.baseline
    assert first_version(World(4, Plant(wave=0.5)), kept, SHORT).baseline != own.baseline


def test_what_cannot_be_learnt_costs_two_retrains_and_then_a_person() -> None:
    life = live_through(World(1, Plant(20, 1.0, relation=True)), 32, SHORT, promotes=lambda _: False)
    assert len(life.retrains) == 2
    assert life.states[-1] == "OPEN"


def test_the_normed_wasserstein_of_the_baseline_is_evidentlys() -> None:
    os.environ["DO_NOT_TRACK"] = "1"
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from evidently.legacy.calculations.stattests import wasserstein_stat_test
        from evidently.legacy.core import ColumnType
    rng = np.random.default_rng(2)
    reference, current = rng.normal(size=20_000), rng.normal(0.2, 1, ROWS)
    at = (np.arange(ROWS) + 0.5) / ROWS
    ours = wasserstein(current, np.quantile(reference, at), float(reference.std()))
    theirs = wasserstein_stat_test(pd.Series(reference), pd.Series(current), ColumnType.Numerical, 0.1).drift_score
    assert ours == pytest.approx(theirs, abs=0.002)
    world = World(5)
    verdict = evidently_default(world, [world.day() for _ in range(20)])
    assert not verdict(world.day())
    assert verdict(World(5, Plant(start=0, shift=2.0, held=0.9)).day())


def test_the_quick_benchmark_gives_every_synthetic_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift_policy, "POLICY", SHORT)
    monkeypatch.setattr(drift_policy, "BEFORE", 21)
    short = {
        name: dataclasses.replace(
            each,
            plant=each.plant if each.plant.start > 10**8 else dataclasses.replace(each.plant, start=21),
            days=2,
            runs=1,
        )
        for name, each in drift_policy.SCENARIOS.items()
    }
    monkeypatch.setattr(drift_policy, "quick", lambda: short)
    written = tmp_path / "figures.json"
    figures = drift_policy.main(["--quick", "--workers", "1", "--json", str(written)])
    said = json.loads(written.read_text())
    assert said["name"] == "drift_policy"
    assert said["figures"] == figures
    synthetic = {"triggers_no_drift_365d", "planted_caught_4d", "unlearnable_retrains", "seasonal_triggers"}
    assert synthetic <= set(figures)
    assert set(said["targets"]) == synthetic
    assert figures["broken_feed_retrains"] == 0
