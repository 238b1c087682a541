"""What must hold of each day as a whole: enough rows, as many as usual, and news to the day's end. Pure.

The facts of a day are one row of the table ``days`` (made in feature_repo/targets.py): for each table ``<t>`` its rows, its
least rows (``floor``), the band around the median of the same weekdays before (``least`` to ``most``; null: not judged) and
its oldest and newest event. So a range of days costs what one day costs, and a line names the day.
"""

from __future__ import annotations

import datetime as dt
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from artifacts.clock import Calendar
from feature_repo.contract import CheckPolicy
from feature_repo.expectations.rules import Rule, Severity, TableSuite, holds, known, rows, unique

TABLE = "days"


@dataclass(frozen=True)
class Daily:
    """What a suite asks of a table's days. ``volume``: compare with past weekdays; ``inside``: events lie in (start, end]."""

    fresh: dt.timedelta
    severity: Severity = "critical"
    volume: bool = True
    inside: bool = False


@dataclass(frozen=True)
class Band:
    """The rows that a day may have; ``none`` says why it is not judged, and ``allowed`` whether that may be."""

    least: int | None = None
    most: int | None = None
    none: str = ""
    allowed: bool = True


def band(
    partition: dt.date, history: tuple[int, ...], calendar: Calendar, policy: CheckPolicy, first: dt.date | None = None
) -> Band:
    """0.5 to 2 times the median of the same weekdays before (decisions.md, gate G1).

    A declared exception is not judged. Too short a history is allowed in the first 8 weeks after ``first`` only (the
    calendar's first day unless given).
    """
    if partition in calendar.exceptions:
        return Band(none="a declared exception of the calendar")
    if len(history) < policy.volume_history:
        young = partition < (first or calendar.first) + policy.volume_grace
        weeks = policy.volume_grace.days // 7
        return Band(
            none=f"fewer than {policy.volume_history} same weekdays are known"
            + (
                f", in the first {weeks} weeks"
                if young
                else f", and the first {weeks} weeks are over; build those days"
            ),
            allowed=young,
        )
    median = statistics.median(history)
    return Band(math.ceil(policy.volume_low * median), math.floor(policy.volume_high * median))


def suite(tables: Mapping[str, Daily], days: int, *more: Rule) -> TableSuite:
    """The expectations of ``days`` rows of day facts, and ``more`` that only this border asks."""
    checks = [rows(days, days), *known(("partition",)), unique("partition"), *more]
    for table, asked in tables.items():
        checks += _rules(table, asked)
    return TableSuite(TABLE, ("partition",), tuple(checks))


def _rules(table: str, asked: Daily) -> list[Rule]:
    count, floor, least, most = (f"{table}_{name}" for name in ("rows", "floor", "least", "most"))
    oldest, newest = f"{table}_oldest", f"{table}_newest"
    hours = asked.fresh.total_seconds() / 3600
    checks = [
        holds(f"rows:{table}", count, f"{count} >= {floor}", (count, floor), severity=asked.severity),
        holds(
            f"fresh:{table}",
            newest,
            f"{newest} >= ends - INTERVAL {hours:g} HOURS",
            (newest, "ends"),
            severity=asked.severity,
        ),
    ]
    if asked.volume:
        usual = f"{least} IS NULL OR {count} BETWEEN {least} AND {most}"
        checks.append(holds(f"volume:{table}", count, usual, (count, least, most), severity=asked.severity))
    if asked.inside:
        inside = f"{oldest} IS NULL OR ({oldest} > begins AND {newest} <= ends)"
        checks.append(holds(f"inside:{table}", oldest, inside, (oldest, newest, "begins", "ends")))
    return checks
