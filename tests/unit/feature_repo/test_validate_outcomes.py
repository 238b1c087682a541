from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from artifacts.refs import sha256
from feature_repo.contract import Target, ValidateSpec
from feature_repo.expectations.rules import Rule, TableSuite, between, holds, known, rows, unique
from feature_repo.outcomes import (
    BadRow,
    Outcome,
    bad_rows_csv,
    exception_text,
    judge,
    lines,
    not_run,
    over_time,
    report,
    share_out,
    snake,
)
from tests.make.expectations import CALENDAR

COLUMNS = ("flight_id", "cancelled", "departure_delay")
FLAT = {"raised_exception": True, "exception_message": "boom\nat line 3", "exception_traceback": "Traceback ..."}
QUIET = {"raised_exception": False, "exception_message": None, "exception_traceback": None}


def row(key: str, values: str = "", expectation: str = "known:cancelled") -> BadRow:
    return BadRow("departure", expectation, "critical", "2013-01-08", key, values)


def said(rule: Rule, found: dict[str, Any] | None, *rows: BadRow, late: str = "") -> Outcome:
    suite = TableSuite("departure", ("flight_id",), (rule,))
    known_rows = rows or ((row("f1"), row("f2")) if rule.broken else ())
    (outcome,), _ = judge(
        "departure", suite, {} if found is None else {rule.key: found}, COLUMNS, lambda _: known_rows, late
    )
    return outcome


def test_a_null_share_is_told_with_the_keys_of_the_rows() -> None:
    (rule,) = known(("cancelled",))
    result = {
        "unexpected_percent": 31.2,
        "unexpected_count": 312,
        "element_count": 1000,
        "partial_unexpected_list": [None],
    }
    outcome = said(rule, {"success": False, "result": result, "exception_info": QUIET})
    assert outcome.line() == (
        "expect_column_values_to_not_be_null(departure.cancelled): 31.2 % null (312 of 1000 rows), first 2: key f1, key f2"
    )


@pytest.mark.covers("field-reports 65")
def test_an_expectation_that_did_not_come_back_has_failed() -> None:
    outcome = said(between("departure_delay", 0, 10), None)
    assert not outcome.success
    assert "no result came back" in outcome.line()


@pytest.mark.covers("field-reports 68")
@pytest.mark.parametrize("info", [FLAT, {"('metric', 'id')": FLAT}, {"a": QUIET, "b": FLAT}])
def test_an_exception_is_a_failure_in_both_shapes(info: dict[str, Any]) -> None:
    outcome = said(between("departure_delay", 0, 10), {"success": True, "result": {}, "exception_info": info})
    assert not outcome.success
    assert outcome.line() == "expect_column_values_to_be_between(departure.departure_delay): could not run: boom"


@pytest.mark.parametrize("info", [None, {}, QUIET, {"a": QUIET}])
def test_no_exception_is_no_failure(info: Any) -> None:
    assert exception_text(info) is None
    assert said(between("departure_delay", 0, 10), {"success": True, "result": {}, "exception_info": info}).success


@pytest.mark.covers("field-reports 66")
def test_an_exception_over_a_missing_column_names_the_column() -> None:
    outcome = said(between("delay", 0, 10), {"success": False, "result": {}, "exception_info": {"m": FLAT}})
    assert (
        outcome.line()
        == "expect_column_values_to_be_between(departure.delay): could not run: column 'delay' is missing"
    )


def test_a_condition_and_a_compound_key_name_their_missing_column() -> None:
    condition = holds("k", "departure_delay", "(departure_delay IS NULL) = canceled", ("departure_delay", "canceled"))
    assert "column 'canceled' is missing" in said(condition, {"success": False, "exception_info": FLAT}).observed
    together = unique("flight_id", "known")
    assert "column 'known' is missing" in said(together, {"success": False, "exception_info": FLAT}).observed


def test_a_broken_condition_shows_the_rows_keys() -> None:
    condition = holds("k", "departure_delay", "departure_delay > 0", ("departure_delay",))
    result = {"observed_value": 2}
    line = said(condition, {"success": False, "result": result, "exception_info": QUIET}).line()
    assert (
        line
        == "unexpected_rows_expectation(departure.departure_delay): 2 rows break 'departure_delay > 0', first 2: key f1, key f2"
    )


def test_duplicate_keys_show_the_key_once() -> None:
    result = {"unexpected_percent": 50.0, "unexpected_count": 2, "element_count": 4}
    rule = unique("flight_id", "cancelled")
    found = {"success": False, "result": result, "exception_info": QUIET}
    outcome = said(rule, found, row("f1"), row("f1"))
    assert outcome.observed == "50 % not unique (2 of 4 rows)"
    assert outcome.examples == ("key f1",)


def test_a_row_shows_what_the_rule_read_unless_that_is_long() -> None:
    assert row("f1", "delay=-3").words() == "key f1 (delay=-3)"
    assert row("f1", "x" * 200).words() == "key f1"


def test_what_the_time_did_not_suffice_for_has_failed_and_says_so() -> None:
    late = over_time(600)
    cut = said(between("departure_delay", 0, 10), {"success": False, "exception_info": FLAT}, late=late)
    assert (cut.success, cut.observed) == (False, late)
    assert late.startswith("could not run: the time budget of 600 s")
    suite = TableSuite("departure", ("flight_id",), (rows(5), *known(("cancelled",))))
    never = not_run("departure", suite, late)
    assert [(one.key, one.success, one.observed) for one in never] == [
        ("rows", False, late),
        ("known:cancelled", False, late),
    ]


def test_what_was_not_asked_again_has_failed_without_a_count() -> None:
    outcome = said(between("departure_delay", 0, 10), {"success": False, "result": {}, "exception_info": QUIET})
    assert not outcome.success
    assert outcome.observed == "did not hold; too much is wrong with the table to count it all"


def test_rows_are_shared_out_evenly_and_what_a_small_group_leaves_goes_to_the_others() -> None:
    many = [row(f"f{number}", expectation=name) for name in ("a", "b") for number in range(50)]
    few = [row(f"f{number}", expectation="c") for number in range(4)]
    kept = share_out([*many, *few], 30)
    counts = {name: [one.key for one in kept if one.expectation == name] for name in ("a", "b", "c")}
    assert {name: len(keys) for name, keys in counts.items()} == {"a": 13, "b": 13, "c": 4}
    assert counts["a"] == [f"f{number}" for number in range(13)]
    assert share_out(few, 30) == few


def test_bad_rows_are_a_csv_with_a_head() -> None:
    text = bad_rows_csv([row("f,1", "a=1")])
    assert text == (
        'table,expectation,severity,partition,key,values\ndeparture,known:cancelled,critical,2013-01-08,"f,1",a=1\n'
    )


def test_row_count_names_the_limit() -> None:
    outcome = said(rows(200), {"success": False, "result": {"observed_value": 0}, "exception_info": QUIET})
    assert outcome.line() == "expect_table_row_count_to_be_between(departure): 0 rows, expected 200 or more"
    band = said(rows(5, 9, key="volume"), {"success": False, "result": {"observed_value": 20}, "exception_info": QUIET})
    assert band.observed == "20 rows, expected 5 to 9"


def test_only_critical_failures_gate_and_the_report_says_both() -> None:
    outcomes = [
        Outcome("t", "a", "kind", "a", "critical", success=False, observed="bad"),
        Outcome("t", "b", "kind", "b", "warning", success=False, observed="odd"),
        Outcome("t", "c", "kind", "c", "critical", success=True, observed="held"),
    ]
    failures, warnings = lines(outcomes, "critical"), lines(outcomes, "warning")
    assert (failures, warnings) == (("kind(t.a): bad",), ("kind(t.b): odd",))
    target = Target(uri="file:///x", digest=sha256(b"x"), partition=dt.date(2013, 1, 8))
    spec = ValidateSpec(suite="raw_day", calendar=CALENDAR, targets=(target,), output="file:///y")
    content = json.loads(report(spec, outcomes, failures, warnings))
    assert content["success"] is False
    assert [one["key"] for one in content["expectations"]] == ["a", "b", "c"]


def test_names_are_written_as_in_the_engines_documents() -> None:
    assert snake("ExpectColumnValuesToBeInSet") == "expect_column_values_to_be_in_set"
