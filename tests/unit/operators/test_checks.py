"""The specs of the day checks, from the manifests that lie in the store."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from artifacts.refs import file_uri, join
from artifacts.store import publish
from operators.pipelines import FLIGHTS
from operators.plans.checks import raw_days, view_days

DAY = dt.date(2013, 3, 8)
WEEK = dt.timedelta(weeks=1)


def lay(root: str, day: dt.date, **rows: int) -> None:
    with publish(join(root, str(day)), "raw-day") as draft:
        draft.facts.update(day=str(day), rows=rows)


def test_the_history_is_of_the_same_weekdays_without_exceptions_and_gaps(tmp_path: Path) -> None:
    store = file_uri(tmp_path)
    lake = FLIGHTS.lake(store)
    for week in range(10):
        if week != 2:
            lay(lake, DAY - week * WEEK, schedule=900 + week, weather=72)
    spec = raw_days(FLIGHTS, store, (DAY,), file_uri(tmp_path / "out"))
    (target,) = spec.targets
    assert (spec.suite, target.partition) == ("raw_day", DAY)
    assert dt.date(2013, 2, 8) in FLIGHTS.calendar.exceptions  # four weeks before
    assert target.history == {"schedule": (901, 903, 905, 906, 907, 908), "weather": (72,) * 6}


def test_a_range_holds_every_day_once_and_the_same_day_alone_has_a_spec_of_its_own(tmp_path: Path) -> None:
    store = file_uri(tmp_path)
    for number in range(3):
        lay(FLIGHTS.views(store), DAY + number * dt.timedelta(days=1), carrier=300)
    days = tuple(DAY + number * dt.timedelta(days=1) for number in range(3))
    out = file_uri(tmp_path / "out")
    spec = view_days(FLIGHTS, store, days, out)
    assert [target.partition for target in spec.targets] == list(days)
    alone = view_days(FLIGHTS, store, days[:1], out)
    assert alone.target == alone.targets[0].digest == spec.targets[0].digest
    assert spec.target not in {target.digest for target in spec.targets}
    with pytest.raises(ValueError, match="the partitions must ascend"):
        view_days(FLIGHTS, store, days[::-1], out)


def test_a_day_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="2013-03-08: this day is not there; run the features DAG"):
        raw_days(FLIGHTS, file_uri(tmp_path), (DAY,), file_uri(tmp_path / "out"))
