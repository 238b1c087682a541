from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from artifacts.records import Conflict
from operators.jobs.history import JOB_STATE, History
from operators.ledger.tables import entries_table
from tests.make.jobs import KEY, torch_job
from tests.make.operators import ledger


def history(folder: Path) -> History:
    return History(ledger(folder))


def test_a_job_is_declared_once_and_its_history_is_whole(tmp_path: Path) -> None:
    book = History(ledger(tmp_path), actor="kueue")
    job = book.declare("fit-a1", KEY, 1, torch_job(), {"dataset": "sha256:1"})
    assert book.declare("fit-a1", KEY, 1, torch_job()) == job
    assert job.state == "DECLARED"
    job = book.move(job, "QUEUED", "no room")
    job = book.move(job, "COMPLETED")
    assert book.get("fit-a1") == job
    assert [step.state for step in job.steps] == [
        *("VALIDATED", "QUEUED", "ADMITTED", "STARTING", "PROCESSING", "STORING", "COMPLETED")
    ]
    assert job.steps[1].actor == "kueue"
    assert all(step.at.microsecond % 1000 == 0 for step in job.steps)
    assert job.over
    assert book.jobs() == (job,)


def test_the_same_state_again_is_no_move(tmp_path: Path) -> None:
    book = history(tmp_path)
    job = book.move(book.declare("fit-a1", KEY, 1, torch_job()), "QUEUED")
    assert book.move(job, "QUEUED") == job


def test_of_two_who_saw_the_same_state_one_goes_first(tmp_path: Path) -> None:
    book = history(tmp_path)
    seen = book.declare("fit-a1", KEY, 1, torch_job())
    book.move(seen, "QUEUED")
    with pytest.raises(Conflict, match="read it again"):
        book.move(seen, "HALTED")
    assert book.get("fit-a1").state == "QUEUED"


def test_terminal_is_terminal(tmp_path: Path) -> None:
    book = history(tmp_path)
    job = book.move(book.declare("fit-a1", KEY, 1, torch_job()), "FAILED", "an error", code="C201")
    assert (job.over, job.code) == (True, "C201")
    with pytest.raises(ValueError, match="cannot become PROCESSING"):
        book.move(job, "PROCESSING")


def test_an_edited_history_is_found(tmp_path: Path) -> None:
    book = history(tmp_path)
    book.move(book.declare("fit-a1", KEY, 1, torch_job()), "FAILED", "an error", code="C201")
    assert book.book.verify() == []
    with book.book._engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER perennial_ledger_no_UPDATE")
        row = sa.update(entries_table).where(entries_table.c.kind == JOB_STATE)
        connection.execute(row.values(body="{}"))
    assert any("was edited" in line for line in book.book.verify())


def test_nobody_knows_a_job_that_was_not_declared(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no job 'x'"):
        history(tmp_path).get("x")
