"""The step that reads the online store back, on both stores."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from artifacts.refs import join
from artifacts.step import DataFault
from feature_repo import online_rows
from feature_repo.check_online import check_online
from feature_repo.contract import CheckOnlineSpec, OnlineCheckRef
from feature_repo.materialize import DAY, Materializer
from tests.make import expectations as make
from tests.make.expectations import HOUR, MINUTE

START = dt.datetime(2013, 1, 8, 12, tzinfo=dt.UTC)
NONE = dt.timedelta(0)
FLIGHTS = 300  # more than one read of the reader


class Hours:
    """Views of a day, materialised up to ``end``."""

    def __init__(self, folder: Path, online: str) -> None:
        self.online, self.views = online, make.folder_uri(folder, "views")
        rows: dict[str, list[Any]] = {
            "carrier": [("UA", START - HOUR, NONE, 0.5), ("UA", START, NONE, 0.25), ("UA", START + HOUR, NONE, 9.0)],
            "route": [(("EWR", "BOS"), START, NONE, None)],
            "flight_number": [(("UA", number), START, NONE, number / 7) for number in range(FLIGHTS)],
            "weather": [("EWR", START, 20 * MINUTE, 39.02)],
        }
        make.publish_tables(join(self.views, str(make.DAY)), "view-day", make.view_day(rows))
        self.writer = Materializer(make.CALENDAR, self.views, online)

    def check(self, end: dt.datetime) -> OnlineCheckRef:
        return check_online(
            CheckOnlineSpec(calendar=make.CALENDAR, views=self.views, online=self.online, end=end, seed=1)
        )

    def spoil(self, view: str, entity: online_rows.Entity, value: float) -> None:
        """Overwrites one row with another value, as a second writer might."""
        stored = self.writer._rows.read({view: [entity]})[view][entity]
        wrong = online_rows.Stored(stored.event, stored.available, (value,) * len(stored.values))
        key, values = online_rows.entity_key(view, entity), online_rows.feature_values(view, wrong)
        config, table = self.writer._store.config, self.writer._feature_views[view]
        self.writer._provider.online_write_batch(config, table, [(key, values, START, START)], None)


@pytest.fixture(params=["sqlite", "redis"])
def hours(tmp_path: Path, request: pytest.FixtureRequest) -> Hours:
    online = request.getfixturevalue("redis").url if request.param == "redis" else str(tmp_path / "online")
    return Hours(tmp_path, online)


def test_what_was_written_equals_the_views(hours: Hours) -> None:
    hours.writer.write(START - HOUR, START + HOUR)
    found = hours.check(START + HOUR)
    assert {view: one.rows for view, one in found.views.items() if one.rows} == {
        "carrier": 1,
        "route": 1,
        "flight_number": FLIGHTS,
        "weather": 1,
    }
    assert sum(one.differing for one in found.views.values()) == 0
    assert found.alarms == ()


def test_a_few_wrong_rows_are_an_alarm_and_many_a_failure(hours: Hours) -> None:
    hours.writer.write(START - HOUR, START + HOUR)
    hours.spoil("flight_number", ("UA", 7), 1.5)
    found = hours.check(START + HOUR)
    assert found.alarms == (
        f"flight_number: 1 of {FLIGHTS} rows differ from the views, such as UA+7: departures_3h is 1.5, offline 1.0",
    )
    for number in range(8, 11):
        hours.spoil("flight_number", ("UA", number), 1.5)
    with pytest.raises(DataFault, match=f"flight_number: 4 of {FLIGHTS} rows differ.*who else writes"):
        hours.check(START + HOUR)


def test_a_window_that_was_not_written_is_found(hours: Hours) -> None:
    hours.writer.write(START - HOUR, START)  # what became visible at START itself belongs to the next window
    assert hours.check(START).views["carrier"].rows == 1
    with pytest.raises(
        DataFault, match=r"carrier: 1 of 1 rows differ.*UA: age is 7199.999999 s, offline 3599.999999 s"
    ):
        hours.check(START + HOUR)


def test_a_store_that_is_ahead_is_not_called_wrong(hours: Hours) -> None:
    hours.writer.write(START - HOUR, START + 2 * HOUR)
    found = hours.check(START + HOUR)
    assert (found.views["carrier"].ahead, found.views["carrier"].differing) == (1, 0)
    assert found.alarms == ("carrier: 1 rows are newer than the window and were not compared; who else writes?",)


def test_the_hours_after_the_calendars_last_day_reach_the_store(hours: Hours) -> None:
    """A build goes on for the hours of lateness, in which facts of the last day still arrive."""
    assert make.CALENDAR.last is not None
    after = make.CALENDAR.ends(make.CALENDAR.last)
    for number in range(2):
        rows: dict[str, list[Any]] = {"carrier": [("UA", after + (6 * number - 1) * HOUR, NONE, 0.5 + number)]}
        day = make.CALENDAR.last + number * DAY
        make.publish_tables(join(hours.views, str(day)), "view-day", make.view_day(rows))
    end = make.CALENDAR.as_of(make.CALENDAR.last) + HOUR
    assert hours.writer.write(after - 2 * HOUR, end).rows["carrier"] == 1
    found = hours.check(end)
    assert (found.views["carrier"].rows, found.views["carrier"].differing) == (1, 0)
