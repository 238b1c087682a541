"""A regression goes through the same steps as a classification: training, evaluation, gates, page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifacts import store
from artifacts.refs import file_uri, sha256
from artifacts.step import DataFault
from tests.make import gates, regression
from tests.make import training as make
from training.contract import BoostingParams, EvaluateSpec, FitRef, GatePolicy
from training.data import read_rows
from training.evaluate import evaluate, require_unseen
from training.gate import verdicts
from training.measures import Dimension, Errors, slices_in
from training.recipes.flight_delay import COLUMNS
from training.train import train

pytestmark = pytest.mark.torch

NETWORK = make.NETWORK.model_copy(update={"learning_rate": 1e-2})
KNOWING = COLUMNS.model_copy(update={"numeric": (*COLUMNS.numeric[:3], "origin__late_share_3h")})
BLIND = COLUMNS.model_copy(update={"numeric": COLUMNS.numeric[:3]})
POLICY = GatePolicy(
    floor=0.3, boosting_margin=0.3, final_margin=0.3, margin=0.2, guard_margin=0.3, bias_limit=0.5, slice_rows=50
)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> EvaluateSpec:
    regression.install()
    folder = tmp_path_factory.mktemp("regression")
    dataset = make.dataset(folder, regression.rows(per_day=60), task="regression")
    older = make.dataset(folder / "older", regression.rows(days=25, per_day=30, seed=8), task="regression")
    fits: dict[str, FitRef] = {}
    wanted: dict[str, dict[str, Any]] = {
        "candidate": {"found": dataset, "columns": KNOWING},
        "final": {"found": dataset, "columns": KNOWING, "fit": "final", "epochs": 3},
        "champion": {"found": older, "columns": BLIND, "training_key": sha256(b"older")},
    }
    for name, changes in wanted.items():
        made = make.train_spec(
            output=folder / name, network=NETWORK, model=regression.MODEL, task="regression", **changes
        )
        fit = train(made)
        assert fit is not None
        fits[name] = fit
    return EvaluateSpec(
        model=regression.MODEL,
        dataset=dataset,
        windows=make.windows(dataset),
        **fits,
        boosting=BoostingParams(rounds=60, min_rows_per_leaf=20),
        bootstrap_draws=300,
        dimensions=(Dimension(column="flight__origin", group=True),),
        importance_rows=250,
        seed=3,
        output=file_uri(folder / "evaluation"),
    )


def test_it_learns_and_is_judged_by_mae(spec: EvaluateSpec) -> None:
    ref = evaluate(spec)
    artifact = store.read_ref(ref)
    figures = json.loads(artifact.file("evaluation.json").read_text())
    assert spec.candidate.base_rate == pytest.approx(50, abs=0.3)
    assert isinstance(ref.candidate, Errors)
    assert isinstance(ref.base_rate, Errors)
    assert ref.candidate.mae < ref.base_rate.mae - 0.3
    assert ref.candidate.r2 > 0.4
    assert abs(ref.boosting.deciding - ref.candidate.mae) < 0.4
    assert ref.gain is not None
    assert ref.gain.lower > 0
    assert ref.gain.mean == pytest.approx(ref.champion.deciding - ref.candidate.mae)  # type: ignore[union-attr]
    assert ref.positives == 0
    assert figures["metrics"] == {"deciding": "mae", "guard": "rmse"}
    assert set(figures["gains"]) == {"mae", "rmse"}
    assert max(figures["importance"], key=figures["importance"].get) == "origin__late_share_3h"
    assert "thresholds" not in figures
    page = artifact.file("evaluation.html").read_text()
    assert "MAE" in page
    assert "ROC" not in page
    evidence = gates.gate_evidence(
        dataset=spec.dataset.model_copy(update={"model": regression.MODEL}),
        validations=(gates.validation_ref(target=spec.dataset.digest),),
        candidate=spec.candidate,
        final=spec.final,
        evaluation=ref,
        slices=slices_in(artifact.file("evaluation.json").read_bytes()),
        champion_partition=spec.dataset.partition,
    )
    found = verdicts(evidence, POLICY)
    assert {each.gate: each.status for each in found} == {
        "G0 lineage": "pass",
        "G1 data": "pass",
        "G2 training sanity": "pass",
        "G3 floor": "pass",
        "G4 champion": "pass",
        "G5 slices": "pass",
        "G6 calibration": "pass",
    }, [each.reason for each in found]


def test_a_classification_is_not_compared_with_it(spec: EvaluateSpec) -> None:
    assert spec.champion is not None
    other = spec.model_copy(update={"champion": spec.champion.model_copy(update={"task": "classification"})})
    with pytest.raises(DataFault, match="champion: is a classification, the candidate a regression"):
        require_unseen(other)


def test_labels_of_a_regression_may_be_any_finite_number(spec: EvaluateSpec, tmp_path: Path) -> None:
    with pytest.raises(DataFault, match="something other than 0 and 1"):
        read_rows(spec.dataset, [])
    assert len(read_rows(spec.dataset, [], "regression")) == spec.dataset.rows
    broken = regression.rows()
    broken["label"][5] = np.nan
    damaged = make.dataset(tmp_path, broken)
    with pytest.raises(DataFault, match="no finite number"):
        read_rows(damaged, [], "regression")
