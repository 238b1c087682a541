from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from artifacts.refs import Ref, sha256
from feature_repo.contract import ValidateSpec
from feature_repo.expectations.rules import Rule, TableSuite, between, holds, known, rows, unique
from feature_repo.outcomes import Outcome, exception_text, judge, lines, report, snake

COLUMNS = ("flight_id", "cancelled", "departure_delay")
FLAT = {"raised_exception": True, "exception_message": "boom\nat line 3", "exception_traceback": "Traceback ..."}
QUIET = {"raised_exception": False, "exception_message": None, "exception_traceback": None}


def said(rule: Rule, found: dict[str, Any] | None) -> Outcome:
    suite = TableSuite("departure", ("flight_id",), (rule,))
    (outcome,) = judge(suite, {} if found is None else {rule.key: found}, COLUMNS, lambda _: ["f1", "f2"])
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


def test_an_expectation_that_did_not_come_back_has_failed() -> None:
    outcome = said(between("departure_delay", 0, 10), None)
    assert not outcome.success
    assert "no result came back" in outcome.line()


@pytest.mark.parametrize("info", [FLAT, {"('metric', 'id')": FLAT}, {"a": QUIET, "b": FLAT}])
def test_an_exception_is_a_failure_in_both_shapes(info: dict[str, Any]) -> None:
    outcome = said(between("departure_delay", 0, 10), {"success": True, "result": {}, "exception_info": info})
    assert not outcome.success
    assert outcome.line() == "expect_column_values_to_be_between(departure.departure_delay): could not run: boom"


@pytest.mark.parametrize("info", [None, {}, QUIET, {"a": QUIET}])
def test_no_exception_is_no_failure(info: Any) -> None:
    assert exception_text(info) is None
    assert said(between("departure_delay", 0, 10), {"success": True, "result": {}, "exception_info": info}).success


def test_an_exception_over_a_missing_column_names_the_column() -> None:
    outcome = said(between("delay", 0, 10), {"success": False, "result": {}, "exception_info": {"m": FLAT}})
    assert (
        outcome.line()
        == "expect_column_values_to_be_between(departure.delay): could not run: column 'delay' is missing"
    )


def test_a_condition_and_a_compound_key_name_their_missing_column() -> None:
    condition = holds("k", "departure_delay", "(departure_delay IS NULL) = canceled")
    assert "column 'canceled' is missing" in said(condition, {"success": False, "exception_info": FLAT}).observed
    together = unique("flight_id", "known")
    assert "column 'known' is missing" in said(together, {"success": False, "exception_info": FLAT}).observed


def test_a_broken_condition_shows_the_rows_keys() -> None:
    condition = holds("k", "departure_delay", "departure_delay > 0")
    result = {"observed_value": 2}
    line = said(condition, {"success": False, "result": result, "exception_info": QUIET}).line()
    assert (
        line
        == "unexpected_rows_expectation(departure.departure_delay): 2 rows break 'departure_delay > 0', first 2: key f1, key f2"
    )


def test_duplicate_keys_show_the_key_once() -> None:
    result = {"unexpected_percent": 50.0, "unexpected_count": 2, "element_count": 4}
    twice = [{"flight_id": "f1", "cancelled": False}] * 2
    rule = unique("flight_id", "cancelled")
    outcome = said(
        rule, {"success": False, "result": result | {"partial_unexpected_list": twice}, "exception_info": QUIET}
    )
    assert outcome.observed == "50 % not unique (2 of 4 rows)"
    assert outcome.examples == ("key f1",)


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
    target = Ref(uri="file:///x", digest=sha256(b"x"))
    spec = ValidateSpec(suite="raw_day", target=target, partition=dt.date(2013, 1, 8), output="file:///y")
    content = json.loads(report(spec, outcomes, failures, warnings))
    assert content["success"] is False
    assert [one["key"] for one in content["expectations"]] == ["a", "b", "c"]


def test_names_are_written_as_in_the_engines_documents() -> None:
    assert snake("ExpectColumnValuesToBeInSet") == "expect_column_values_to_be_in_set"
