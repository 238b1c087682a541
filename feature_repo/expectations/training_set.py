"""What a training set must look like: schema, volume, nulls, ranges, unique rows, and the order of its instants. Pure.

A set has hundreds of thousands of rows and a hundred columns. Nulls, ranges and sets of all columns are answered by one
scan; a condition or a unique key costs one each, so there are two of those. Leaks are looked for in feature_repo/leaks.py.
"""

from __future__ import annotations

from feature_repo.catalogue import VIEWS, feature_column
from feature_repo.contract import FLIGHT_OUTCOME, CheckPolicy, Question
from feature_repo.expectations import daily
from feature_repo.expectations.daily import Daily
from feature_repo.expectations.raw_day import WEATHER_RANGES
from feature_repo.expectations.rules import Rule, TableSuite, between, columns, holds, known, one_of, rows, unique
from feature_repo.expectations.view_day import feature_rules
from feature_repo.questions import Layout, layout

SCHEMA = layout(FLIGHT_OUTCOME, CheckPolicy()).schema

WEEK, SHORT = "_7d", "_3h"
ONCE_A_DAY = "flight_number__"  # a number flies about once a day: at T, nothing of it lies in the last 3 hours

TABLES = ("rows",)


def suites(policy: CheckPolicy, days: int, question: Question = FLIGHT_OUTCOME) -> tuple[TableSuite, ...]:
    """The suites of ``rows.parquet`` and of its ``days`` service days as a whole."""
    asked = layout(question, policy)
    checks = [
        *columns(asked.schema),
        rows(policy.training_rows),
        *known((*asked.identity, *asked.request, *asked.derived)),
        *_features(asked, policy),
        unique("row_id"),
        _label(asked),
        *(between(name, *limits) for name, limits in asked.ranges.items()),
        *(one_of(name, values) for name, values in asked.words.items()),
        # one condition for all, since each condition reads the whole set once more
        holds("in_order", "instants", asked.in_order, ("at", *asked.instants, "label_time")),
    ]
    known_then = holds("labels_known", "label_newest", "label_newest <= cut_off", ("label_newest", "cut_off"))
    of_days = daily.suite(daily_checks(policy, question), days, known_then)
    return TableSuite("rows", ("row_id",), tuple(checks)), of_days


def daily_checks(policy: CheckPolicy, question: Question = FLIGHT_OUTCOME) -> dict[str, Daily]:
    """What is asked of each service day of the set."""
    return {"rows": Daily(layout(question, policy).fresh, inside=False)}


def not_features(asked: Layout) -> set[str]:
    """Columns in which no leak is looked for: they identify the row, are the label, or are instants."""
    return {*asked.identity, *asked.instants}


def _label(asked: Layout) -> Rule:
    """A class is 0 or 1; a number lies in the range of the reading that it is."""
    return one_of("label", (0, 1)) if asked.reading is None else between("label", *WEATHER_RANGES[asked.reading])


def _features(asked: Layout, policy: CheckPolicy) -> list[Rule]:
    """Each feature within the limits of its unit; weekly features nearly always known, no feature dead."""
    weekly = [name for name in asked.features if name.endswith(WEEK)]
    sparse = [name for name in asked.features if name.startswith(ONCE_A_DAY) and name.endswith(SHORT)]
    others = [name for name in asked.features if name not in {*weekly, *sparse}]
    return [
        *known(weekly, share=policy.known_share),
        *known(others, share=policy.seen_share),
        *known(sparse, share=policy.seen_share, severity="warning"),
        *(rule for view in VIEWS if view in asked.views for rule in feature_rules(view, feature_column(view, ""))),
    ]
