from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from feature_repo.catalogue import ENTITY_KEYS, FEATURES, VIEWS, Feature, feature_column, feature_columns
from feature_repo.contract import RAW_TABLES, CheckPolicy
from feature_repo.expectations import daily, raw_day, training_set, view_day
from feature_repo.expectations.rules import OWN_SCANS, Rule, TableSuite, between, holds, known, one_of, rows, unique
from feature_repo.tables import VIEW_SCHEMAS
from feature_repo.views import flight

POLICY = CheckPolicy()
DATA = {"raw_day": raw_day, "view_day": view_day, "training_set": training_set}
FULL_SCANS = 4  # a condition or a unique key reads its table once more; a set of 330 thousand rows feels each


def suites() -> list[TableSuite]:
    return [suite for module in DATA.values() for suite in module.suites(POLICY, 3)]


def data_suites() -> list[TableSuite]:
    return [suite for suite in suites() if suite.table not in {daily.TABLE, raw_day.FLIGHTS}]


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


@pytest.mark.parametrize("suite", data_suites(), ids=lambda suite: suite.table)
def test_every_table_has_its_columns_types_nulls_ranges_keys_and_a_rule_across_columns(suite: TableSuite) -> None:
    kinds = {one.kind for one in suite.rules if one.severity == "critical"}
    assert {"ExpectTableColumnsToMatchSet", "ExpectColumnValuesToBeOfType", "ExpectColumnValuesToNotBeNull"} <= kinds
    assert any(one.kind == "ExpectColumnValuesToBeBetween" for one in suite.rules)
    assert any(one.key.startswith("unique:") for one in suite.rules)
    assert any(one.kind == "UnexpectedRowsExpectation" for one in suite.rules)


@pytest.mark.covers("field-reports 72")
@pytest.mark.parametrize("suite", data_suites(), ids=lambda suite: suite.table)
def test_few_rules_of_a_table_read_all_of_it_on_their_own(suite: TableSuite) -> None:
    assert sum(one.kind in OWN_SCANS for one in suite.rules) <= FULL_SCANS


@pytest.mark.parametrize("border", DATA)
def test_every_border_has_volume_and_freshness_of_its_days(border: str) -> None:
    module = DATA[border]
    (days,) = [suite for suite in module.suites(POLICY, 3) if suite.table == daily.TABLE]
    keys = {one.key for one in days.rules}
    assert {f"fresh:{table}" for table in module.TABLES} | {f"rows:{table}" for table in module.TABLES} <= keys
    assert any(key.startswith("volume:") for key in keys)
    assert (rule(days, "rows").kwargs["min_value"], rule(days, "rows").kwargs["max_value"]) == (3, 3)


def test_every_table_of_a_border_has_a_suite() -> None:
    for module in DATA.values():
        assert {suite.table for suite in module.suites(POLICY, 1)} >= set(module.TABLES)
    assert raw_day.TABLES == RAW_TABLES
    assert set(view_day.TABLES) == set(VIEWS)


@pytest.mark.parametrize("view", VIEWS)
def test_every_feature_has_an_expectation_at_both_borders(view: str) -> None:
    """A feature is one function in views/ and its expectation (the design's table of changes)."""
    (suite,) = [suite for suite in view_day.suites(POLICY, 1) if suite.table == view]
    rows_suite, _ = training_set.suites(POLICY, 1)
    for feature in FEATURES[view]:
        assert rule(suite, f"range:{feature}").kwargs["column"] == feature
        column = feature_column(view, feature)
        assert {f"range:{column}", f"known:{column}"} <= {one.key for one in rows_suite.rules}


def test_a_unit_without_limits_is_refused_by_name() -> None:
    with pytest.raises(LookupError, match="pace: unit 'knots' has no limits; add it to UNIT_RANGES"):
        view_day.value_range(Feature("pace", "knots", "How fast."))
    assert view_day.value_range(Feature("x", "share", "")) == (0, 1)
    assert view_day.value_range(Feature("x", "flights", "")) == (0, None)
    assert view_day.value_range(Feature("temp", "degrees Fahrenheit", "")) == raw_day.WEATHER_RANGES["temp"]


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
    suite, _ = training_set.suites(CheckPolicy(lead="PT3H"), 1)
    assert "INTERVAL 10800 SECONDS" in rule(suite, "in_order").kwargs["unexpected_rows_query"]


def test_a_null_breaks_a_condition() -> None:
    assert holds("k", "a", "a > b", ("a", "b")).kwargs["unexpected_rows_query"] == (
        "SELECT 1 AS broken FROM {batch} WHERE NOT coalesce(a > b, false)"
    )


def test_what_a_row_that_breaks_a_rule_meets() -> None:
    (null,) = known(("a",))
    assert null.broken == "`a` IS NULL"
    assert between("a", 0, 1).broken == "`a` < 0 OR `a` > 1"
    assert between("a", 0, None).broken == "`a` < 0"
    assert one_of("a", ("x", "y")).broken == "NOT `a` IN ('x', 'y')"
    assert holds("k", "a", "a > b", ("a", "b")).broken == "NOT coalesce(a > b, false)"
    assert (unique("a", "b").broken, rows(1).broken) == (None, None)


def test_a_share_and_a_severity_reach_every_column() -> None:
    found = known(("a", "b"), share=0.9, severity="warning")
    assert [(one.column, one.kwargs["mostly"], one.severity) for one in found] == [
        ("a", 0.9, "warning"),
        ("b", 0.9, "warning"),
    ]
    assert rows(5).kwargs == {"min_value": 5, "max_value": None}
