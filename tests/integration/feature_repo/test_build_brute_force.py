"""Views at hours of change against the same views hour by hour and fact by fact, on made-up flights with every oddity."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from feature_repo import spark, tables
from feature_repo.build import compute
from feature_repo.catalogue import VIEWS
from feature_repo.contract import BuildSpec
from tests.make import brute_views as brute
from tests.make import feature_repo as make

pytestmark = pytest.mark.spark

DAYS = 16
CALENDAR = make.calendar("2013-10-25", "2013-11-09")  # the clock changes on 2013-11-03
BEGINS, ENDS = CALENDAR.starts(CALENDAR.first), CALENDAR.ends(dt.date(2013, 11, 9))
HOUR = dt.timedelta(hours=1)
LAKE = brute.some_flights(7, BEGINS, DAYS, 90)
SPEC = BuildSpec(
    calendar=CALENDAR, lake="file:///lake", snapshot="sha256:" + "0" * 64, views="file:///views", start=BEGINS, end=ENDS
)


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with spark.session("tests") as shared:
        yield shared


@pytest.fixture(scope="module")
def at_once(session: SparkSession) -> dict[str, pa.Table]:
    return compute(session, SPEC, LAKE, BEGINS, ENDS)


def digest(rows: Mapping[str, pa.Table]) -> dict[str, bytes]:
    return {view: tables.view_bytes(view, table) for view, table in rows.items()}


@pytest.fixture(scope="module")
def expected() -> dict[str, list[brute.Row]]:
    return brute.views(SPEC, LAKE, BEGINS, ENDS)


@pytest.mark.parametrize("view", VIEWS)
def test_every_row_is_what_the_definition_says_and_none_is_missing(
    view: str, at_once: dict[str, pa.Table], expected: dict[str, list[brute.Row]]
) -> None:
    keys = [(key, "ascending") for key in (*VIEWS[view].keys, "event_time")]
    found = at_once[view].sort_by(keys).to_pylist()
    assert len(found) > DAYS
    assert found == expected[view]


def test_hours_in_any_pieces_give_the_bytes_of_all_at_once(session: SparkSession, at_once: dict[str, pa.Table]) -> None:
    dice = random.Random(3)  # noqa: S311  a dice
    hours = (ENDS - BEGINS) // HOUR
    cuts = sorted({0, 1, *dice.sample(range(3, hours - 1), 3), hours})
    pieces = [
        compute(session, SPEC, LAKE, BEGINS + begin * HOUR, BEGINS + end * HOUR)
        for begin, end in itertools.pairwise(cuts)
    ]
    assert digest({view: pa.concat_tables([piece[view] for piece in pieces]) for view in VIEWS}) == digest(at_once)


def test_a_piece_reads_no_more_than_the_days_that_it_says(session: SparkSession, at_once: dict[str, pa.Table]) -> None:
    """``compute`` drops flights outside ``fact_days``; an origin's life in particular may not hang on flights further ahead."""
    begin, end = BEGINS + 200 * HOUR, BEGINS + 201 * HOUR
    piece = compute(session, SPEC, LAKE, begin, end)
    for view, table in at_once.items():
        when = table["event_time"].to_pylist()
        whole = table.filter(pa.array([begin < instant <= end for instant in when]))
        assert tables.view_bytes(view, piece[view]) == tables.view_bytes(view, whole)
