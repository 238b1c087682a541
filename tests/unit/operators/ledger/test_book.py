from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from artifacts.records import connect
from artifacts.refs import sha256
from operators.ledger import DECISION, FAILED, Ledger
from operators.ledger.book import _digest
from operators.ledger.tables import entries_table
from tests.make.operators import ledger

NOON = dt.datetime(2013, 8, 31, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
KEY = sha256(b"a key")


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return ledger(tmp_path)


def filled(book: Ledger) -> Ledger:
    for number in range(5):
        book.append("gate", "flight_delay", {"number": number}, at=NOON + number * HOUR)
    return book


def test_an_entry_is_read_back_as_it_was_written(book: Ledger) -> None:
    body = {"verdict": "pass", "gain": 0.1 + 0.2, "text": "ä", "nested": {"b": [1, None], "a": True}}
    written = book.append("gate", "flight_delay", body, actor="airflow:jane", at=NOON)
    (found,) = book.entries()
    assert found == written
    assert (found.body, found.actor, found.at, found.id) == (body, "airflow:jane", NOON, 1)
    assert book.get(1) == written
    with pytest.raises(LookupError, match="no entry 2"):
        book.get(2)


def test_times_of_other_zones_become_utc(book: Ledger) -> None:
    eastern = dt.timezone(dt.timedelta(hours=-4))
    book.append("gate", "m", {}, at=dt.datetime(2013, 8, 31, 8, tzinfo=eastern))
    assert book.entries()[0].at == NOON
    assert book.verify() == []


def test_the_data_clock_of_the_ledger_dates_entries_that_bring_no_time(tmp_path: Path) -> None:
    ledger(tmp_path)
    book = Ledger(connect(f"sqlite:///{tmp_path / 'perennial.db'}"), now=lambda: NOON)
    assert book.append("gate", "m", {}).at == NOON


def test_a_second_append_of_the_same_returns_the_first(book: Ledger) -> None:
    first = book.append("version", "m", {"n": 1}, unique="version:k")
    again = book.append("version", "m", {"n": 2}, unique="version:k")
    assert (first.existed, again.existed) == (False, True)
    assert (again.id, again.body) == (first.id, {"n": 1})
    assert len(book.entries()) == 1
    assert book.find("version:k") == first
    assert book.find("version:other") is None


def test_entries_are_chosen_by_kind_subject_time_and_number(book: Ledger) -> None:
    filled(book)
    book.append("drift", "flight_delay", {}, at=NOON)
    book.append("gate", "other", {}, at=NOON)
    assert len(book.entries("gate")) == 6
    assert len(book.entries("gate", "flight_delay")) == 5
    assert [one.body["number"] for one in book.entries("gate", "flight_delay", NOON + 3 * HOUR)] == [3, 4]
    assert [one.body["number"] for one in book.entries("gate", "flight_delay", newest=2)] == [3, 4]


def test_a_whole_ledger_verifies(book: Ledger) -> None:
    assert book.verify() == []
    assert filled(book).verify() == []


def test_rows_cannot_be_changed_by_accident(book: Ledger, tmp_path: Path) -> None:
    filled(book)
    engine = connect(f"sqlite:///{tmp_path / 'perennial.db'}")
    for statement in (entries_table.delete(), entries_table.update().values(actor="x")):
        with engine.connect() as connection, pytest.raises(sa.exc.IntegrityError, match="append-only"):
            connection.execute(statement)
    assert book.verify() == []


def _edit(connection: sa.Connection) -> None:
    connection.execute(entries_table.update().where(entries_table.c.id == 3).values(body='{"number":99}'))


def _edit_and_hash_again(connection: sa.Connection) -> None:
    row = dict(connection.execute(sa.select(entries_table).where(entries_table.c.id == 3)).mappings().one())
    row["body"] = '{"number":99}'
    connection.execute(entries_table.update().where(entries_table.c.id == 3).values(row | {"digest": _digest(row)}))


def _redate(connection: sa.Connection) -> None:
    connection.execute(entries_table.update().where(entries_table.c.id == 3).values(at=NOON - HOUR))


def _delete(connection: sa.Connection) -> None:
    connection.execute(entries_table.delete().where(entries_table.c.id == 3))


def _delete_last(connection: sa.Connection) -> None:
    connection.execute(entries_table.delete().where(entries_table.c.id == 5))


def _delete_all(connection: sa.Connection) -> None:
    connection.execute(entries_table.delete())


def _swap(connection: sa.Connection) -> None:
    for old, new in ((3, 99), (4, 3), (99, 4)):
        connection.execute(entries_table.update().where(entries_table.c.id == old).values(id=new))


def _insert(connection: sa.Connection) -> None:
    row = dict(connection.execute(sa.select(entries_table).where(entries_table.c.id == 5)).mappings().one())
    row |= {"id": 6, "previous": row["digest"]}
    connection.execute(entries_table.insert().values(row | {"digest": _digest(row)}))


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (_edit, "entry 3: content differs"),
        (_edit_and_hash_again, "entry 4: does not follow"),
        (_redate, "entry 3: content differs"),
        (_delete, "entry 3: missing"),
        (_delete_last, "the head says 5"),
        (_delete_all, "the head says 5"),
        (_swap, "entry 3: does not follow"),
        (_insert, "the newest entry is 6"),
    ],
)
def test_verify_finds_tampering(
    book: Ledger, tmp_path: Path, tamper: Callable[[sa.Connection], None], says: str
) -> None:
    filled(book)
    with connect(f"sqlite:///{tmp_path / 'perennial.db'}").begin() as connection:
        for verb in ("update", "delete"):
            connection.exec_driver_sql(f"DROP TRIGGER perennial_ledger_no_{verb}")
        tamper(connection)
    assert any(says in problem for problem in book.verify())


def test_decisions_are_open_until_closed_once(book: Ledger) -> None:
    first = book.append(DECISION, "flight_delay", {"trigger": "drift"}, unique="d1", at=NOON)
    second = book.append(DECISION, "flight_delay", {"trigger": "manual"}, unique="d2", at=NOON)
    book.append(DECISION, "other", {"trigger": "drift"}, at=NOON)
    assert book.open_decisions("flight_delay") == (first, second)
    closed = book.close_decision(first, "promoted", {"version": 7}, at=NOON)
    assert closed.body == {"decision": first.id, "outcome": "promoted", "version": 7}
    again = book.close_decision(first, "failed", at=NOON)
    assert (again.existed, again.body["outcome"]) == (True, "promoted")
    assert book.open_decisions("flight_delay") == (second,)
    with pytest.raises(ValueError, match="only a 'decision' can be closed"):
        book.close_decision(closed, "promoted")


def test_a_failure_that_ended_well_after_all_is_superseded_by_an_entry_that_says_so(book: Ledger) -> None:
    decision = book.append(DECISION, "flight_delay", {"trigger": "drift"}, at=NOON)
    failed = book.close_decision(decision, FAILED, {"reason": "killed"}, at=NOON)
    assert book.close_decision(decision, FAILED, at=NOON).id == failed.id
    trained = book.close_decision(decision, "trained", {"version": 7}, at=NOON + HOUR)
    assert trained.body == {"decision": decision.id, "outcome": "trained", "version": 7, "supersedes": failed.id}
    assert book.closures("flight_delay") == {decision.id: trained}
    assert book.close_decision(decision, "refused", at=NOON).id == trained.id  # a verdict is never superseded
    assert book.close_decision(decision, FAILED, at=NOON).id == failed.id
    assert book.closures("flight_delay") == {decision.id: trained}
    assert book.verify() == []


def test_the_steps_of_one_task_are_found_by_its_run_and_map_index(book: Ledger) -> None:
    for run, index in (("r1", 0), ("r1", 1), ("r2", 0), ("r1", 1)):
        words = {"dag": "watch", "task": "check", "run": run, "map_index": str(index)}
        number = book.begin_attempt(sha256(f"{run}{index}".encode()), words, at=NOON)
        book.finish_attempt(sha256(f"{run}{index}".encode()), number, "refused" if index else "done", at=NOON)
    found = book.of_task("watch", "r1", "check")
    assert {index: (one.attempt, one.outcome) for index, one in found.items()} == {0: (1, "done"), 1: (2, "refused")}


def test_attempts_count_up_and_keep_their_first_outcome(book: Ledger) -> None:
    assert [book.begin_attempt(KEY, {"module": "training.train"}, at=NOON) for _ in range(3)] == [1, 2, 3]
    assert book.begin_attempt(sha256(b"another"), at=NOON) == 1
    book.finish_attempt(KEY, 1, "failed", {"reason": "killed"}, at=NOON)
    book.finish_attempt(KEY, 1, "done", at=NOON)
    book.finish_attempt(KEY, 3, "done", at=NOON)
    assert [(one.attempt, one.outcome) for one in book.attempts(KEY)] == [(1, "failed"), (2, None), (3, "done")]
    assert [(one.key == KEY, one.attempt, one.outcome) for one in book.status()] == [
        (False, 1, None),
        (True, 3, "done"),
        (True, 2, None),
        (True, 1, "failed"),
    ]
    assert [one.attempt for one in book.status(newest=2)] == [1, 3]


def test_migrating_again_keeps_everything(tmp_path: Path) -> None:
    filled(ledger(tmp_path))
    assert len(ledger(tmp_path).entries()) == 5
