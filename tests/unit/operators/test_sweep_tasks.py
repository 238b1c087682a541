"""``sweep`` wakes what waits, and nothing that would wake for ever."""

import datetime as dt
import os
import socket

import pytest

from artifacts.refs import join, sha256
from artifacts.store import publish, read
from operators import live
from operators.jobs import accounts, local, metering
from operators.jobs.history import History
from operators.ledger import ledger
from operators.pipelines import pipeline
from operators.settings import platform
from operators.tasks import release, sweep
from operators.versions import record
from serving.contract import Routing
from tests.make import control
from tests.make.jobs import torch_job

ROW = pipeline("flight_delay")


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path, monkeypatch)


def decide(trigger, at=control.NOON):
    body = {"trigger": trigger, "partition": "2013-08-31", "reasons": ["r"]}
    return ledger().append("decision", ROW.model, body, unique=sha256(f"{trigger}-{at}".encode()), at=at)


@pytest.mark.covers("field-reports 27")
def test_open_drift_decisions_and_unjudged_versions_are_found(tmp_path):
    decision = decide("drift")
    record(ledger(), control.version(tmp_path, 1))
    found = sweep.sweep()[ROW.model]
    assert (found["decisions"], found["packages"]) == ([decision.id], [1])
    assert ledger().entries("sweep", ROW.model)


def test_a_version_older_than_the_live_one_waits_for_nothing(tmp_path):
    newer = Routing(model=ROW.model, champion=control.deployed(2, dt.date(2013, 9, 8)))
    live.records().put(Routing.record(ROW.model), newer.model_dump(mode="json"), 0)
    record(ledger(), control.version(tmp_path, 1))
    assert sweep.unfinished(ROW)["packages"] == []


def test_a_release_that_failed_once_is_woken_again(tmp_path):
    version = control.version(tmp_path, 1)
    record(ledger(), version)
    body = {"package": version.registered.package.digest, "outcome": "failed"}
    ledger().append(release.RELEASE, ROW.model, body)
    assert sweep.unfinished(ROW)["packages"] == [1]


def test_decisions_whose_run_was_lost_are_closed_after_a_day():
    day = dt.timedelta(days=1)
    old, fresh, drift = (
        decide("manual", control.NOON - 2 * day), decide("scheduled", control.NOON - day / 2), decide("drift", control.NOON - 2 * day),
    )  # fmt: skip
    assert sweep.close_lost(ROW) == [old.id]
    assert [entry.id for entry in ledger().open_decisions(ROW.model)] == [fresh.id, drift.id]


def test_old_attempts_are_cleaned_every_six_hours_and_the_ledger_says_what_went():
    uri = join(platform().store, "a")
    for word in ("old", "new"):
        with publish(uri, "toy") as draft:
            (draft.path / "word").write_text(word)
    now = dt.datetime.now(dt.UTC)
    later = platform().attempt_grace + dt.timedelta(hours=1)
    assert sweep.clean_store(now).attempts == ()
    assert sweep.clean_store(now + dt.timedelta(hours=5)) is None
    assert len(sweep.clean_store(now + later).attempts) == 1
    assert read(uri).file("word").read_text() == "new"
    assert [len(entry.body["attempts"]) for entry in ledger().entries(sweep.CLEANED)] == [0, 1]


def test_the_meter_of_a_lost_runner_is_read_by_the_sweep():
    book = ledger()
    history, began = History(book), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    job = history.move(history.declare("fit-a1", sha256(b"k"), 1, torch_job()), "STARTING")
    gone, here = f"{socket.gethostname()}:4194304:1.00", local.uid(os.getpid())
    for uid in (gone, here):
        accounts.begin(book, metering.meter(job.declared, job.name, uid, began, "manual"))
    now = began + dt.timedelta(hours=1)
    assert sweep.close_meters(began + dt.timedelta(minutes=9)) == []
    assert sweep.close_meters(now) == [gone]
    assert sweep.close_meters(now) == []
    (bill,) = accounts.usages(book)
    assert (bill.uid, bill.closed_by, bill.code, bill.billable) == (gone, "reaper", "S201", False)
    assert (history.get("fit-a1").state, history.get("fit-a1").code) == ("FAILED", "S201")
