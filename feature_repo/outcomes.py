"""What became of each expectation, and the lines and the report that say so. Pure."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from typing import Any

from feature_repo.contract import ValidateSpec
from feature_repo.expectations.rules import Rule, Severity, TableSuite

EXAMPLES = 3
TEXT_CHARACTERS = 240
SHOWN_CHARACTERS = 160
NO_DETAILS = "did not hold; too much is wrong with the table to count it all"
OVER_TIME = "could not run: the time budget of"


@dataclass(frozen=True)
class Outcome:
    """One expectation and what was observed. ``examples`` are up to three offending rows: key and values."""

    table: str
    key: str
    kind: str
    column: str | None
    severity: Severity
    success: bool
    observed: str
    examples: tuple[str, ...] = field(default=())

    def line(self) -> str:
        """``expectation(table.column): observed, first 3 examples``."""
        place = f"{self.table}.{self.column}" if self.column else self.table
        examples = f", first {len(self.examples)}: {', '.join(self.examples)}" if self.examples else ""
        return f"{self.kind}({place}): {self.observed}{examples}"


def lines(outcomes: Iterable[Outcome], severity: Severity) -> tuple[str, ...]:
    """One line per expectation of this severity that did not hold."""
    return tuple(outcome.line() for outcome in outcomes if not outcome.success and outcome.severity == severity)


@dataclass(frozen=True)
class BadRow:
    """A row that broke a rule: where it is, and what the rule read there (``name=value, ...``)."""

    table: str
    expectation: str
    severity: Severity
    partition: str
    key: str
    values: str

    def words(self) -> str:
        """How a line names the row."""
        shown = f" ({self.values})" if self.values and len(self.values) <= SHOWN_CHARACTERS else ""
        return f"key {self.key or self.partition}{shown}"


def text(value: Any) -> str:
    """A value as a reader sees it; instants in UTC with a Z."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, dt.datetime) else str(value)


def share_out(rows: Sequence[BadRow], most: int) -> list[BadRow]:
    """At most so many rows: each expectation gets an equal share, in the order in which they stand."""
    groups: dict[tuple[str, str], list[BadRow]] = {}
    for row in rows:
        groups.setdefault((row.table, row.expectation), []).append(row)
    kept: dict[tuple[str, str], int] = {}
    left = most
    for place, (name, group) in enumerate(sorted(groups.items(), key=lambda one: len(one[1]))):
        kept[name] = min(len(group), left // (len(groups) - place))  # small groups first: what they leave, others get
        left -= kept[name]
    return [row for name, group in groups.items() for row in group[: kept[name]]]


def bad_rows_csv(rows: Iterable[BadRow]) -> str:
    """The rows as CSV, a line each, in the order given."""
    sink = io.StringIO()
    lines = csv.writer(sink, lineterminator="\n")
    lines.writerow([entry.name for entry in fields(BadRow)])
    lines.writerows(astuple(row) for row in rows)
    return sink.getvalue()


def report(spec: ValidateSpec, outcomes: Sequence[Outcome], failures: Sequence[str], warnings: Sequence[str]) -> str:
    """The report as JSON: what was checked, what did not hold, and every expectation with what was observed."""
    content = {
        "suite": spec.suite,
        "targets": [target.model_dump(mode="json", exclude={"history"}) for target in spec.targets],
        "success": not failures,
        "failures": list(failures),
        "warnings": list(warnings),
        "expectations": [asdict(outcome) for outcome in outcomes],
    }
    return json.dumps(content, indent=1)


def failed(table: str, kind: str, column: str | None, observed: str, *, key: str = "") -> Outcome:
    """A critical failure that no expectation of a suite stands for, such as a file that is not there."""
    return Outcome(table, key or kind, kind, column, "critical", success=False, observed=observed)


def over_time(seconds: float) -> str:
    """What is said of a check that the time did not suffice for."""
    return f"{OVER_TIME} {seconds:.0f} s is spent; give policy.budget more, or Spark more cores"


def not_run(label: str, suite: TableSuite, why: str) -> list[Outcome]:
    """An outcome per rule of a suite that was not asked at all: each has failed."""
    return [
        Outcome(label, rule.key, snake(rule.kind), rule.column, rule.severity, success=False, observed=why)
        for rule in suite.rules
    ]


def judge(
    label: str,
    suite: TableSuite,
    found: Mapping[str, Mapping[str, Any]],
    columns: Sequence[str],
    sample: Callable[[Rule], Sequence[BadRow]],
    late: str = "",
) -> tuple[list[Outcome], list[BadRow]]:
    """One outcome per rule of the suite, and rows that broke one; a rule whose key did not come back is a failure.

    ``found`` maps a rule's key to the engine's ``success``, ``result`` and ``exception_info``; ``columns`` are those
    of the table; ``sample`` gives the first rows that break a rule, and is asked on failure only. ``late`` is what to
    say, when the time is over, of a rule that was cut off.
    """
    outcomes, bad = [], []
    for rule in suite.rules:
        success, observed, ran = _observed(rule, found.get(rule.key), columns, late)
        rows = list(sample(rule)) if ran and not success and not late else []
        examples = tuple(dict.fromkeys(row.words() for row in rows))[:EXAMPLES]
        outcomes.append(
            Outcome(label, rule.key, snake(rule.kind), rule.column, rule.severity, success, observed, examples)
        )
        bad += rows
    return outcomes, bad


def _observed(rule: Rule, found: Mapping[str, Any] | None, columns: Sequence[str], late: str) -> tuple[bool, str, bool]:
    """Whether a rule held, what was observed, and whether it ran at all."""
    if found is None:
        return False, late or "no result came back; the check did not run", False
    if error := exception_text(found.get("exception_info")):
        return False, late or could_not_run(rule, error, columns), False
    if not found["success"] and not found.get("result"):
        return False, NO_DETAILS, True
    return bool(found["success"]), observed_text(rule, found.get("result") or {}), True


def exception_text(exception_info: Any) -> str | None:
    """The first line of what was raised, from both shapes: flat, or keyed by metric; None when nothing was raised."""
    if not isinstance(exception_info, Mapping) or not exception_info:
        return None
    entries = [exception_info] if "raised_exception" in exception_info else list(exception_info.values())
    for entry in entries:
        if isinstance(entry, Mapping) and entry.get("raised_exception"):
            text = str(entry.get("exception_message") or "").strip() or "an exception without a message"
            return text.splitlines()[0][:TEXT_CHARACTERS]
    return None


def could_not_run(rule: Rule, error: str, columns: Sequence[str]) -> str:
    """Why a check raised: the columns that are missing if any are, else the error itself."""
    missing = [name for name in rule.reads if name not in columns]
    if missing:
        return f"could not run: column {', '.join(repr(name) for name in missing)} is missing"
    return f"could not run: {error}"


def observed_text(rule: Rule, result: Mapping[str, Any]) -> str:
    """What was observed, in words that name the limit it broke."""
    limits = rule.kwargs
    if not result:
        return "held"
    if "unexpected_percent" in result:
        count, total = result.get("unexpected_count", 0), result.get("element_count", 0)
        what = _broken(rule)
        return f"{_share(count, total)} % {what} ({count} of {total} rows)"
    if rule.kind == "ExpectTableRowCountToBeBetween":
        most = f" to {limits['max_value']}" if limits["max_value"] is not None else " or more"
        return f"{result.get('observed_value')} rows, expected {limits['min_value']}{most}"
    if rule.kind == "ExpectTableColumnsToMatchSet":
        seen = set(result.get("observed_value") or ())
        missing, extra = sorted(set(limits["column_set"]) - seen), sorted(seen - set(limits["column_set"]))
        return f"{len(seen)} columns; missing {missing}, not expected {extra}"
    if rule.kind == "ExpectColumnValuesToBeOfType":
        return f"type is {result.get('observed_value')}, expected {limits['type_']}"
    if rule.kind == "UnexpectedRowsExpectation":
        return f"{result.get('observed_value')} rows break '{limits['description']}'"
    return f"observed {str(result.get('observed_value'))[:TEXT_CHARACTERS]}"


def _broken(rule: Rule) -> str:
    if rule.kind == "ExpectColumnValuesToNotBeNull":
        return "null"
    if rule.kind == "ExpectColumnValuesToBeBetween":
        return f"outside [{rule.kwargs['min_value']}, {rule.kwargs['max_value']}]"
    if rule.kind == "ExpectColumnValuesToBeInSet":
        return f"not in {rule.kwargs['value_set']}"
    return "not unique"


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.3g}" if total else "0"


def snake(kind: str) -> str:
    """``ExpectTableRowCount`` -> ``expect_table_row_count``, as the engine and its documents write it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
