"""The ML Test Score counts evidence only, says what is missing, and is that of the weakest group."""

import datetime as dt
import json

import pytest

from artifacts.refs import file_uri
from artifacts.store import publish, write_bytes
from operators import live
from operators.ledger import ledger
from operators.ml_test_score import AIM, GROUPS, Proof, lines, main, proof_of, score, sums
from operators.pipelines import pipeline
from operators.tasks.release import PROMOTION, RELEASE
from operators.tasks.watch import DRIFT
from operators.verdicts import GATE
from operators.versions import record
from serving.contract import Routing
from tests.make import control, gates

ROW = pipeline("flight_delay")
GATES = dict.fromkeys(("G0", "G1", "G2", "G3", "G4", "G5", "G6", "G10"), "pass")
WHOLE = Proof(
    gates=GATES,
    importance={"a": (0.1, 0.01)},
    inclusion=True,
    judged_live=True,
    previous=True,
    rolled_back=True,
    checks=3,
    quality_checks=2,
    age_days=3,
)


def points(proof, name):
    return next(item.points for item in score(proof) if item.name == name)


def test_there_are_seven_tests_in_each_of_four_groups():
    items = score(Proof())
    assert [sum(item.group == group for item in items) for group in GROUPS] == [7, 7, 7, 7]
    assert len({item.name for item in items}) == 28


def test_without_evidence_there_are_no_points_and_each_line_says_what_is_missing():
    items = score(Proof())
    assert sums(items) == dict.fromkeys(GROUPS, 0.0)
    assert all(item.words for item in items)


def test_the_score_is_that_of_the_weakest_group_and_names_what_is_below_the_aim():
    items = score(WHOLE)
    assert sums(items) == {"data": 2.0, "model": 3.0, "infrastructure": 3.5, "monitoring": 4.0}
    assert lines("m", items)[-1].startswith("m: ML Test Score 2.0 of 7, the least of data 2.0, model 3.0")
    assert lines("m", items)[-1].endswith(f"below the aim of {AIM:.0f} for automatic promotion: data")


@pytest.mark.parametrize("gate", ["G0", "G1", "G2", "G3", "G4", "G5", "G6"])
@pytest.mark.parametrize("status", ["fail", "skipped", "underpowered"])
def test_a_gate_that_did_not_pass_gives_no_points(gate, status):
    without = Proof(**{**WHOLE.__dict__, "gates": {**GATES, gate: status}})
    assert sum(sums(score(without)).values()) < sum(sums(score(WHOLE)).values())


@pytest.mark.parametrize(
    ("changes", "name", "wanted"),
    [
        ({"importance": {"a": (0.1, 0.01), "b": (0.01, 0.01)}}, "all features are beneficial", 0.5),
        ({"inclusion": False}, "inclusion", 0.0),
        ({"rolled_back": False}, "rollback", 0.5),
        ({"age_days": 8}, "models are not stale", 0.0),
        ({"judged_live": False}, "canary before serving", 0.0),
        ({"checks": 0}, "input invariants hold", 0.0),
        ({"quality_checks": 0}, "no regression of quality when served", 0.0),
    ],
)
def test_what_is_missing_costs_its_points(changes, name, wanted):
    assert points(WHOLE, name) == 1.0
    assert points(Proof(**{**WHOLE.__dict__, **changes}), name) == wanted


def test_the_evidence_is_that_of_the_live_version(tmp_path, monkeypatch, capsys):
    control.deployment(tmp_path, monkeypatch, dt.datetime(2013, 9, 3, 12, tzinfo=dt.UTC))
    assert proof_of(ROW) == Proof(inclusion=True)
    version = control.version(tmp_path, 1)
    key, package = version.registered.training_key, version.registered.package.digest
    uri = file_uri(tmp_path / "evaluation")
    with publish(uri, "evaluation") as draft:
        content = {"permutation": {"a": {"increase": 0.1, "standard_error": 0.01}}}
        (draft.path / "evaluation.json").write_text(json.dumps(content))
    evaluation = gates.first_evaluation(training_key=key, uri=uri, digest=draft.manifest.digest)
    write_bytes(version.evaluation, evaluation.model_dump_json().encode())
    book = ledger()
    record(book, version)
    said = [{"gate": "G0 lineage", "status": "pass"}, {"gate": "G4 champion", "status": "skipped"}]
    book.append(GATE, ROW.model, {"training_key": key, "verdicts": said})
    book.append(RELEASE, ROW.model, {"package": package, "outcome": "promoted", "evidence": "sha256:1"})
    book.append(DRIFT, ROW.model, {"package_digest": package, "quality": {"rows": 5}})
    book.append(DRIFT, ROW.model, {"package_digest": package, "failed": True})
    book.append(DRIFT, ROW.model, {"package_digest": "sha256:other", "quality": {"rows": 5}})
    book.append(PROMOTION, ROW.model, {"rollback": False})
    routing = Routing(model=ROW.model, champion=control.deployed(1))
    live.records().put(Routing.record(ROW.model), routing.model_dump(mode="json"), 0)
    assert proof_of(ROW) == Proof(
        gates={"G0": "pass", "G4": "skipped"},
        importance={"a": (0.1, 0.01)},
        inclusion=True,
        judged_live=True,
        checks=1,
        quality_checks=1,
        age_days=3,
    )
    assert main([ROW.model]) == 0
    assert "flight_delay: ML Test Score" in capsys.readouterr().out
