"""What the demo takes for the drift retrain, its end, a release and a check, whatever broke down in between."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from operators.demo.facts import MODEL, Facts
from operators.ledger import DECISION, FAILED, Entry
from operators.tasks.release import RELEASE
from operators.tasks.watch import DRIFT
from operators.versions import record
from tests.make import control
from tests.make.operators import ledger

DAY = dt.date(2013, 9, 8)


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    return Facts(ledger(tmp_path))


def decide(facts: Facts, trigger: str = "drift") -> Entry:
    return facts.book.append(DECISION, MODEL, {"trigger": trigger, "partition": DAY.isoformat()})


def test_a_decision_whose_run_broke_down_does_not_count_until_it_ended_well_after_all(facts: Facts) -> None:
    assert facts.drift_decision() is None
    decide(facts, "manual")
    first = decide(facts)
    assert facts.drift_decision() == first
    assert facts.retrain_end() is None
    facts.book.close_decision(first, FAILED)
    assert (facts.drift_decision(), facts.retrain_end()) == (None, None)
    facts.book.close_decision(first, "trained")
    end = facts.retrain_end()
    assert facts.drift_decision() == first
    assert end is not None
    assert end.body["outcome"] == "trained"


def test_a_release_that_broke_down_is_no_end(facts: Facts, tmp_path: Path) -> None:
    version = control.version(tmp_path, 1)
    record(facts.book, version)
    body = {"package": version.registered.package.digest}
    facts.book.append(RELEASE, MODEL, {**body, "outcome": FAILED})
    assert facts.released(version) is None
    assert facts.broke_down(version)
    promoted = facts.book.append(RELEASE, MODEL, {**body, "outcome": "promoted"})
    assert facts.released(version) == promoted
    assert not facts.broke_down(version)
    assert facts.has_first()
    assert facts.first() == version


def test_a_check_that_failed_is_none(facts: Facts) -> None:
    facts.book.append(DRIFT, MODEL, {"partition": DAY.isoformat(), "failed": True})
    assert not facts.checked(DAY)
    facts.book.append(DRIFT, MODEL, {"partition": DAY.isoformat()})
    assert facts.checked(DAY)
