"""Evaluation on a synthetic window with a known signal, and the windows that cannot judge."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifacts import store
from artifacts.refs import file_uri, sha256
from artifacts.step import DataFault
from tests.make import training as make
from training.contract import BoostingParams, EvaluateSpec, FitRef
from training.evaluate import evaluate, require_probabilities
from training.recipes.flight_delay import COLUMNS, MODEL
from training.train import train

pytestmark = pytest.mark.torch

NETWORK = make.NETWORK.model_copy(update={"learning_rate": 1e-2})
FEWER = COLUMNS.model_copy(update={"numeric": COLUMNS.numeric[:5], "categorical": ("flight__dest",)})


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> EvaluateSpec:
    """A candidate, its final fit, and a champion of an earlier partition with other columns and words."""
    folder = tmp_path_factory.mktemp("evaluate")
    dataset = make.dataset(folder, per_day=60)
    earlier = make.rows(days=25, per_day=30, seed=8)
    earlier["flight__dest"] = ["OLD", *earlier["flight__dest"][1:]]
    older = make.dataset(folder / "older", earlier)
    fits: dict[str, FitRef] = {}
    wanted: dict[str, dict[str, Any]] = {
        "candidate": {"found": dataset},
        "final": {"found": dataset, "fit": "final", "epochs": 2},
        "champion": {"found": older, "columns": FEWER, "training_key": sha256(b"older")},
    }
    for name, changes in wanted.items():
        fit = train(make.train_spec(output=folder / name, network=NETWORK, **changes))
        assert fit is not None
        fits[name] = fit
    return EvaluateSpec(
        model=MODEL,
        dataset=dataset,
        windows=make.windows(dataset),
        **fits,
        boosting=BoostingParams(rounds=30, min_rows_per_leaf=20),
        bootstrap_draws=200,
        seed=3,
        output=file_uri(folder / "evaluation"),
    )


def test_the_candidate_beats_what_knows_less_and_the_evidence_is_complete(spec: EvaluateSpec) -> None:
    ref = evaluate(spec)
    artifact = store.read_ref(ref)
    figures = json.loads(artifact.file("evaluation.json").read_text())
    assert ref.candidate.log_loss < ref.base_rate.log_loss - 0.02
    assert ref.candidate.auc > 0.7
    assert ref.base_rate.auc == 0.5
    assert abs(ref.candidate.auc - ref.boosting.auc) < 0.1
    assert ref.gain_log_loss is not None
    assert ref.gain_log_loss.lower > 0
    assert ref.champion_key == sha256(b"older")
    assert sum(figures["importance"].values()) == pytest.approx(1)
    assert max(figures["importance"], key=figures["importance"].get) == "origin__late_share_3h"
    assert sum(each["rows"] for each in figures["reliability"]["candidate"]) == ref.rows == 300
    assert figures["bootstrap"]["draws"] == 200
    page = artifact.file("evaluation.html").read_text()
    assert page.count("<svg") == 2
    assert "src=" not in page
    again = evaluate(spec.model_copy(update={"output": f"{spec.output}-again"}))
    assert again.digest == ref.digest


def test_a_fit_that_has_seen_the_window_is_refused(spec: EvaluateSpec) -> None:
    late = spec.champion.model_copy(update={"seen_last": spec.windows.test_first})  # type: ignore[union-attr]
    with pytest.raises(DataFault, match=r"champion: seen_last=.* does not precede test_first"):
        evaluate(spec.model_copy(update={"champion": late}))
    with pytest.raises(DataFault, match="candidate: is a final fit"):
        evaluate(spec.model_copy(update={"candidate": spec.final}))


def test_a_window_with_one_class_is_refused(spec: EvaluateSpec, tmp_path: Path) -> None:
    columns = make.rows(per_day=60)
    first = spec.windows.test_first
    columns["label"] = np.where([day >= first for day in columns["day"]], 0, columns["label"]).astype(np.int8)
    changed = spec.model_copy(update={"dataset": make.dataset(tmp_path, columns)})
    with pytest.raises(DataFault, match="of the test window have label 0"):
        evaluate(changed)


def test_an_empty_window_is_refused(spec: EvaluateSpec) -> None:
    shift = dt.timedelta(days=60)
    later = {name: day + shift for name, day in spec.windows if name.startswith("test")}
    with pytest.raises(DataFault, match="no rows in the test window"):
        evaluate(spec.model_copy(update={"windows": spec.windows.model_copy(update=later)}))


@pytest.mark.parametrize("broken", [np.nan, -0.1, 1.1, np.inf])
def test_scores_that_are_no_probabilities_are_refused(broken: float) -> None:
    with pytest.raises(DataFault, match="1 of 2 scores are no probability"):
        require_probabilities(np.array([0.5, broken]), "candidate")
