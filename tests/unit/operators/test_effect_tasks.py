"""Every drift retrain that has ended is audited once; the precision of triggers is published, and moves the policy."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from artifacts.clock import DataClock
from artifacts.refs import file_uri, join, sha256
from artifacts.store import publish, write_bytes
from monitoring.contract import CheckRow
from monitoring.effect_contract import EffectRef
from operators import live
from operators.calls import watch as calls
from operators.ledger import DECISION, ledger
from operators.payload import Skip
from operators.pipelines import pipeline
from operators.settings import platform
from operators.tasks import effects as tasks
from operators.tasks import release, sweep
from operators.tasks.situation import situation
from operators.versions import record
from tests.make import control
from tests.make import monitoring as make

ROW = pipeline("flight_delay")
NOW = dt.datetime(2013, 9, 10, 15, tzinfo=dt.UTC)
OLD = control.package(1).digest


@pytest.fixture(autouse=True)
def _deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control.deployment(tmp_path, monkeypatch, NOW)
    record(ledger(), control.version(tmp_path, 1))


def retrained(number: int, outcome: str = "trained", released: str | None = "promoted", **changes: Any) -> int:
    """A drift retrain, its end and its version's release, all now; returns the decision."""
    body = {"trigger": "drift", "cause": "drift", "partition": "2013-09-09", "package_digest": OLD, **changes}
    decision = ledger().append(DECISION, ROW.model, body, unique=sha256(f"decision {number}".encode()))
    package = control.package(number).digest
    ledger().close_decision(decision, outcome, {"package": package} if outcome == "trained" else {})
    if outcome == "trained" and released:
        ledger().append(release.RELEASE, ROW.model, {"package": package, "outcome": released})
    return decision.id


def later(days: float) -> None:
    DataClock("replay", live.records()).advance(live.now() + dt.timedelta(days=days))


def closed(*days: dt.date) -> None:
    for kind in ("predictions", "feedback"):
        for day in days:
            with publish(join(platform().store, kind, ROW.model, day.isoformat()), kind) as draft:
                (draft.path / f"{kind}.parquet").write_text(day.isoformat())
                draft.facts["rows"] = 900


def replayed(folder: Path, number: int, old: float, new: float, labelled: int = 900) -> dict[str, Any]:
    """What the replay of one version left behind."""
    found = EffectRef(
        uri="file:///effects/1", digest=sha256(b"effect"), model=ROW.model, new=control.package(number).digest,
        first=dt.date(2013, 9, 11), last=dt.date(2013, 9, 16), requests=1000, labelled=labelled, days=6,
        loss_old=old, loss_new=new, gain_lower=old - new - 0.005,
    )  # fmt: skip
    uri = file_uri(folder / f"effect-{number}.json")
    write_bytes(uri, found.model_dump_json().encode())
    return {"result": uri, "key": found.digest}


def written() -> list[dict[str, Any]]:
    return [dict(entry.body) for entry in ledger().entries(tasks.EFFECT, ROW.model)]


def heard() -> Any:
    current = CheckRow(
        partition=dt.date(2013, 9, 9), package_digest=OLD, outcome="checked", hit=False, score=0.1, reasons=("r",)
    )
    return situation(ROW, current, None)


def test_a_refused_retrain_is_audited_at_once_and_once() -> None:
    decision = retrained(2, "refused")
    assert tasks.to_replay(ROW) == []
    assert tasks.conclude(ROW, [], [], "run") == [decision]
    assert tasks.conclude(ROW, [], [], "run") == []
    assert written()[0]["effect"]["helped"] is False
    assert written()[0]["precision"] == {"share": 0.0, "retrains": 1, "words": "0 of the last 1 drift retrains helped"}
    assert len(heard().effects) == 1


def test_a_promoted_one_is_replayed_a_week_after_its_promotion_on_what_it_answered(tmp_path: Path) -> None:
    decision = retrained(2)
    closed(*(dt.date(2013, 9, 8) + n * make.DAY for n in range(12)))
    later(6.9)
    assert tasks.to_replay(ROW) == []
    assert sweep.unfinished(ROW)["unheard"] == []
    later(0.1)
    assert tasks.to_replay(ROW) == [{"decision": decision}]
    assert sweep.unfinished(ROW)["unheard"] == [f"effect of decision {decision}"]
    spec: Any = calls.effect(ROW).spec(decision=decision)
    assert (spec.old.digest, spec.new) == (OLD, control.package(2).digest)
    days = [ref.partition for ref in spec.predictions]
    assert (days[0], days[-1]) == (dt.date(2013, 9, 10), dt.date(2013, 9, 16))
    assert [ref.partition for ref in spec.feedback] == days
    later(30)
    assert calls.effect(ROW).spec(decision=decision) == spec  # a later look reads the same
    asked = tasks.to_replay(ROW)
    assert tasks.conclude(ROW, asked, [replayed(tmp_path, 2, old=0.45, new=0.40)], "run") == [decision]
    assert isinstance(calls.effect(ROW).spec(decision=decision), Skip)
    found = written()[0]
    assert found["effect"]["quality_improved"] is True
    assert found["effect"]["gain"] == pytest.approx(0.05)
    assert found["evidence_uri"] == "file:///effects/1"
    assert heard().effects[0].helped


def test_a_version_worse_than_the_old_champion_did_not_help(tmp_path: Path) -> None:
    retrained(2)
    closed(*(dt.date(2013, 9, 11) + n * make.DAY for n in range(6)))
    later(7)
    tasks.conclude(ROW, tasks.to_replay(ROW), [replayed(tmp_path, 2, old=0.40, new=0.45)], "run")
    assert written()[0]["effect"]["helped"] is False


def test_a_replay_that_failed_is_said_and_the_score_speaks() -> None:
    decision = retrained(2)
    closed(dt.date(2013, 9, 12))
    later(8)
    asked = tasks.to_replay(ROW)
    words = {
        "dag": f"watch__{ROW.model}",
        "task": "effect",
        "run": "run",
        "map_index": "0",
        "folder": "file:///nowhere",
    }
    number = ledger().begin_attempt(sha256(b"key"), words)
    ledger().finish_attempt(sha256(b"key"), number, "refused", {"reason": "no column 'feature__x'"})
    assert tasks.conclude(ROW, asked, [], "run") == [decision]
    assert written()[0]["effect"]["reasons"][-1] == "the old champion could not be replayed: no column 'feature__x'"


def test_a_promoted_one_that_answered_no_closed_day_is_not_replayed() -> None:
    retrained(2)
    later(8)
    tasks.conclude(ROW, tasks.to_replay(ROW), [], "run")
    assert "nothing was replayed" in written()[0]["effect"]["reasons"][-1]


def test_a_version_that_was_taken_back_did_not_help_whatever_it_gained_meanwhile() -> None:
    retrained(2)
    left = {"name": "flight_delay_v2", "version": 2, "digest": control.package(2).digest}
    ledger().append(release.PROMOTION, ROW.model, {"from": left, "rollback": True, "package": OLD})
    assert tasks.to_replay(ROW) == []
    tasks.conclude(ROW, [], [], "run")
    assert written()[0]["effect"]["helped"] is False
    assert written()[0]["effect"]["reasons"][-1] == "its version was taken back by a rollback"


def test_one_that_falls_due_while_a_run_is_on_waits_for_the_next() -> None:
    retrained(2)
    closed(dt.date(2013, 9, 12))
    later(8)
    assert tasks.conclude(ROW, [], [], "run") == []


@pytest.mark.parametrize(
    "changes",
    [{"outcome": "failed"}, {"released": None}, {"trigger": "manual"}, {"cause": "staleness"}, {"cause": "labels"}],
)
def test_what_broke_down_is_not_decided_or_was_no_drift_is_not_audited(changes: dict[str, Any]) -> None:
    retrained(2, **changes)
    later(8)
    assert tasks.conclude(ROW, [], [], "run") == []


def test_below_thirty_percent_of_six_the_policy_raises_its_threshold_and_says_so() -> None:
    for number in range(2, 8):
        retrained(number, "refused")
        later(4)
    tasks.conclude(ROW, [], [], "run")
    last = written()[-1]
    assert last["trigger_share"] == pytest.approx(0.35)
    assert "so the trigger share is 0.35 instead of 0.30" in last["precision"]["words"]
    assert [row["trigger_share"] for row in written()[:5]] == [0.30] * 5
