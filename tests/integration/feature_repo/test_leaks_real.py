"""Leaks in real flights: the tail number, put back as a feature, is caught, and harmless columns of the same rows are not."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from feature_repo.contract import CheckPolicy
from feature_repo.leaks import leaks
from feature_repo.sources import nycflights13
from tests.make.expectations import CALENDAR

FIRST, LAST = dt.date(2013, 2, 4), dt.date(2013, 3, 10)  # five weeks with the blizzard of 8 February


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    """One row per flight: what its tables say, and the label of the reference model."""
    raw = {
        name: table.to_pandas()
        for name, table in nycflights13.tables(CALENDAR, FIRST, LAST).items()
        if name != "weather"
    }
    left = raw["departure"]
    left = left[(left.day >= FIRST) & (left.day <= LAST)].set_index("flight_id")
    came = raw["arrival"].set_index("flight_id").reindex(left.index)
    late = came.diverted.fillna(False).astype(bool) | (came.arrival_delay >= 15)
    return left.assign(label=(left.cancelled | late).astype(np.int8), arrival_delay=came.arrival_delay)


def caught(flights: pd.DataFrame, column: str) -> list[str]:
    values = flights[column]
    array = (
        values.to_numpy(float)
        if values.dtype.kind == "f"
        else values.astype(object).where(values.notna(), None).to_numpy()
    )
    return [one.line() for one in leaks({column: array}, flights.label.to_numpy(), CheckPolicy()) if not one.success]


@pytest.mark.covers("decisions 3.6")
def test_the_tail_number_is_caught_by_its_nulls(flights: pd.DataFrame) -> None:
    assert flights.tailnum.isna().sum() >= CheckPolicy().leak_rows
    assert (flights[flights.tailnum.isna()].label == 1).all(), "null for cancelled flights only"
    (line,) = caught(flights, "tailnum")
    assert line.startswith(
        "expect_no_group_with_one_label(rows.tailnum): 1 groups of 500 rows or more hold one label only"
    )
    assert f"null ({flights.tailnum.isna().sum()} rows, label share 1)" in line


@pytest.mark.covers("decisions 3.6")
def test_the_outcome_itself_is_caught_both_ways(flights: pd.DataFrame) -> None:
    lines = caught(flights, "arrival_delay")
    assert any(line.startswith("expect_auc_alone_to_be_at_most(rows.arrival_delay): AUC 1.0") for line in lines)
    assert any("hold one label only" in line for line in lines)


@pytest.mark.parametrize("column", ["carrier", "origin", "dest"])
def test_what_is_known_in_advance_is_no_leak(flights: pd.DataFrame, column: str) -> None:
    assert caught(flights, column) == []
