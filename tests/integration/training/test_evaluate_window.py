"""Evaluation on a synthetic window with a known signal, and the windows that cannot judge."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifacts import store
from artifacts.refs import file_uri, local_path, sha256
from artifacts.step import DataFault
from tests.make import training as make
from training.contract import BoostingParams, EvaluateSpec, FitRef
from training.evaluate import evaluate, require_answers
from training.measures import Dimension, slices_in
from training.recipes.flight_delay import COLUMNS, MODEL
from training.train import train

pytestmark = pytest.mark.torch

NETWORK = make.NETWORK.model_copy(update={"learning_rate": 1e-2})
# a few columns, since on so few rows the noise of all of them would drown what there is to learn
KNOWING = COLUMNS.model_copy(update={"numeric": (*COLUMNS.numeric[:5], "origin__late_share_3h")})
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
        "candidate": {"found": dataset, "columns": KNOWING},
        "final": {"found": dataset, "columns": KNOWING, "fit": "final", "epochs": 2},
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
        dimensions=(Dimension(column="flight__dest"), Dimension(column="flight__carrier", group=True)),
        thresholds=(0.5,),
        importance_rows=250,
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
    assert ref.gain is not None
    assert ref.gain.lower > 0
    assert ref.champion_key == sha256(b"older")
    assert sum(figures["importance"].values()) == pytest.approx(1)
    assert max(figures["importance"], key=figures["importance"].get) == "origin__late_share_3h"
    assert sum(each["rows"] for each in figures["reliability"]["candidate"]) == ref.rows == 300
    assert figures["bootstrap"]["draws"] == 200
    assert [each["why"] for each in figures["thresholds"]["candidate"]] == ["declared", "base rate"]
    assert figures["permutation"]["origin__late_share_3h"]["increase"] > 0.01
    assert figures["curve"][0]["epoch"] == 0
    slices = slices_in(artifact.file("evaluation.json").read_bytes())
    assert sum(each.rows for each in slices if each.dimension == "flight__carrier") == ref.rows
    assert {each.known for each in slices} == {True}
    page = artifact.file("evaluation.html").read_text()
    for title in ("Reliability", "ROC", "Precision and recall", "Learning curve"):
        assert f"<title>{title}" in page
    assert "src=" not in page
    assert "<script" not in page
    again = evaluate(spec.model_copy(update={"output": f"{spec.output}-again"}))
    assert again.digest == ref.digest


def test_a_fit_that_has_seen_the_window_is_refused(spec: EvaluateSpec) -> None:
    late = spec.champion.model_copy(update={"seen_last": spec.windows.test_first})  # type: ignore[union-attr]
    with pytest.raises(DataFault, match=r"champion: seen_last=.* does not precede test_first"):
        evaluate(spec.model_copy(update={"champion": late}))
    with pytest.raises(DataFault, match="candidate: is a final fit"):
        evaluate(spec.model_copy(update={"candidate": spec.final}))


@pytest.mark.covers("bad evidence: no positives")
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
@pytest.mark.covers("bad evidence: NaN scores")
def test_scores_that_are_no_probabilities_are_refused(broken: float) -> None:
    with pytest.raises(DataFault, match="1 of 2 scores are no probability"):
        require_answers(np.array([0.5, broken]), "candidate", "classification")


@pytest.mark.covers("bad evidence: new slice")
def test_a_value_that_the_champion_never_saw_is_a_new_slice(spec: EvaluateSpec, tmp_path: Path) -> None:
    columns = make.rows(per_day=60)
    first = spec.windows.test_first
    columns["flight__dest"] = [
        "NEW" if day >= first and place % 5 == 0 else word
        for place, (day, word) in enumerate(zip(columns["day"], columns["flight__dest"], strict=True))
    ]
    changed = {"dataset": make.dataset(tmp_path, columns), "output": file_uri(tmp_path / "evaluation")}
    found = slices_in(store.read_ref(evaluate(spec.model_copy(update=changed))).file("evaluation.json").read_bytes())
    new = {each.value: each for each in found if each.known is False}
    assert list(new) == ["NEW"]
    assert new["NEW"].rows == 60
    assert new["NEW"].gain_over_base is not None


@pytest.mark.parametrize("damage", ["gone", "altered"])
@pytest.mark.covers("bad evidence: champion gone")
def test_a_champion_whose_fit_is_gone_or_altered_is_no_first_model(
    spec: EvaluateSpec, tmp_path: Path, damage: str
) -> None:
    assert spec.champion is not None
    copy = tmp_path / "champion"
    shutil.copytree(local_path(spec.champion.uri), copy)  # type: ignore[arg-type]
    if damage == "gone":
        (copy / "manifest.json").unlink()
    else:
        next(copy.glob("attempt-*/weights.pt")).write_bytes(b"other weights")
    champion = spec.champion.model_copy(update={"uri": file_uri(copy)})
    output = file_uri(tmp_path / "evaluation")
    with pytest.raises(DataFault, match="champion: its evaluation fit cannot be opened, so nothing can be compared"):
        evaluate(spec.model_copy(update={"champion": champion, "output": output}))
    assert store.manifest(output) is None


def test_answers_of_a_regression_may_be_any_finite_number() -> None:
    assert require_answers(np.array([-40.0, 110.0]), "candidate", "regression").min() == -40
    with pytest.raises(DataFault, match="1 of 2 scores are no finite number"):
        require_answers(np.array([1.0, np.nan]), "candidate", "regression")
