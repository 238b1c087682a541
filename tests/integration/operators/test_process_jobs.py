"""Distributed steps with real processes: their books, their budget, their end. The launcher is replaced by one process."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from artifacts.records import Records, connect
from operators import process
from operators.jobs.accounts import Accounts, open_meters, usages
from operators.jobs.budget import Budget
from operators.jobs.history import History, Job
from operators.jobs.keeper import UTILISATION
from operators.jobs.utilisation import Policy
from operators.process import ProcessRunner, StepFailed, StepRefused
from operators.steps import PlannedStep
from tests.make.jobs import torch_job
from tests.make.operators import ledger, runner, toy_step

SOON = Policy(sample_seconds=0.5, warmup_seconds=0, window_seconds=3.0, least=1.0, notify_after=1, act_after=2)


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts the step itself instead of torchrun."""

    def command(step: PlannedStep, *_: str) -> tuple[str, ...]:
        return (sys.executable, "-m", step.module, step.spec_uri, step.result_uri)

    monkeypatch.setattr(process, "command", command)


def job_runner(folder: Path, does: str = "work", **arguments: Any) -> ProcessRunner:
    job = arguments.pop("job", None) or torch_job(tenant="flights", estimate_hours=1)
    return runner(folder, step=replace(toy_step(folder, does), job=job), **arguments)


def jobs(folder: Path) -> tuple[Job, ...]:
    return History(ledger(folder)).jobs()


def accounts(folder: Path, hours: float) -> Accounts:
    book = ledger(folder)
    records = Records(connect(f"sqlite:///{folder / 'perennial.db'}"))
    return Accounts(book, records, [Budget(tenant="flights", unit="core", hours=hours)], book._now)


def test_a_job_that_ends_well_has_its_states_and_its_bill(tmp_path: Path) -> None:
    made = job_runner(tmp_path, accounts=accounts(tmp_path, hours=10)).run()
    (job,) = jobs(tmp_path)
    assert job.state == "COMPLETED"
    assert job.steps[-1].made == made.digest
    assert {"ADMITTED", "STARTING", "STORING"} <= {step.state for step in job.steps}
    (bill,) = usages(ledger(tmp_path))
    assert (bill.tenant, bill.unit, bill.units, bill.billable, bill.run_type) == ("flights", "core", 2, True, "manual")
    assert bill.seconds > 0
    assert open_meters(ledger(tmp_path)) == ()
    assert accounts(tmp_path, hours=10).standing(job.declared).reserved == 0  # settled
    assert ledger(tmp_path).verify() == []


@pytest.mark.parametrize(
    ("does", "error", "code", "billable"),
    [
        ("bad data", StepRefused, "C101", True),
        ("try again", StepFailed, "S301", False),
        ("error", StepFailed, "C202", True),
        ("die", StepFailed, "C202", True),
    ],
)
def test_a_job_that_dies_says_why_and_who_pays(
    tmp_path: Path, does: str, error: type[Exception], code: str, billable: bool
) -> None:
    with pytest.raises(error, match=f"^{code} ") as caught:
        job_runner(tmp_path, does).run()
    assert "to do: " in str(caught.value)
    (job,) = jobs(tmp_path)
    assert (job.state, job.code) == ("FAILED", code)
    (bill,) = usages(ledger(tmp_path))
    assert bill.billable is billable


def test_a_job_that_is_larger_than_its_budget_never_starts(tmp_path: Path) -> None:
    with pytest.raises(StepRefused, match="larger than the budget"):
        job_runner(tmp_path, accounts=accounts(tmp_path, hours=1)).run()
    assert (jobs(tmp_path)[0].state, jobs(tmp_path)[0].code) == ("HALTED", "Q101")
    assert usages(ledger(tmp_path)) == ()


def test_a_full_budget_queues_until_it_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book, other = accounts(tmp_path, hours=3), torch_job(estimate_hours=1)
    assert book.reserve("other-a1", other).verdict == "admit"
    mine = job_runner(tmp_path, accounts=book)
    monkeypatch.setattr(process.time, "sleep", lambda _: book.settle("other-a1", other))
    mine.run()
    assert [step.state for step in jobs(tmp_path)[0].steps][:3] == ["VALIDATED", "QUEUED", "ADMITTED"]


def test_of_two_that_want_the_last_hours_one_gets_them(tmp_path: Path) -> None:
    one, other = accounts(tmp_path, hours=3), accounts(tmp_path, hours=3)
    assert one.reserve("a", torch_job(estimate_hours=1)).verdict == "admit"
    assert other.reserve("b", torch_job(estimate_hours=1)).verdict == "queue"
    assert one.reserve("a", torch_job(estimate_hours=1)).verdict == "admit"  # its own promise is no obstacle


@pytest.mark.covers("field-reports 82")
def test_a_job_that_stands_still_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.jobs.keeper.STALL_SECONDS", 0.5)
    with pytest.raises(StepFailed, match="S202 no progress"):
        job_runner(tmp_path, "hang").run()
    assert (jobs(tmp_path)[0].state, jobs(tmp_path)[0].code) == ("FAILED", "S202")


def test_a_job_that_is_longer_than_its_deadline_is_ended(tmp_path: Path) -> None:
    with pytest.raises(StepRefused, match="C203 longer than its deadline"):
        job_runner(tmp_path, "hang", job=torch_job(deadline=dt.timedelta(seconds=0.5))).run()
    assert jobs(tmp_path)[0].code == "C203"


def test_a_job_that_idles_is_told_made_smaller_and_stopped(tmp_path: Path) -> None:
    with pytest.raises(StepRefused, match="below 100%"):
        job_runner(tmp_path, "hang", policy=SOON).run()
    smaller, first = jobs(tmp_path)
    assert (first.declared.processes_per_node, smaller.declared.processes_per_node) == (2, 1)
    assert first.key == smaller.key
    assert (first.code, smaller.code, smaller.state) == ("Q102", "Q102", "HALTED")
    acts = [entry.body["act"] for entry in ledger(tmp_path).entries(UTILISATION)]
    assert [act for act in acts if act in {"notify", "downscale", "halt"}] == ["notify", "downscale", "notify", "halt"]
