"""Eight real processes write to one SQLite database at once, and nothing is lost or doubled."""

from __future__ import annotations

import datetime as dt
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from artifacts.records import Conflict, Records, connect
from artifacts.refs import sha256
from operators.jobs.accounts import Accounts
from operators.jobs.budget import Budget
from operators.jobs.history import History
from operators.ledger import Ledger, migrate
from tests.make.jobs import torch_job

WRITERS = 8
EACH = 6
KEY = sha256(b"a key that all of them work on")


def _append(url: str, writer: int) -> list[int]:
    engine = connect(url)
    migrate(engine)  # all at once, on an empty database
    book = Ledger(engine)
    for number in range(EACH):
        book.append("gate", "m", {"writer": writer, "number": number})
        book.append("version", "m", {"writer": writer}, unique=f"version:{number}")
    return [book.begin_attempt(KEY) for _ in range(EACH)]


def _increment(url: str, writer: int) -> int:
    records, conflicts = Records(connect(url)), 0
    for _ in range(EACH):
        while True:
            found = records.get("counter")
            try:
                records.put("counter", {"n": int(str(found.value.get("n", 0))) + 1, "by": writer}, found.version)
                break
            except Conflict:
                conflicts += 1
    return conflicts


def _reserve(url: str, writer: int) -> str:
    engine = connect(url)
    book, budget = Ledger(engine), Budget(tenant="flights", unit="core", hours=5)
    mine = Accounts(book, Records(engine), [budget], lambda: dt.datetime(2013, 9, 1, tzinfo=dt.UTC))
    return mine.reserve(f"fit-{writer}-a1", torch_job(processes_per_node=1, estimate_hours=1)).verdict


def _move(url: str, writer: int) -> bool:
    history = History(Ledger(connect(url)), actor=f"writer-{writer}")
    seen = history.declare("fit-a1", KEY, 1, torch_job()).model_copy(update={"steps": ()})
    try:
        history.move(seen, "VALIDATED")
    except Conflict:
        return False
    return True


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Eight processes that share no connection and no state with this one, forked from one that has only the imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["operators.ledger", "operators.settings"])
    with ProcessPoolExecutor(WRITERS, mp_context=context) as pool:
        yield pool


def test_the_ledger_loses_and_doubles_nothing(tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    url = f"sqlite:///{tmp_path / 'perennial.db'}"
    numbers = list(pool.map(_append, [url] * WRITERS, range(WRITERS)))
    book = Ledger(connect(url))
    assert book.verify() == []
    written = {(one.body["writer"], one.body["number"]) for one in book.entries("gate")}
    assert written == {(writer, number) for writer in range(WRITERS) for number in range(EACH)}
    assert len(book.entries("version")) == EACH
    assert sorted(number for some in numbers for number in some) == list(range(1, WRITERS * EACH + 1))


def test_compare_and_set_counts_every_increment_once(tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    url = f"sqlite:///{tmp_path / 'perennial.db'}"
    migrate(connect(url))
    list(pool.map(_increment, [url] * WRITERS, range(WRITERS)))
    records = Records(connect(url))
    assert records.get("counter").value["n"] == WRITERS * EACH
    assert records.get("counter").version == WRITERS * EACH
    assert [one.value["n"] for one in records.history("counter")] == list(range(1, WRITERS * EACH + 1))


def test_a_budget_is_never_promised_twice(tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    url = f"sqlite:///{tmp_path / 'perennial.db'}"
    migrate(connect(url))
    found = list(pool.map(_reserve, [url] * WRITERS, range(WRITERS)))
    assert found.count("queue") == 3
    assert len(found) - found.count("queue") == 5  # each wants one of five hours


def test_a_job_is_moved_by_one(tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    url = f"sqlite:///{tmp_path / 'perennial.db'}"
    migrate(connect(url))
    assert list(pool.map(_move, [url] * WRITERS, range(WRITERS))).count(True) == 1
    assert len(Ledger(connect(url)).entries("job-state")) == 1
