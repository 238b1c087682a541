"""What counts as a difference between the online store and the views, and how many are too many."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from feature_repo.catalogue import FEATURES
from feature_repo.check_online import compared, sampled, verdict
from feature_repo.contract import CheckOnlineSpec, ComparedView, OnlinePolicy
from feature_repo.materialize import EPOCH, TICK
from feature_repo.online_rows import Stored
from tests.make import expectations as make

NOW = dt.datetime(2013, 1, 8, 12, tzinfo=dt.UTC)
HOUR_MICROSECONDS = 3_600_000_000
POLICY = OnlinePolicy()
WIDTH = len(FEATURES["weather"])


def stored(value: float | None = 1.0, hours_old: float = 1) -> Stored:
    event = (NOW - EPOCH) // TICK - int(hours_old * HOUR_MICROSECONDS)
    return Stored(event, event, (value,) * WIDTH)


def seen(value: Any = 1.0, hours_old: float = 1, status: str = "present") -> tuple[str, float | None, tuple[Any, ...]]:
    return status, hours_old * 3600 if status == "present" else None, (value,) * WIDTH


def compare(row: Stored, served: tuple[str, float | None, tuple[Any, ...]]) -> ComparedView:
    return compared("weather", {("EWR",): row}, [served], NOW, POLICY)


@pytest.mark.parametrize(
    ("row", "served", "example"),
    [
        (stored(), seen(), None),
        (stored(None), seen(None), None),
        (stored(1.0), seen(1.0 + 9e-7), None),
        (stored(0.0), seen(0.0), None),
        (stored(1.0), seen(1.0 + 2e-6), "EWR: temp is 1.000002, offline 1.0"),
        (stored(1.0), seen(None), "EWR: temp is None, offline 1.0"),
        (stored(None), seen(0.0), "EWR: temp is 0.0, offline None"),
        (stored(hours_old=1), seen(hours_old=2), "EWR: age is 7200 s, offline 3600.0 s"),
        (stored(), seen(None, status="absent"), "EWR: status is absent, offline present"),
        (stored(hours_old=168), seen(), "EWR: status is present, offline expired"),
        (stored(hours_old=168), seen(None, status="expired"), None),
        (stored(hours_old=168), seen(None, status="absent"), None),
    ],
)
def test_what_differs(row: Stored, served: Any, example: str | None) -> None:
    found = compare(row, served)
    assert (found.rows, found.differing) == (1, int(example is not None))
    assert found.examples == (() if example is None else (example,))


def test_a_row_of_a_later_window_is_left_out_and_said() -> None:
    found = compare(stored(), seen(None, status="ahead"))
    assert (found.rows, found.differing, found.ahead) == (0, 0, 1)
    alarms, faults = verdict({"weather": found}, POLICY)
    assert alarms == ["weather: 1 rows are newer than the window and were not compared; who else writes?"]
    assert "not one row was compared" in faults[0]  # a check that could not run is no pass


@pytest.mark.parametrize(("differing", "alarms", "faults"), [(0, 0, 0), (1, 0, 0), (2, 1, 0), (10, 1, 0), (11, 0, 1)])
def test_how_many_are_too_many(differing: int, alarms: int, faults: int) -> None:
    views = {"weather": ComparedView(rows=1000, differing=differing, examples=("EWR: temp is 1.0, offline 2.0",))}
    views["carrier"] = ComparedView(rows=10**6, differing=0)  # one view's faults do not drown in another's rows
    said = verdict(views, POLICY)
    assert tuple(map(len, said)) == (alarms, faults)
    assert all("weather" in line and "EWR: temp is 1.0, offline 2.0" in line for lines in said for line in lines)


@pytest.mark.parametrize(("rows", "differing", "fails"), [(3, 1, False), (3, 2, True), (1, 1, True), (99, 1, False)])
def test_one_row_of_a_small_view_is_an_alarm(rows: int, differing: int, fails: bool) -> None:
    alarms, faults = verdict({"weather": ComparedView(rows=rows, differing=differing)}, POLICY)
    assert (len(alarms), len(faults)) == ((0, 1) if fails else (1, 0))


def test_the_sample_is_the_seeds() -> None:
    rows = {"weather": {(f"E{number}",): stored() for number in range(50)}, "carrier": {("UA",): stored()}}

    def chosen(seed: int) -> dict[str, list[Any]]:
        spec = CheckOnlineSpec(
            calendar=make.CALENDAR, views="file:///v", online="x", end=NOW, seed=seed, policy=OnlinePolicy(entities=10)
        )
        return {view: list(found) for view, found in sampled(spec, rows).items()}

    assert chosen(1) == chosen(1) != chosen(2)
    assert {view: len(found) for view, found in chosen(1).items()} == {"weather": 10, "carrier": 1}
