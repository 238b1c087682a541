from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from feature_repo.catalogue import ENTITY_KEYS, FEATURES, VIEWS, feature_columns
from feature_repo.contract import RAW_TABLES, CheckPolicy
from feature_repo.expectations import raw_day, training_set
from feature_repo.expectations.rules import Rule, TableSuite, holds, known, rows
from feature_repo.tables import VIEW_SCHEMAS
from feature_repo.views import flight

POLICY = CheckPolicy()
HISTORY = (900, 1000, 950, 980)


def suites(history: tuple[int, ...] = HISTORY) -> tuple[TableSuite, ...]:
    raw, _ = raw_day.suites({"schedule": 1000, "departed": 900}, history, POLICY)
    training, _ = training_set.suites(history, POLICY)
    return (*raw, *training)


def rule(suite: TableSuite, key: str) -> Rule:
    return next(one for one in suite.rules if one.key == key)


@pytest.mark.parametrize("suite", suites(), ids=lambda suite: suite.table)
def test_keys_are_unique_within_a_suite(suite: TableSuite) -> None:
    keys = sorted(one.key for one in suite.rules)
    assert [key for key, after in pairwise(keys) if key == after] == []


@pytest.mark.parametrize("suite", suites(), ids=lambda suite: suite.table)
def test_every_suite_asks_for_rows_since_an_empty_table_passes_everything_else(suite: TableSuite) -> None:
    assert rule(suite, "rows").kwargs["min_value"] >= 1
    assert rule(suite, "rows").severity == ("warning" if suite.table == "weather" else "critical")


@pytest.mark.parametrize("suite", suites(), ids=lambda suite: suite.table)
def test_every_suite_covers_columns_types_nulls_and_keys(suite: TableSuite) -> None:
    kinds = {one.kind for one in suite.rules if one.severity == "critical"}
    assert {"ExpectTableColumnsToMatchSet", "ExpectColumnValuesToBeOfType", "ExpectColumnValuesToNotBeNull"} <= kinds
    assert any(one.key.startswith("unique:") for one in suite.rules)
    assert any(one.kind == "UnexpectedRowsExpectation" for one in suite.rules)


def test_every_raw_table_has_a_suite() -> None:
    assert tuple(suite.table for suite in suites()[:-1]) == RAW_TABLES


def test_relative_volume_is_a_band_around_the_median() -> None:
    (found,), notes = raw_day.relative_volume((900, 1000, 5000), POLICY)
    assert (found.kwargs["min_value"], found.kwargs["max_value"]) == (500, 2000)
    assert notes == ()


def test_relative_volume_is_left_out_and_said_when_too_few_days_are_known() -> None:
    found, notes = raw_day.relative_volume((900, 1000), POLICY)
    assert found == []
    assert notes == ("relative volume was not checked: volume_history has 2 entries, it needs 3",)


def test_departures_and_arrivals_are_counted_against_the_table_before() -> None:
    tables, _ = raw_day.suites({"schedule": 1000, "departed": 400}, HISTORY, POLICY)
    least = {suite.table: rule(suite, "rows").kwargs["min_value"] for suite in tables}
    assert (least["departure"], least["arrival"]) == (950, 360)


def test_an_empty_day_still_asks_for_a_row_of_each_flight_table() -> None:
    tables, _ = raw_day.suites({}, HISTORY, POLICY)
    assert all(rule(suite, "rows").kwargs["min_value"] >= 1 for suite in tables)


def test_the_training_sets_schema_is_what_views_and_request_give() -> None:
    names = set(training_set.SCHEMA.names)
    expected = {"row_id", "day", "at", "label", "label_time", *flight.REQUEST, *flight.NUMERIC, *flight.CATEGORICAL}
    assert names == expected | set(feature_columns())


@pytest.mark.parametrize("view", VIEWS)
def test_the_catalogue_names_the_columns_of_the_views(view: str) -> None:
    names = (*ENTITY_KEYS[view], "event_time", "available_time", *FEATURES[view])
    assert tuple(VIEW_SCHEMAS[view].names) == names
    assert all(VIEW_SCHEMAS[view].field(feature).type == pa.float64() for feature in FEATURES[view])


def test_the_lead_of_the_policy_reaches_the_condition() -> None:
    ((suite,), _) = training_set.suites((), CheckPolicy(lead="PT3H"))
    assert "INTERVAL 10800 SECONDS" in rule(suite, "lead").kwargs["unexpected_rows_query"]


def test_a_null_breaks_a_condition() -> None:
    assert holds("k", "a", "a > b").kwargs["unexpected_rows_query"] == (
        "SELECT 1 AS broken FROM {batch} WHERE NOT coalesce(a > b, false)"
    )


def test_a_share_and_a_severity_reach_every_column() -> None:
    found = known(("a", "b"), share=0.9, severity="warning")
    assert [(one.column, one.kwargs["mostly"], one.severity) for one in found] == [
        ("a", 0.9, "warning"),
        ("b", 0.9, "warning"),
    ]
    assert rows(5).kwargs == {"min_value": 5, "max_value": None}
