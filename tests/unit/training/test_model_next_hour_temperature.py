"""The temperature network: untrained it says "as warm as now", and no input makes it say anything that is no number."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from artifacts.refs import file_uri
from tests.make import gates
from tests.make import training as make
from training.contract import CategoricalInput, EvaluateSpec, GatePolicy, Signature, Windows
from training.data import Rows
from training.evaluate import naive_answers
from training.evaluation import BASE_RATE, PERSISTENCE, naive
from training.gate import verdicts
from training.models.next_hour_temperature import NOW, TemperatureNetwork, build
from training.recipes import next_hour_temperature as recipe

NUMERIC = recipe.COLUMNS.numeric
SIGNATURE = Signature(
    numeric=NUMERIC,
    categorical=(
        CategoricalInput(name="station__origin", vocabulary=("EWR", "JFK")),
        CategoricalInput(name="station__hour", vocabulary=("0", "1")),
    ),
)
MEAN, STD = [50.0] * len(NUMERIC), [15.0] * len(NUMERIC)
PLACE = NUMERIC.index(NOW)


@pytest.fixture
def network() -> TemperatureNetwork:
    torch.manual_seed(1)
    made = build(SIGNATURE, recipe.NETWORK, MEAN, STD)
    made.start_at(50.0)
    return made.eval()


def answers(network: TemperatureNetwork, now: list[float]) -> list[float]:
    numeric = torch.full((len(now), len(NUMERIC)), 40.0)
    numeric[:, PLACE] = torch.tensor(now)
    found: list[float] = network(numeric, torch.zeros(len(now), 2, dtype=torch.int64))[:, 0].tolist()
    return found


def test_untrained_it_answers_as_warm_as_now(network: TemperatureNetwork) -> None:
    assert answers(network, [32.0, 50.0, 91.4]) == pytest.approx([32.0, 50.0, 91.4], abs=1e-4)


def test_an_unknown_temperature_is_the_mean_and_a_broken_sensor_is_cut(network: TemperatureNetwork) -> None:
    found = answers(network, [float("nan"), 3e38, -3e38, float("inf")])
    assert found == pytest.approx([50.0, 170.0, -70.0, 170.0], abs=1e-3)


def test_it_learns_what_to_add(network: TemperatureNetwork) -> None:
    torch.nn.init.constant_(network.head.bias, 1.5)
    assert answers(network, [32.0, 70.0]) == pytest.approx([33.5, 71.5], abs=1e-4)


def spec(persistence: str | None) -> EvaluateSpec:
    found = gates.gate_evidence()
    return EvaluateSpec(
        model=recipe.MODEL,
        dataset=found.dataset,
        windows=Windows.cut(dt.date(2013, 1, 2), dt.date(2013, 3, 10), recipe.SPLIT),
        candidate=found.candidate,
        final=found.final,
        persistence=persistence,
        seed=1,
        output="file:///nowhere",
    )


def test_the_naive_answer_is_the_declared_column_and_the_constant_where_it_is_null() -> None:
    label = np.array([50.0, 51.0], np.float32)
    rows = Rows(np.array(["2013-01-01"] * 2, "M8[D]"), label, {NOW: np.array([49.0, np.nan])})
    declared, constant = spec(NOW), spec(None)
    base = declared.candidate.base_rate
    assert naive_answers(declared, rows).tolist() == [49.0, base]
    assert naive_answers(constant, rows).tolist() == [base, base]
    assert (naive(declared), naive(constant)) == (PERSISTENCE, BASE_RATE)


@pytest.mark.parametrize(("persistence", "name"), [(NOW, "persistence"), (None, "the base rate")])
def test_the_floor_names_what_was_not_beaten(persistence: str | None, name: str) -> None:
    policy = GatePolicy(floor=0.3, boosting_margin=0.3, final_margin=0.3)
    good = gates.gate_evidence(evaluation=gates.regression_ref(persistence=persistence))
    weak = gates.gate_evidence(
        evaluation=gates.regression_ref(persistence=persistence, base_rate=gates.errors(3.01, 4.0))
    )
    said = [next(one for one in verdicts(each, policy) if one.gate == "G3 floor") for each in (good, weak)]
    assert [one.status for one in said] == ["pass", "fail"]
    assert f"better than {name}" in said[0].reason
    assert f"beats {name}'s 3.01000" in said[1].reason


def test_a_fit_for_another_kind_of_label_is_refused(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path, days=60, per_day=2)
    with pytest.raises(ValidationError, match=r"task=regression: the labels of .* are a classification's"):
        recipe.train_spec(dataset, dataset.key, "evaluation", file_uri(tmp_path / "fit"))
