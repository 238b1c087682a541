"""What a training set must look like: schema, volume, nulls, ranges, unique rows, and the order of its instants. Pure.

A set has hundreds of thousands of rows and some sixty columns, so the ranges of all shares, and of all counts, are one
condition each: every further expectation is one more scan. Leaks are looked for in feature_repo/leaks.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from feature_repo.catalogue import feature_columns
from feature_repo.contract import CheckPolicy
from feature_repo.expectations.raw_day import relative_volume
from feature_repo.expectations.rules import Rule, TableSuite, between, columns, holds, known, one_of, rows, unique

INSTANT = pa.timestamp("us", tz="UTC")

IDENTITY = {"row_id": pa.string(), "day": pa.date32(), "at": INSTANT, "label": pa.int8(), "label_time": INSTANT}
REQUEST = {
    "carrier": pa.string(),
    "flight": pa.int64(),
    "origin": pa.string(),
    "dest": pa.string(),
    "distance": pa.float64(),
    "scheduled_departure": INSTANT,
    "scheduled_arrival": INSTANT,
}
FLIGHT = {
    "flight__distance": pa.float64(),
    "flight__hour": pa.float64(),
    "flight__weekday": pa.string(),
    "flight__duration_minutes": pa.float64(),
    "flight__carrier": pa.string(),
    "flight__origin": pa.string(),
    "flight__dest": pa.string(),
}
SCHEMA = pa.schema({**IDENTITY, **REQUEST, **FLIGHT, **dict.fromkeys(feature_columns(), pa.float64())})

WEEK = "_7d"
SHARES = ("late_share", "cancelled_share")
COUNTS = ("departures", "scheduled_departures", "known_cancelled", "known_late")


NOT_FEATURES = (*IDENTITY, "scheduled_departure", "scheduled_arrival")
"""Columns in which no leak is looked for: they identify the row, are the label, or are instants."""


def suites(volume_history: tuple[int, ...], policy: CheckPolicy) -> tuple[tuple[TableSuite, ...], tuple[str, ...]]:
    """The suite of ``rows.parquet``, and a line per check that is left out."""
    volume, notes = relative_volume(volume_history, policy)
    lead = int(policy.lead.total_seconds())
    checks = [
        *columns(SCHEMA),
        rows(policy.training_rows),
        *volume,
        *known((*IDENTITY, *REQUEST, *FLIGHT)),
        *_features(policy),
        unique("row_id"),
        one_of("label", (0, 1)),
        between("flight__hour", 0, 24),
        one_of("flight__weekday", [str(day) for day in range(7)]),
        holds("arrives_after_departure", "scheduled_arrival", "scheduled_arrival > scheduled_departure"),
        holds("label_after_prediction", "label_time", "label_time > at"),
        holds("lead", "at", f"at = scheduled_departure - INTERVAL {lead} SECONDS"),
    ]
    return (TableSuite("rows", ("row_id",), tuple(checks)),), notes


def _features(policy: CheckPolicy) -> list[Rule]:
    """Shares in [0, 1], counts not negative, weekly features nearly always known, no feature dead."""
    weekly = [name for name in feature_columns() if name.endswith(WEEK)]
    others = [name for name in feature_columns() if not name.endswith(WEEK)]
    return [
        *known(weekly, share=policy.known_share),
        *known(others, share=policy.seen_share),
        _bounded(
            "shares", [name for name in feature_columns() if _statistic(name).startswith(SHARES)], " AND {0} <= 1"
        ),
        _bounded("counts", [name for name in feature_columns() if _statistic(name).startswith(COUNTS)], ""),
    ]


def _statistic(column: str) -> str:
    return column.partition("__")[2]


def _bounded(key: str, names: Sequence[str], limit: str) -> Rule:
    """Every value of these columns that is not null is at least 0, and within ``limit``: one scan for all of them."""
    condition = " AND ".join(f"coalesce({name} >= 0{limit.format(name)}, true)" for name in names)
    return holds(f"range:{key}", f"all {key}", condition)
