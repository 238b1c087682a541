"""What became of each expectation, and the lines and the report that say so. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from feature_repo.contract import ValidateSpec
from feature_repo.expectations.rules import Rule, Severity, TableSuite

EXAMPLES = 3
TEXT_CHARACTERS = 240


@dataclass(frozen=True)
class Outcome:
    """One expectation and what was observed. ``examples`` are up to three offending rows' keys, or values."""

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


def report(spec: ValidateSpec, outcomes: Sequence[Outcome], failures: Sequence[str], warnings: Sequence[str]) -> str:
    """The report as JSON: what was checked, what did not hold, and every expectation with what was observed."""
    content = {
        "suite": spec.suite,
        "target": spec.target.model_dump(mode="json"),
        "partition": str(spec.partition),
        "success": not failures,
        "failures": list(failures),
        "warnings": list(warnings),
        "expectations": [asdict(outcome) for outcome in outcomes],
    }
    return json.dumps(content, indent=1)


def failed(table: str, kind: str, column: str | None, observed: str, *, key: str = "") -> Outcome:
    """A critical failure that no expectation of a suite stands for, such as a file that is not there."""
    return Outcome(table, key or kind, kind, column, "critical", success=False, observed=observed)


def judge(
    suite: TableSuite,
    found: Mapping[str, Mapping[str, Any]],
    columns: Sequence[str],
    first_keys: Callable[[str], Sequence[str]],
) -> list[Outcome]:
    """One outcome per rule of the suite; a rule whose key did not come back from the engine is a failure.

    ``found`` maps a rule's key to the engine's ``success``, ``result`` and ``exception_info``; ``columns`` are those
    of the table; ``first_keys`` gives the keys of the first rows that meet a condition, and is asked on failure only.
    """
    outcomes = []
    for rule in suite.rules:
        success, observed, examples = _observed(suite, rule, found.get(rule.key), columns, first_keys)
        outcomes.append(
            Outcome(suite.table, rule.key, snake(rule.kind), rule.column, rule.severity, success, observed, examples)
        )
    return outcomes


def _observed(
    suite: TableSuite,
    rule: Rule,
    found: Mapping[str, Any] | None,
    columns: Sequence[str],
    first_keys: Callable[[str], Sequence[str]],
) -> tuple[bool, str, tuple[str, ...]]:
    """Whether a rule held, what was observed, and examples when it did not."""
    if found is None:
        return False, "no result came back; the check did not run", ()
    if error := exception_text(found.get("exception_info")):
        return False, could_not_run(rule, error, columns), ()
    result = found.get("result") or {}
    if found["success"]:
        return True, observed_text(rule, result), ()
    condition = _condition(rule)
    examples = tuple(f"key {key}" for key in first_keys(condition)) if condition else _values(suite, result)
    return False, observed_text(rule, result), examples


def _condition(rule: Rule) -> str | None:
    """What the offending rows meet, in Spark SQL, for the rules whose results hold no examples."""
    if rule.kind == "ExpectColumnValuesToNotBeNull":
        return f"`{rule.column}` IS NULL"
    if rule.kind == "UnexpectedRowsExpectation":
        return f"NOT coalesce({rule.kwargs['description']}, false)"
    return None


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
    wanted = rule.kwargs.get("column_list") or re.findall(r"\w+", rule.column or "")
    missing = [name for name in wanted if name not in columns]
    missing = missing or [name for name in _named(rule) if name not in columns]
    if missing:
        return f"could not run: column {', '.join(repr(name) for name in missing)} is missing"
    return f"could not run: {error}"


def _named(rule: Rule) -> list[str]:
    """The lower-case words of a condition that can be columns; SQL words are upper case there."""
    condition = re.sub(r"\w+\(|\d+", " ", str(rule.kwargs.get("description", "")))
    return [word for word in re.findall(r"[a-z]\w*", condition) if word not in {"false", "true"}]


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


def _values(suite: TableSuite, result: Mapping[str, Any]) -> tuple[str, ...]:
    """The first distinct offending values; of whole rows, their keys."""
    texts: list[str] = []
    for item in result.get("partial_unexpected_list") or []:
        names = [name for name in suite.row_key if isinstance(item, Mapping) and name in item]
        text = "key " + "/".join(str(item[name]) for name in names) if names else str(item)
        if text not in texts:
            texts.append(text)
    return tuple(texts[:EXAMPLES])


def snake(kind: str) -> str:
    """``ExpectTableRowCount`` -> ``expect_table_row_count``, as the engine and its documents write it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
