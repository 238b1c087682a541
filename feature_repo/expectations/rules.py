"""What an expectation is, as a value: the suites are lists of these, and engine.py alone turns them into GX's. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

Severity = Literal["critical", "warning"]

SPARK_TYPES = {
    "string": "StringType",
    "int8": "ByteType",
    "int64": "LongType",
    "double": "DoubleType",
    "bool": "BooleanType",
    "date32[day]": "DateType",
    "timestamp[us, tz=UTC]": "TimestampType",
}
"""Arrow's type -> what Spark makes of it; a timestamp without a zone becomes TimestampNTZType and is refused."""

OWN_SCANS = frozenset({"UnexpectedRowsExpectation", "ExpectColumnValuesToBeUnique", "ExpectCompoundColumnsToBeUnique"})
"""Kinds that read the table once each; all others of a table are answered by one scan together."""

SAMPLED = frozenset({"ExpectColumnValuesToBeBetween", "ExpectColumnValuesToBeInSet", "UnexpectedRowsExpectation"})
"""Kinds that look at a sample of a very large table; keys, nulls, columns and counts look at all of it."""


@dataclass(frozen=True)
class Rule:
    """One expectation. ``key`` is unique in its suite; ``kwargs`` are those of GX's class named ``kind``.

    ``column`` is what a line calls it, ``reads`` the columns that it looks at.
    """

    key: str
    kind: str
    column: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = "critical"
    reads: tuple[str, ...] = ()

    @property
    def broken(self) -> str | None:
        """What a row that breaks the rule meets, in Spark SQL; None where that is not a question of one row."""
        limits, name = self.kwargs, f"`{self.column}`"
        if self.kind == "ExpectColumnValuesToNotBeNull":
            return f"{name} IS NULL"
        if self.kind == "ExpectColumnValuesToBeBetween":
            beyond = f" OR {name} > {limits['max_value']}" if limits["max_value"] is not None else ""
            return f"{name} < {limits['min_value']}{beyond}"
        if self.kind == "ExpectColumnValuesToBeInSet":
            return f"NOT {name} IN ({', '.join(repr(value) for value in limits['value_set'])})"
        return _broken(limits["description"]) if self.kind == "UnexpectedRowsExpectation" else None


@dataclass(frozen=True)
class TableSuite:
    """The expectations of one table. ``row_key`` names the columns that tell a reader which row is meant."""

    table: str
    row_key: tuple[str, ...]
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Check:
    """One table to check. ``label`` names it in lines, and is unique among those of a run."""

    label: str
    suite: TableSuite
    read: Callable[[], pa.Table]


def columns(schema: pa.Schema) -> list[Rule]:
    """The table has exactly these columns, in any order, each of its type."""
    kinds = {entry.name: SPARK_TYPES[str(entry.type)] for entry in schema}
    whole = Rule("columns", "ExpectTableColumnsToMatchSet", None, {"column_set": list(kinds), "exact_match": True})
    return [whole] + [
        Rule(f"type:{name}", "ExpectColumnValuesToBeOfType", name, {"column": name, "type_": kind}, reads=(name,))
        for name, kind in kinds.items()
    ]


def rows(least: int, most: int | None = None, *, key: str = "rows", severity: Severity = "critical") -> Rule:
    """The table has at least, and at most, so many rows."""
    return Rule(key, "ExpectTableRowCountToBeBetween", None, {"min_value": least, "max_value": most}, severity)


def known(names: Iterable[str], *, share: float = 1.0, severity: Severity = "critical") -> list[Rule]:
    """At least ``share`` of the values of each column are not null."""
    return [
        Rule(
            f"known:{name}", "ExpectColumnValuesToNotBeNull", name, {"column": name, "mostly": share}, severity, (name,)
        )
        for name in names
    ]


def between(name: str, low: float, high: float | None, *, severity: Severity = "critical") -> Rule:
    """Every value of the column that is not null lies in [low, high]; ``high`` None means no upper limit."""
    limits = {"column": name, "min_value": low, "max_value": high}
    return Rule(f"range:{name}", "ExpectColumnValuesToBeBetween", name, limits, severity, (name,))


def one_of(name: str, values: Iterable[Any]) -> Rule:
    """Every value of the column that is not null is one of these."""
    limits = {"column": name, "value_set": list(values)}
    return Rule(f"set:{name}", "ExpectColumnValuesToBeInSet", name, limits, reads=(name,))


def unique(*names: str) -> Rule:
    """No two rows agree on all of these columns."""
    if len(names) == 1:
        return Rule(f"unique:{names[0]}", "ExpectColumnValuesToBeUnique", names[0], {"column": names[0]}, reads=names)
    together = "+".join(names)
    return Rule(
        f"unique:{together}", "ExpectCompoundColumnsToBeUnique", together, {"column_list": list(names)}, reads=names
    )


def holds(key: str, column: str, condition: str, reads: Iterable[str], *, severity: Severity = "critical") -> Rule:
    """A Spark SQL condition over a row's columns ``reads`` is true in every row; null counts as false."""
    query = f"SELECT 1 AS broken FROM {{batch}} WHERE {_broken(condition)}"  # noqa: S608  our own text, no input
    wanted = {"unexpected_rows_query": query, "description": condition}
    return Rule(key, "UnexpectedRowsExpectation", column, wanted, severity, tuple(reads))


def _broken(condition: str) -> str:
    return f"NOT coalesce({condition}, false)"
