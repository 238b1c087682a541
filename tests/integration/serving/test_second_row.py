"""The second row on real weather, from raw records to a watched version: a regression goes through every step as the first does."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest

from artifacts.clock import DataClock
from artifacts.refs import file_uri, join
from artifacts.store import read_ref
from monitoring.check import check
from monitoring.contract import CheckSpec, ReferenceSpec
from monitoring.reference import freeze
from serving.contract import (
    Deployed,
    JudgeSpec,
    ReplayedPartition,
    ReplaySpec,
    Routing,
    StageRef,
    StageSpec,
    TritonServer,
)
from serving.judge import judge
from serving.replay import replay
from serving.triton import stage
from tests.make import gateway as make
from tests.make import second_row
from tests.make.second_row import DAY, PARTITION, REPLAYED, ROW, Made
from training.measures import Errors

# eight weeks of every view are built first: minutes, and more of them on a busy machine
pytestmark = [pytest.mark.spark, pytest.mark.torch, pytest.mark.triton, pytest.mark.timeout(1800)]

NAME = f"{ROW.model}_v1"
JANUARY_2 = dt.date(2013, 1, 2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    store = second_row.store_of(tmp_path_factory.mktemp("second"))
    second_row.features(store, REPLAYED[-1] + DAY)
    return second_row.made(store)


@dataclass(frozen=True)
class Live:
    """A version that a real Triton has loaded and a real gateway routes to."""

    root: Path
    staged: StageRef
    gateway: make.Process
    clock: DataClock


@pytest.fixture(scope="module")
def live(made: Made, triton: TritonServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    root = tmp_path_factory.mktemp("live")
    staged = stage(StageSpec(package=made.package, name=NAME, triton=triton))
    begins = ROW.calendar.starts(REPLAYED[0])
    deployed = Deployed(name=NAME, version=1, package=made.package, created_at=begins, promoted_at=begins)
    kept = make.records(root)
    kept.put(Routing.record(ROW.model), Routing(model=ROW.model, champion=deployed).model_dump(mode="json"), 0)
    with make.gateway(root, triton.grpc, PERENNIAL_GATEWAY_MODELS=json.dumps([ROW.model])) as process:
        yield Live(root, staged, process, make.clock(kept))


@pytest.fixture(scope="module")
def replayed(made: Made, live: Live) -> tuple[ReplayedPartition, ...]:
    spec = ReplaySpec(
        model=ROW.model,
        question=ROW.question,
        serving=ROW.serving,
        calendar=ROW.calendar,
        gateway=live.gateway.url,
        token_file=live.root / "gateway.token",
        lake=ROW.repo.lake(made.store),
        views=ROW.repo.views(made.store),
        online=str(live.root / "online"),
        log=file_uri(live.root / "log"),
        predictions=join(made.store, "predictions", ROW.model),
        feedback=join(made.store, "feedback", ROW.model),
        first=REPLAYED[0],
        last=REPLAYED[-1],
    )
    return tuple(replay(spec, live.clock, lambda *_: None))


def test_its_training_set_has_an_hour_a_row_and_a_number_for_a_label(made: Made) -> None:
    rows = pq.read_table(read_ref(made.dataset).file("rows.parquet")).to_pandas()
    assert (made.dataset.task, made.dataset.positives) == ("regression", 0)
    assert (made.dataset.first, made.dataset.last) == (JANUARY_2, PARTITION - DAY)
    assert 70 * 53 < len(rows) <= 72 * 53
    assert rows.label.between(-10, 80).all()
    assert ((rows.hour - rows["at"]) == dt.timedelta(minutes=30)).all()
    assert (rows.label_time >= rows.hour).all()
    assert {found.suite for found in made.validations} == {"raw_day", "training_set"}
    now = rows.set_index(["origin", "hour"]).label
    before = rows.assign(hour=rows.hour - dt.timedelta(hours=1)).set_index(["origin", "hour"])
    both = before.join(now.rename("observed"), how="inner")
    assert len(both) > 3000
    newest = both[both["weather__temp"].notna()]
    assert (newest["weather__temp"] == newest.observed).mean() > 0.99  # the hour before is what was known at T


def test_it_beats_persistence_and_passes_every_gate(made: Made) -> None:
    found = made.evaluation
    assert isinstance(found.candidate, Errors)
    assert isinstance(found.base_rate, Errors)
    assert found.persistence == "weather__temp"
    assert found.candidate.mae < found.base_rate.mae - ROW.gates.floor
    assert found.candidate.mae < found.boosting.deciding + ROW.gates.boosting_margin
    said = {verdict.gate: (verdict.status, verdict.reason) for verdict in made.verdicts}
    assert said.pop("G4 champion")[0] == "skipped"
    assert {status for status, _ in said.values()} == {"pass"}, said
    assert "better than persistence" in said["G3 floor"][1]
    page = read_ref(found).file("evaluation.html").read_text()
    assert "persistence" in page
    assert "ROC" not in page


def test_its_package_says_that_it_is_a_regression(made: Made) -> None:
    assert made.package.parity.status == "pass"
    assert made.package.serving.task == "regression"
    assert made.package.signature.numeric[0] == "weather__temp"


def test_the_release_judge_compares_errors(made: Made, live: Live, triton: TritonServer, tmp_path: Path) -> None:
    spec = JudgeSpec(
        model=ROW.model,
        candidate=live.staged,
        candidate_package=made.package,
        champion=None,
        champion_package=None,
        final=made.final,
        triton=triton,
        policy=ROW.release,
        seed=ROW.recipe.SEED,
        output=file_uri(tmp_path / "judgement"),
    )
    found = judge(spec)
    assert found.status == "pass", found.reasons
    assert found.figures["mae"] == pytest.approx(found.figures["claimed_mae"], rel=1e-4)
    assert "log_loss" not in found.figures


def test_three_days_of_callers_get_the_next_hours_temperature(
    made: Made, live: Live, replayed: tuple[ReplayedPartition, ...]
) -> None:
    assert [one.partition for one in replayed] == list(REPLAYED)
    answers = [read_ref(one.compacted.predictions).file("predictions.parquet") for one in replayed]
    rows = pq.read_table(answers[1]).to_pandas()
    assert len(rows) == 72
    assert (rows.score - rows["feature__weather__temp"]).abs().max() < 15
    assert rows["age__weather"].max() <= 2 * 3600 - 1
    labels = pq.read_table(read_ref(replayed[1].compacted.feedback).file("feedback.parquet")).to_pandas()
    assert labels.label.dtype == "float64"
    both = rows.set_index("request_id").join(labels.set_index("request_id"), how="inner")
    assert len(both) > 60
    assert (both.score - both.label).abs().mean() < 2.5
    with live.gateway.client() as client:
        refused = client.post(
            "/v2/feedback", json={"request_id": "a", "label": "warm", "known_at": "2013-02-27T12:00Z"}
        )
        assert (refused.status_code, "label" in refused.json()["error"]) == (400, True)
        answer: httpx.Response = client.post(f"/v2/models/{ROW.model}/infer", json=asked())
    assert answer.status_code == 200
    (score,) = answer.json()["outputs"][0]["data"]
    assert -10 < score < 80


def asked() -> dict[str, object]:
    inputs = {"origin": "JFK", "hour": "2013-02-28T16:00:00Z"}
    return {
        "id": "by-hand",
        "inputs": [
            {"name": name, "shape": [1, 1], "datatype": "BYTES", "data": [value]} for name, value in inputs.items()
        ],
    }


def test_the_watch_checks_it_by_its_own_days_and_its_own_error(
    made: Made, replayed: tuple[ReplayedPartition, ...], tmp_path: Path
) -> None:
    common = {"model": ROW.model, "evaluation": made.evaluation, "policy": ROW.drift, "seed": ROW.recipe.SEED}
    reference = freeze(
        ReferenceSpec(package=made.package, final=made.final, output=file_uri(tmp_path / "reference"), **common)
    )
    baseline = json.loads(read_ref(reference).file("baseline.json").read_text())
    assert baseline["label"]["kind"] == "numeric"
    found = check(
        CheckSpec(
            reference=reference,
            predictions=tuple(one.compacted.predictions for one in replayed),
            feedback=tuple(one.compacted.feedback for one in replayed),
            output=file_uri(tmp_path / "check"),
            **common,
        )
    )
    assert found.outcome == "checked", found.notes
    assert found.rows >= ROW.drift.minimum_rows
    assert found.quality is not None
    assert found.quality.task == "regression"
    assert found.quality.days == len(REPLAYED)
    assert found.quality.auc is None
    assert found.quality.skill == pytest.approx(1 - found.quality.log_loss / found.quality.base_log_loss)
    assert found.label is not None
    assert found.estimate is None
    assert "skill" in read_ref(found).file("summary.html").read_text()
    assert Path(read_ref(found).file("report.html")).exists()
