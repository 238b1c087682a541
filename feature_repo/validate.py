"""The step that checks artifacts against a suite: one raw day or view day, the days of a range together, or a training set.

The report is published whatever it says. A check that could not run is a failure: each expectation carries a key, the keys
that come back are compared with the suite's, and a raised exception counts as a failure with the column named.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from artifacts.step import DataFault, TryAgain, progress, step
from artifacts.store import publish
from feature_repo import outcomes as said
from feature_repo import targets
from feature_repo.contract import Task, ValidateSpec, ValidationRef
from feature_repo.expectations import daily, raw_day, training_set, view_day
from feature_repo.expectations.rules import Check, TableSuite
from feature_repo.expectations_page import page
from feature_repo.leaks import leaks
from feature_repo.outcomes import Outcome
from feature_repo.questions import layout
from feature_repo.spark import starting
from feature_repo.targets import Parts


@dataclass(frozen=True)
class Border:
    """A place where data is checked: its tables, its suites, and how the tables across rows are made."""

    tables: tuple[str, ...]
    suites: Callable[[ValidateSpec, int], tuple[TableSuite, ...]]
    prepare: Callable[[ValidateSpec, Parts], Prepared]


@dataclass(frozen=True)
class Prepared:
    """What is ready to be checked, what has failed already, and a record of each check that is rightly left out."""

    days: pa.Table
    more: Mapping[str, pa.Table]
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]


def validate(spec: ValidateSpec) -> ValidationRef:
    """Checks the targets; returns only when every critical expectation held, else raises DataFault, a line per failure.

    When all that failed is that the time budget was spent it raises TryAgain instead. In any case the report
    (``summary.html``, Data Docs at ``index.html``, ``results.json``, ``bad_rows.csv``) lies at ``spec.output``.
    """
    if spec.suite not in BORDERS:
        raise DataFault([f"suite: there is no suite '{spec.suite}'; there are {sorted(BORDERS)}"])
    border = BORDERS[spec.suite]
    with starting("perennial-validate") as started, publish(spec.output, "validation") as draft:
        from feature_repo import engine  # noqa: PLC0415  three seconds of import, beside the start of the session

        progress(0.02, "opening the files")
        outcomes, parts = targets.open_parts(spec, border.tables)
        prepared = border.prepare(spec, parts)
        found, bad = engine.run(_checks(border, spec, parts, prepared), spec.policy, draft.path, started())
        outcomes = [*outcomes, *prepared.outcomes, *found]
        failures = said.lines(outcomes, "critical")
        warnings = (*prepared.notes, *said.lines(outcomes, "warning"))
        (draft.path / "results.json").write_text(said.report(spec, outcomes, failures, warnings))
        (draft.path / "summary.html").write_text(page(spec, outcomes, failures, warnings, bad))
        (draft.path / "bad_rows.csv").write_text(said.bad_rows_csv(bad))
        draft.facts.update(suite=spec.suite, target=spec.target, failures=len(failures), warnings=len(warnings))
    if failures or draft.manifest is None:
        late = all(said.OVER_TIME in line for line in failures)
        raise TryAgain("\n".join(failures)) if late else DataFault([*failures, f"the whole report: {spec.output}"])
    return ValidationRef(
        uri=spec.output,
        digest=draft.manifest.digest,
        suite=spec.suite,
        target=spec.target,
        first=spec.targets[0].partition,
        last=spec.targets[-1].partition,
        expectations=len(outcomes),
        warnings=warnings,
    )


def _checks(border: Border, spec: ValidateSpec, parts: Parts, prepared: Prepared) -> list[Check]:
    """Every table with its suite; days whose columns are odd are a check of their own."""
    suites = {suite.table: suite for suite in border.suites(spec, prepared.days.num_rows)}
    stamped = spec.suite != "training_set"  # a set is one artifact, whose rows say their day themselves
    found = [Check(one.label, suites[one.table], one.read) for one in targets.batches(parts, stamped=stamped)]
    made = {**prepared.more, daily.TABLE: prepared.days}
    return found + [Check(name, suites[name], functools.partial(_itself, table)) for name, table in made.items()]


def _itself(table: pa.Table) -> pa.Table:
    return table


# --- the three borders -----------------------------------------------------------------------------------------------


def _raw_days(spec: ValidateSpec, parts: Parts) -> Prepared:
    asked = raw_day.daily_checks(spec.policy)
    flights = targets.flights(parts)
    counts = targets.flight_counts(flights)
    shares = {"departure": ("scheduled", spec.policy.departed_share), "arrival": ("flown", spec.policy.arrived_share)}
    least = {"schedule": spec.policy.flights_per_day, "weather": spec.policy.weather_rows}

    def floor(table: str, day: object) -> int:
        if table in least:
            return least[table]
        counted, share = shares[table]
        return max(1, math.ceil(share * counts.get(day, {}).get(counted, 0)))  # type: ignore[call-overload]

    return _prepared(spec, parts, asked, floor, {raw_day.FLIGHTS: flights})


def _view_days(spec: ValidateSpec, parts: Parts) -> Prepared:
    return _prepared(spec, parts, view_day.daily_checks(spec.policy), lambda _table, _day: spec.policy.view_rows, {})


def _prepared(
    spec: ValidateSpec,
    parts: Parts,
    asked: Mapping[str, daily.Daily],
    floor: targets.Floor,
    more: Mapping[str, pa.Table],
) -> Prepared:
    bands = targets.target_bands(spec, asked)
    held = {table: targets.held(parts[table]) for table in asked}
    faults, notes = targets.unjudged(bands, asked)
    return Prepared(targets.day_facts(spec, asked, held, bands, floor), more, tuple(faults), tuple(notes))


def _training_set(spec: ValidateSpec, parts: Parts) -> Prepared:
    asked = training_set.daily_checks(spec.policy, spec.question)
    if len(spec.targets) != 1:
        raise DataFault([f"targets: a training set is checked alone, there are {len(spec.targets)}"])
    rows = parts["rows"][0].read() if parts["rows"] else pa.table({})
    held = targets.set_days(rows, layout(spec.question, spec.policy).dated_by)
    bands = targets.set_bands(spec, held)
    faults, notes = targets.unjudged(bands, asked)
    if parts["rows"]:
        progress(0.05, "looking for leaks")
        faults += _leaks(rows, spec)
    days = targets.day_facts(spec, asked, {"rows": held}, bands, lambda _table, _day: 1)
    return Prepared(days, {}, tuple(faults), tuple(notes))


BORDERS = {
    "raw_day": Border(raw_day.TABLES, lambda spec, days: raw_day.suites(spec.policy, days), _raw_days),
    "view_day": Border(view_day.TABLES, lambda spec, days: view_day.suites(spec.policy, days), _view_days),
    "training_set": Border(
        training_set.TABLES,
        lambda spec, days: training_set.suites(spec.policy, days, spec.question),
        _training_set,
    ),
}


LABELS: Mapping[Task, tuple[str, Callable[[pa.DataType], bool]]] = {
    "classification": ("integer", pa.types.is_integer),
    "regression": ("float", pa.types.is_floating),
}


def _leaks(table: pa.Table, spec: ValidateSpec) -> Sequence[Outcome]:
    """The leak outcomes of every feature; a failure when there is no label to judge by."""
    asked = layout(spec.question, spec.policy)
    words, typed = LABELS[asked.task]
    if "label" not in table.column_names or table["label"].null_count or not typed(table["label"].type):
        return [said.failed("rows", "expect_no_leaks", "label", f"could not run: no whole column of {words} labels")]
    left_out = {*training_set.not_features(asked), targets.PARTITION.name}
    features = {name: _array(table[name]) for name in table.column_names if name not in left_out}
    return leaks(features, table["label"].to_numpy(), spec.policy, asked.task)


def _array(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers as float with NaN for null; everything else as objects with None for null."""
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return column.cast(pa.float64()).to_numpy()
    return column.cast(pa.string()).to_numpy(zero_copy_only=False)


if __name__ == "__main__":
    sys.exit(step(validate, ValidateSpec))
