from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from artifacts.records import Conflict, Records, SchemaMismatch, check_schema, connect, schema_table
from operators.ledger import migrate


@pytest.fixture
def records(tmp_path: Path) -> Records:
    engine = connect(f"sqlite:///{tmp_path / 'records.db'}")
    migrate(engine)
    return Records(engine)


def test_an_unwritten_record_is_version_zero(records: Records) -> None:
    found = records.get("routing/m")
    assert (found.version, found.value, found.written_at) == (0, {}, None)


def test_every_version_stays_readable(records: Records) -> None:
    for number in range(3):
        written = records.put("routing/m", {"champion": number}, number)
        assert written.version == number + 1
    assert records.get("routing/m").value == {"champion": 2}
    assert [one.value["champion"] for one in records.history("routing/m")] == [0, 1, 2]
    written_at = records.get("routing/m").written_at
    assert written_at is not None
    assert abs(written_at - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


@pytest.mark.parametrize("expected", [0, 2, 7])
def test_a_writer_that_expects_another_version_is_refused(records: Records, expected: int) -> None:
    records.put("routing/m", {"champion": 1}, 0)
    with pytest.raises(Conflict, match="read it again"):
        records.put("routing/m", {"champion": 9}, expected)
    assert records.get("routing/m").value == {"champion": 1}


def test_names_do_not_touch_each_other(records: Records) -> None:
    records.put("a", {"x": 1}, 0)
    records.put("b", {"x": 2}, 0)
    assert (records.get("a").value, records.get("b").version) == ({"x": 1}, 1)


def test_names_are_found_by_how_they_begin(records: Records) -> None:
    for name in ("routing/b", "routing/a", "routing_c", "clock"):
        records.put(name, {}, 0)
    records.put("routing/a", {"x": 1}, 1)
    assert records.names("routing/") == ("routing/a", "routing/b")
    assert records.names("routing_") == ("routing_c",)


def test_a_database_without_or_with_another_schema_is_refused(tmp_path: Path) -> None:
    engine = connect(f"sqlite:///{tmp_path / 'none.db'}")
    with pytest.raises(SchemaMismatch, match=r"schema is absent.*operators\.ledger migrate"):
        check_schema(engine)
    migrate(engine)
    check_schema(engine)
    with engine.begin() as connection:
        connection.execute(schema_table.insert().values(version=99))
    with pytest.raises(SchemaMismatch, match="schema is 99"):
        check_schema(engine)
    with pytest.raises(SchemaMismatch, match="newer release"):
        migrate(engine)
