"""Every suite on the engine that runs it: a sound table passes, an empty one fails by its row count, and each rule has a row
(or a column) that breaks it and is the one that is told.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from feature_repo import engine, targets
from feature_repo.contract import CheckPolicy
from feature_repo.expectations import daily, raw_day, training_set, view_day
from feature_repo.expectations.daily import Band
from feature_repo.expectations.rules import SAMPLED, Check, Rule, TableSuite
from feature_repo.outcomes import BadRow, Outcome, text
from feature_repo.spark import session
from feature_repo.tables import INSTANT, RAW_SCHEMAS
from tests.make import expectations as make

pytestmark = pytest.mark.spark

POLICY = CheckPolicy(bad_rows=100_000, training_rows=100, detailed=0)
MICROSECOND = dt.timedelta(microseconds=1)
VIEWS = ("carrier", "flight_number", "weather", "congestion")  # the other views are made of the same rules
SKEWED = {  # condition -> column, and what breaks the condition there
    "arrives_after_departure": ("scheduled_arrival", lambda row: row["scheduled_departure"]),
    "delay_unless_cancelled": ("departure_delay", lambda row: None if row["departure_delay"] is not None else 1.0),
    "delay_unless_diverted": ("arrival_delay", lambda row: None if row["arrival_delay"] is not None else 1.0),
    "known_in_order": ("available_time", lambda row: row["event_time"] - MICROSECOND),
    "departure_is_scheduled": ("scheduled", lambda _: False),
    "arrival_has_departed": ("departed", lambda _: False),
    "arrives_after_it_left": ("came", lambda row: row["left_at"]),
    "windows_grow": ("departures_1d", lambda row: row["departures_7d"] + 1),
    "parts_of_the_whole": ("scheduled_departures_last_3h", lambda _: 1.0),
    "in_order": ("at", lambda row: row["at"] + MICROSECOND),
    "labels_known": ("label_newest", lambda row: row["cut_off"] + MICROSECOND),
}  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A suite and a sound table for it."""

    suite: TableSuite
    rows: pa.Table

    @property
    def name(self) -> str:
        return f"{self.suite.table} of {'training set' if 'label_newest' in self.rows.column_names else self.rows.num_rows}"

    def rule(self, key: str) -> Rule:
        return next(one for one in self.suite.rules if one.key == key)


def subjects() -> list[Subject]:
    """Each kind of table once, with a suite that asks for the rows that it has."""
    raw = {name: stamped(table) for name, table in make.raw_day().items()}
    views = {name: stamped(table) for name, table in make.views().items()}
    rows = make.training_rows(300)
    suites = {suite.table: suite for suite in (*raw_day.suites(POLICY, 1), *view_day.suites(POLICY, 1))}
    rows_suite, set_days = training_set.suites(POLICY, 12)
    raw_days = raw_day.suites(POLICY, 12)[-1]
    weather = next(suite for suite in raw_day.suites(POLICY, 1) if suite.table == "weather")
    return [
        *(Subject(suites[name], raw[name]) for name in ("schedule", "departure", "arrival")),
        Subject(weather, raw["weather"]),
        *(Subject(suites[name], views[name]) for name in VIEWS),
        Subject(suites[raw_day.FLIGHTS], flights()),
        Subject(rows_suite, rows),
        Subject(raw_days, facts(raw_day.daily_checks(POLICY), labels=False)),
        Subject(set_days, facts(training_set.daily_checks(POLICY), labels=True)),
    ]


def stamped(table: pa.Table) -> pa.Table:
    return table.append_column(targets.PARTITION, pa.array([make.DAY] * table.num_rows, pa.date32()))


def flights() -> pa.Table:
    parts = stamped(make.raw_day()["arrival"])
    count = parts.num_rows
    return pa.table({
        "partition": parts["partition"],
        "flight_id": parts["flight_id"],
        **{name: pa.array([name != "cancelled"] * count) for name in ("scheduled", "departed", "cancelled", "arrived")},
        "left_at": parts["scheduled_departure"],
        "came": parts["event_time"],
    })


def facts(asked: dict[str, daily.Daily], *, labels: bool) -> pa.Table:
    """The facts of twelve sound days."""
    days = [make.DAY + number * dt.timedelta(days=1) for number in range(12)]
    spec = make.spec_of_days(days)
    label = make.CALENDAR.starts(days[0]) if labels else None
    held = {
        table: {
            day: targets.Day(500, make.CALENDAR.starts(day) + make.HOUR, make.CALENDAR.ends(day), label) for day in days
        }
        for table in asked
    }
    bands = {table: dict.fromkeys(days, Band(300, 900) if one.volume else Band()) for table, one in asked.items()}
    return targets.day_facts(spec, asked, held, bands, lambda _table, _day: 200)


# --- what breaks each rule ---------------------------------------------------------------------------------------------


def broken(subject: Subject) -> tuple[pa.Table, dict[str, int]]:
    """The table with a row of its own for each rule about single rows, changed so that it breaks it; rule -> that row."""
    rows = subject.rows.to_pylist()
    rules = [one for one in subject.suite.rules if one.broken or one.key.startswith("unique:")]
    places = {rule.key: 2 * number % (len(rows) - 1) for number, rule in enumerate(rules)}
    for rule in rules:
        place = places[rule.key]
        rows[place] |= change(rule, rows[place], rows[(place + 1) % len(rows)])
    return pa.Table.from_pylist(rows, subject.rows.schema), places


def change(rule: Rule, row: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What must be different in a row to break a rule."""
    name = str(rule.column)
    if rule.kind == "ExpectColumnValuesToNotBeNull":
        return {name: None}
    if rule.kind == "ExpectColumnValuesToBeBetween":
        return {name: rule.kwargs["min_value"] - 1.0}
    if rule.kind == "ExpectColumnValuesToBeInSet":
        return {name: type(rule.kwargs["value_set"][0])(9)}
    if rule.key.startswith("unique:"):
        return {column: other[column] for column in rule.reads}
    kind, _, table = rule.key.partition(":")
    if table:  # the facts of a day
        return {
            "rows": {f"{table}_rows": 199},
            "volume": {f"{table}_rows": 901},
            "fresh": {f"{table}_newest": row["begins"]},
            "inside": {f"{table}_oldest": row["begins"]},
        }[kind]
    column, value = SKEWED[rule.key]
    return {column: value(row)}


def retyped(table: pa.Table) -> pa.Table:
    """The table with every column of another type."""
    return pa.table({
        name: table[name].cast(pa.int32() if table[name].type != pa.int8() else pa.int16(), safe=False)
        if pa.types.is_integer(table[name].type) or pa.types.is_floating(table[name].type)
        else table[name].cast(pa.string())
        if not pa.types.is_string(table[name].type)
        else pa.array([None] * table.num_rows, pa.int32())
        for name in table.column_names
    })


def nulls(table: pa.Table) -> pa.Table:
    """The table with nothing but nulls."""
    return pa.table({entry.name: pa.nulls(table.num_rows, entry.type) for entry in table.schema})


# --- one run of everything ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """What the engine said, by table label."""

    outcomes: dict[str, list[Outcome]]
    bad: dict[tuple[str, str], list[BadRow]]

    def failed(self, label: str) -> set[str]:
        return {one.key for one in self.outcomes[label] if not one.success}


SUBJECTS = subjects()
VARIANTS: dict[str, Callable[[Subject], pa.Table]] = {
    "sound": lambda subject: subject.rows,
    "empty": lambda subject: subject.rows.slice(0, 0),
    "broken": lambda subject: broken(subject)[0],
    "retyped": lambda subject: retyped(subject.rows),
    "null": lambda subject: nulls(subject.rows),
}


def run(site: Path, variants: tuple[str, ...], policy: CheckPolicy) -> Ran:
    checks = [
        Check(f"{variant} {subject.name}", subject.suite, functools.partial(VARIANTS[variant], subject))
        for subject in SUBJECTS
        for variant in variants
        if variant in ("sound", "empty", "broken") or subject.suite.table not in {daily.TABLE, raw_day.FLIGHTS}
    ]
    with session("tests") as spark:
        outcomes, bad = engine.run(checks, policy, site, spark)
    by_label: dict[str, list[Outcome]] = {}
    for one in outcomes:
        by_label.setdefault(one.table, []).append(one)
    rows: dict[tuple[str, str], list[BadRow]] = {}
    for row in bad:
        rows.setdefault((row.table, row.expectation), []).append(row)
    return Ran(by_label, rows)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Everything but the rows: whether each rule held."""
    return run(tmp_path_factory.mktemp("site"), ("sound", "empty", "retyped", "null"), POLICY)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The tables with a broken row for each rule, and which rows were told."""
    policy = POLICY.model_copy(update={"detailed": 1000})
    return run(tmp_path_factory.mktemp("site"), ("broken",), policy)


each = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
each_file = pytest.mark.parametrize(
    "subject",
    [one for one in SUBJECTS if one.suite.table not in {daily.TABLE, raw_day.FLIGHTS}],
    ids=lambda subject: subject.name,
)


@pytest.mark.covers("field-reports 65", "field-reports 70", "field-reports 71")
@each
def test_a_sound_table_passes_and_every_key_comes_back(ran: Ran, subject: Subject) -> None:
    outcomes = ran.outcomes[f"sound {subject.name}"]
    assert [one.line() for one in outcomes if not one.success] == []
    assert [one.key for one in outcomes] == [rule.key for rule in subject.suite.rules]


@each
def test_an_empty_table_fails_by_its_row_count(ran: Ran, subject: Subject) -> None:
    assert ran.failed(f"empty {subject.name}") == {"rows"}


@each
def test_each_rule_about_rows_tells_the_row_that_breaks_it(told: Ran, subject: Subject) -> None:
    """And no other row, but those in which a column that it reads was changed for another rule."""
    table, places = broken(subject)
    rows, before, label = table.to_pylist(), subject.rows.to_pylist(), f"broken {subject.name}"
    key = {place: "/".join(text(rows[place][name]) for name in subject.suite.row_key) for place in places.values()}
    changed = {place: {name for name in rows[place] if rows[place][name] != before[place][name]} for place in key}
    for rule_key, place in places.items():
        rule = subject.rule(rule_key)
        if rule.kwargs.get("mostly", 1.0) < 1.0:
            continue  # one null is not enough; a table of nulls is
        found = {bad.key for bad in told.bad.get((label, rule_key), [])}
        assert rule_key in told.failed(label), f"nothing breaks {rule_key}"
        assert key[place] in found, rule_key
        if not rule_key.startswith("unique:"):  # there both rows of a pair are told
            assert found <= {key[other] for other in key if changed[other] & set(rule.reads)}, rule_key


@pytest.mark.covers("field-reports 62")
@each_file
def test_another_type_fails_the_columns_own_rule(ran: Ran, subject: Subject) -> None:
    wanted = {rule.key for rule in subject.suite.rules if rule.key.startswith("type:")}
    failed = ran.failed(f"retyped {subject.name}")
    assert wanted <= failed
    assert not {"columns", "rows"} & failed


@each_file
def test_nothing_but_nulls_fails_every_rule_on_nulls(ran: Ran, subject: Subject) -> None:
    wanted = {rule.key for rule in subject.suite.rules if rule.key.startswith("known:")}
    failed = ran.failed(f"null {subject.name}")
    assert wanted <= failed
    assert not {key for key in failed if key.startswith(("type:", "range:", "set:", "columns", "rows"))}


def test_every_kind_of_rule_has_been_broken() -> None:
    kinds = {rule.kind for subject in SUBJECTS for rule in subject.suite.rules}
    assert kinds >= SAMPLED
    assert {entry.name for entry in RAW_SCHEMAS["schedule"]} <= set(SUBJECTS[0].rows.column_names)
    assert INSTANT.tz == "UTC"
