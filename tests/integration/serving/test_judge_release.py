"""Judging staged versions on a real server: equal models pass, a scrambled one does not, no evidence is no pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artifacts import store
from artifacts.refs import file_uri
from artifacts.step import DataFault, TryAgain
from feature_repo.contract import DatasetRef
from serving.contract import (
    JudgementRef,
    JudgeSpec,
    LoadPolicy,
    PackageRef,
    PredictionsRef,
    ReleasePolicy,
    ScrambleSpec,
    Slo,
    StageRef,
    StageSpec,
    TritonServer,
)
from serving.judge import judge
from serving.scramble import scramble
from serving.triton import stage
from tests.make import serving as make
from tests.make import training as make_training
from training.recipes.flight_delay import COLUMNS, MODEL

pytestmark = pytest.mark.triton

# Latency of two equal versions on a busy machine is left to the unit tests of the rules: limits are wide here.
LOAD = LoadPolicy(closed_seconds=0.1, open_seconds=1.0, rates=(1.0, 2.0))
POLICY = ReleasePolicy(requests=120, points=4, minimum_labelled=100, p50_increase=20.0, p99_increase=20.0, load=LOAD)
Staged = tuple[StageRef, PackageRef]


@pytest.fixture(scope="module")
def staged(
    triton: TritonServer, packaged: PackageRef, dataset: DatasetRef, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Staged]:
    """Three versions in the server: a champion, a retrained one that is nearly the same, and a scrambled one."""
    folder = tmp_path_factory.mktemp("judged")
    packages = {
        "champion": packaged,
        "retrained": make.packaged(folder, dataset, name="retrained", noise=0.01),
        "scrambled": scramble(ScrambleSpec(package=packaged, output=file_uri(folder / "scrambled"))),
    }
    return {
        name: (stage(StageSpec(package=found, name=f"judged_v{number}", triton=triton, warm_requests=5)), found)
        for number, (name, found) in enumerate(packages.items(), start=1)
    }


@pytest.fixture
def judged(triton: TritonServer, staged: dict[str, Staged], tmp_path: Path) -> Callable[..., JudgementRef]:
    def ask(version: str, against: str | None, **changes: Any) -> JudgementRef:
        other = staged[against] if against else (None, None)
        fields: dict[str, Any] = {
            "model": MODEL,
            "candidate": staged[version][0],
            "candidate_package": staged[version][1],
            "champion": other[0],
            "champion_package": other[1],
            "triton": triton,
            "policy": POLICY,
            "seed": 5,
            "output": file_uri(tmp_path / "judgement"),
        }
        return judge(JudgeSpec.model_validate({**fields, **changes}))

    return ask


def predictions(folder: Path, rows: int, *, without: str = "") -> PredictionsRef:
    """A closed partition of the log with ``rows`` answered rows."""
    columns = make_training.rows(days=10, per_day=40, seed=99)
    names = [name for name in (*COLUMNS.numeric, *COLUMNS.categorical) if name != without]
    table = pa.table({
        "request_id": [str(number) for number in range(rows)],
        **{f"feature__{name}": columns[name][:rows] for name in names},
    })
    uri = file_uri(folder / f"predictions-{rows}{without}")
    with store.publish(uri, "predictions") as draft:
        pq.write_table(table, draft.path / "predictions.parquet")
    assert draft.manifest is not None
    day = make_training.FIRST
    return PredictionsRef(uri=uri, digest=draft.manifest.digest, model=MODEL, partition=day, rows=rows)


def content(ref: JudgementRef) -> dict[str, Any]:
    return json.loads(store.read_ref(ref).file("judgement.json").read_text())


def test_a_version_as_good_as_the_champion_passes_on_logged_requests(
    judged: Callable[..., JudgementRef], tmp_path: Path
) -> None:
    ref = judged("retrained", "champion", predictions=(predictions(tmp_path, 150),))
    assert ref.status == "pass", ref.reasons
    assert ref.kind == "paired replay"
    said = content(ref)
    assert said["requests_from"] == "log"
    assert said["status"] == "pass"
    assert ref.figures["candidate_requests"] == ref.figures["champion_requests"] == 120
    assert ref.figures["equal_share"] == 1.0
    assert ref.figures["candidate_points"] == 4
    served, offline = ref.figures["difference_served"], ref.figures["difference_offline"]
    assert served is not None
    assert offline is not None
    assert 0 < served < 2 * offline
    page = store.read_ref(ref).file("judgement.html").read_text()
    assert page.count("<svg") == 4
    assert "http" not in page


def test_the_candidate_is_held_to_what_its_row_promises_under_load(
    judged: Callable[..., JudgementRef], staged: dict[str, Staged]
) -> None:
    ref = judged("champion", None)
    points = content(ref)["load"]["points"]
    closed, opened = ([p for p in points if p["loop"] == loop] for loop in ("closed", "open"))
    assert [(p["batch"], p["concurrency"]) for p in closed] == [(1, 1), (1, 8), (32, 1), (32, 8)]
    assert [p["rate"] for p in opened] == [50, 100]
    assert all(p["requests"] > 0 and p["errors"] == 0 for p in points)
    assert ref.figures["load_capacity"] == 100
    assert "promised: p99 1000 ms at 50 requests" in store.read_ref(ref).file("judgement.html").read_text()
    package = staged["champion"][1]
    strict = package.serving.model_copy(update={"slo": Slo(latency_p99_ms=0.001, requests_per_second=50)})
    idle = POLICY.model_copy(
        update={"load": POLICY.load.model_copy(update={"idle_share": 1e9})}
    )  # the machine is never busy
    refused = judged("champion", None, policy=idle, candidate_package=package.model_copy(update={"serving": strict}))
    assert refused.status == "fail"
    assert any("G9 budget: p99 is" in reason for reason in refused.reasons)


def test_latency_that_speaks_alone_against_a_version_is_measured_twice(judged: Callable[..., JudgementRef]) -> None:
    slow = {"alpha": 1.0, "p50_increase": -0.99, "p99_increase": -0.99}  # any latency at all is too long
    ref = judged("retrained", "champion", policy=POLICY.model_copy(update=slow))
    assert (ref.status, ref.figures["candidate_requests"]) == ("fail", 2 * POLICY.requests)
    assert all(reason.startswith(("p50", "p99")) for reason in ref.reasons)


def test_a_scrambled_version_stages_and_is_refused_by_its_evidence(judged: Callable[..., JudgementRef]) -> None:
    ref = judged("scrambled", "champion")
    assert ref.status == "fail"
    own, champion = ref.reasons
    assert "its own evaluation says" in own
    assert "the champion's" in champion
    assert ref.figures["candidate_requests"] == 0, (
        "what labels refuse is not asked, and what was not asked is not missing"
    )


def test_a_scrambled_first_version_is_refused_without_a_champion(judged: Callable[..., JudgementRef]) -> None:
    ref = judged("scrambled", None)
    assert (ref.kind, ref.status, ref.champion) == ("shadow", "fail", None)


def test_a_first_version_passes_in_shadow_on_rows_of_its_dataset(judged: Callable[..., JudgementRef]) -> None:
    ref = judged("champion", None)
    assert (ref.kind, ref.status) == ("shadow", "pass"), ref.reasons
    assert content(ref)["requests_from"] == "dataset"
    assert ref.figures["log_loss"] == pytest.approx(ref.figures["claimed_log_loss"], rel=1e-5)


@pytest.mark.covers("field-reports 124")
def test_too_few_requests_are_no_evidence(judged: Callable[..., JudgementRef], tmp_path: Path) -> None:
    many = POLICY.model_copy(update={"requests": 100_000, "points": 1})
    ref = judged("champion", None, policy=many, predictions=(predictions(tmp_path, 20),))
    assert ref.status == "inconclusive"
    assert all(reason.startswith("NO_EVIDENCE") for reason in ref.reasons)


def test_a_log_that_lacks_a_feature_of_the_candidate_is_not_replayed(
    judged: Callable[..., JudgementRef], tmp_path: Path
) -> None:
    ref = judged("champion", None, predictions=(predictions(tmp_path, 150, without=COLUMNS.numeric[0]),))
    assert content(ref)["requests_from"] == "dataset"


def test_a_name_that_holds_another_package_is_refused_before_a_request_is_sent(
    judged: Callable[..., JudgementRef], staged: dict[str, Staged]
) -> None:
    swapped = staged["champion"][0].model_copy(update={"name": staged["scrambled"][0].name})
    with pytest.raises(DataFault, match="a name is never used twice"):
        judged("champion", None, candidate=swapped)


def test_a_version_that_a_restarted_server_has_lost_is_loaded_again_and_judged(
    judged: Callable[..., JudgementRef], staged: dict[str, Staged]
) -> None:
    lost = staged["champion"][0].model_copy(update={"name": "judged_v99"})
    ref = judged("champion", "retrained", candidate=lost)
    assert ref.status == "pass"
    assert ref.figures["candidate_errors"] == 0


def test_a_server_that_is_down_is_no_verdict(judged: Callable[..., JudgementRef], triton: TritonServer) -> None:
    with pytest.raises(TryAgain, match=r"127\.0\.0\.1:9"):
        judged("champion", None, triton=triton.model_copy(update={"grpc": "127.0.0.1:9"}))


def test_scrambled_scores_are_far_from_the_original(staged: dict[str, Staged]) -> None:
    from serving.engines.onnxruntime import load
    from serving.package import golden_tensors, read_golden

    good, bad = (store.read_ref(staged[name][1]) for name in ("champion", "scrambled"))
    rows = golden_tensors(read_golden(good))
    found = load(bad.file("model.onnx")).run(rows.numeric, rows.categorical)
    assert np.abs(found - rows.score).mean() > 0.05
