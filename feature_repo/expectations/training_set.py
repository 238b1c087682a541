"""What a training set must look like: schema, volume, nulls, ranges, unique rows, and the order of its instants. Pure.

A set has hundreds of thousands of rows and a hundred columns. Nulls, ranges and sets of all columns are answered by one
scan; a condition or a unique key costs one each, so there are two of those. Leaks are looked for in feature_repo/leaks.py.
"""

from __future__ import annotations

import pyarrow as pa

from feature_repo.catalogue import VIEWS, feature_column, feature_columns
from feature_repo.contract import CheckPolicy
from feature_repo.expectations import daily
from feature_repo.expectations.daily import Daily
from feature_repo.expectations.rules import Rule, TableSuite, between, columns, holds, known, one_of, rows, unique
from feature_repo.expectations.view_day import feature_rules

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

WEEK, SHORT = "_7d", "_3h"
ONCE_A_DAY = "flight_number__"  # a number flies about once a day: at T, nothing of it lies in the last 3 hours
INSTANTS = ("at", "scheduled_departure", "scheduled_arrival", "label_time")
IN_ORDER = (
    "at = scheduled_departure - INTERVAL {lead} SECONDS AND scheduled_arrival > scheduled_departure AND label_time > at"
)
"""One condition for all, since each condition reads the whole set once more."""

NOT_FEATURES = (*IDENTITY, "scheduled_departure", "scheduled_arrival")
"""Columns in which no leak is looked for: they identify the row, are the label, or are instants."""

TABLES = ("rows",)


def suites(policy: CheckPolicy, days: int) -> tuple[TableSuite, ...]:
    """The suites of ``rows.parquet`` and of its ``days`` service days as a whole."""
    lead = int(policy.lead.total_seconds())
    checks = [
        *columns(SCHEMA),
        rows(policy.training_rows),
        *known((*IDENTITY, *REQUEST, *FLIGHT)),
        *_features(policy),
        unique("row_id"),
        one_of("label", (0, 1)),
        between("flight__hour", 0, 24),
        one_of("flight__weekday", [str(day) for day in range(7)]),
        holds("in_order", "instants", IN_ORDER.format(lead=lead), INSTANTS),
    ]
    known_then = holds("labels_known", "label_newest", "label_newest <= cut_off", ("label_newest", "cut_off"))
    return TableSuite("rows", ("row_id",), tuple(checks)), daily.suite(daily_checks(policy), days, known_then)


def daily_checks(policy: CheckPolicy) -> dict[str, Daily]:
    """What is asked of each service day of the set."""
    return {"rows": Daily(policy.flights_fresh, inside=False)}


def _features(policy: CheckPolicy) -> list[Rule]:
    """Each feature within the limits of its unit; weekly features nearly always known, no feature dead."""
    weekly = [name for name in feature_columns() if name.endswith(WEEK)]
    sparse = [name for name in feature_columns() if name.startswith(ONCE_A_DAY) and name.endswith(SHORT)]
    others = [name for name in feature_columns() if name not in {*weekly, *sparse}]
    return [
        *known(weekly, share=policy.known_share),
        *known(others, share=policy.seen_share),
        *known(sparse, share=policy.seen_share, severity="warning"),
        *(rule for view in VIEWS for rule in feature_rules(view, feature_column(view, ""))),
    ]
