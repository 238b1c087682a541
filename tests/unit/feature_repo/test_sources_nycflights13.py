"""How raw flight rows become facts with two clocks; each row below is written out, none is read from the package."""

import datetime as dt
from typing import Any

import pandas as pd
import pytest

from artifacts.step import DataFault
from feature_repo.sources import nycflights13 as source
from tests.make.feature_repo import calendar, utc

ZONES = {"SFO": "America/Los_Angeles", "BOS": "America/New_York"} | source.ZONES_SUPPLIED
YEAR = calendar("2013-01-01", "2013-12-31")


def flights(**columns: Any) -> pd.DataFrame:
    row = {
        "dep_time": [1105.0], "sched_dep_time": [1100], "dep_delay": [5.0], "sched_arr_time": [1420], "arr_delay": [-3.0],
        "carrier": ["UA"], "flight": [1], "tailnum": ["N1"], "origin": ["JFK"], "dest": ["SFO"], "distance": [2586],
        "minute": [0], "time_hour": ["2013-06-03T15:00:00Z"],
    }  # fmt: skip
    return pd.DataFrame(row | columns)


def facts(**columns: Any) -> dict[str, list[dict[str, Any]]]:
    return {name: table.to_pylist() for name, table in source.facts(flights(**columns), ZONES, YEAR).items()}


def test_a_flight_that_arrived_gives_three_facts_with_their_own_clocks() -> None:
    found = facts()
    (schedule,), (departure,), (arrival,) = found["schedule"], found["departure"], found["arrival"]
    assert schedule["flight_id"] == "2013-06-03-UA1-JFK-SFO-1100"
    assert schedule["available_time"] == utc("2013-05-27T15:00:00")
    assert schedule["scheduled_arrival"] == utc("2013-06-03T21:20:00")
    assert "tailnum" not in schedule
    assert departure["available_time"] == departure["event_time"] == utc("2013-06-03T15:05:00")
    assert arrival["available_time"] == utc("2013-06-03T21:17:00")


def test_a_cancelled_flight_is_known_at_its_scheduled_departure_and_never_arrives() -> None:
    found = facts(dep_time=[None], dep_delay=[None], arr_delay=[None])
    assert found["arrival"] == []
    (departure,) = found["departure"]
    assert departure["cancelled"] is True
    assert departure["departure_delay"] is None
    assert departure["available_time"] == utc("2013-06-03T15:00:00")


def test_a_diverted_flight_is_known_six_hours_after_its_scheduled_arrival() -> None:
    (arrival,) = facts(arr_delay=[None])["arrival"]
    assert arrival["diverted"] is True
    assert arrival["arrival_delay"] is None
    assert arrival["available_time"] == utc("2013-06-04T03:20:00")


def test_arrival_after_midnight_rolls_to_the_next_day_of_the_destination() -> None:
    (schedule,) = facts(time_hour=["2013-06-04T03:00:00Z"], dest=["BOS"], sched_arr_time=[5])["schedule"]
    assert schedule["scheduled_arrival"] == utc("2013-06-04T04:05:00")


def test_zones_that_the_airports_table_lacks_are_supplied() -> None:
    assert {"BQN", "PSE", "SJU", "STT"} <= set(
        source.zones(pd.DataFrame({"faa": ["SFO"], "tzone": ["America/Denver"]}))
    )
    (schedule,) = facts(time_hour=["2013-01-03T15:00:00Z"], dest=["SJU"], sched_arr_time=[1500])["schedule"]
    assert schedule["scheduled_arrival"] == utc("2013-01-03T19:00:00")


def test_an_unknown_zone_is_a_fault_that_names_the_airport() -> None:
    with pytest.raises(DataFault, match="tzone: no time zone for 'XYZ'; supply it in ZONES_SUPPLIED"):
        source.facts(flights(dest=["XYZ"]), ZONES, YEAR)


def test_an_hour_that_the_clock_shows_twice_and_one_that_it_skips() -> None:
    zone = pd.Series(["America/New_York"])
    twice = source.scheduled_arrival(pd.Series([pd.Timestamp("2013-11-03T04:30Z")]), pd.Series([130]), zone)
    skipped = source.scheduled_arrival(pd.Series([pd.Timestamp("2013-03-10T05:30Z")]), pd.Series([230]), zone)
    assert twice[0] == pd.Timestamp("2013-11-03T05:30Z")
    assert skipped[0] == pd.Timestamp("2013-03-10T07:00Z")


def test_after_midnight_belongs_to_the_service_day_before() -> None:
    (schedule,) = facts(time_hour=["2013-07-27T05:00:00Z"], minute=[6])["schedule"]
    assert schedule["day"] == dt.date(2013, 7, 26)
    assert schedule["flight_id"] == "2013-07-26-UA1-JFK-SFO-0106"


def test_flights_that_clash_get_numbered_ids() -> None:
    both = pd.concat([flights(), flights()], ignore_index=True)
    ids = source.facts(both, ZONES, YEAR)["schedule"]["flight_id"].to_pylist()
    assert ids == ["2013-06-03-UA1-JFK-SFO-1100", "2013-06-03-UA1-JFK-SFO-1100-2"]


def test_an_observation_is_known_twenty_minutes_later_and_belongs_to_the_hour_that_it_ends() -> None:
    names = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
    hours = ["2013-06-04T08:00:00Z", "2013-06-04T09:00:00Z"]
    rows = pd.DataFrame({"origin": ["JFK"] * 2, "time_hour": hours, **{name: [1.0, 2.0] for name in names}})
    first, second = source.observations(rows, YEAR).to_pylist()
    assert (first["day"], second["day"]) == (dt.date(2013, 6, 3), dt.date(2013, 6, 4))
    assert first["available_time"] == utc("2013-06-04T08:20:00")


def test_a_range_gives_the_same_rows_as_the_days_one_by_one() -> None:
    first, last = dt.date(2013, 11, 2), dt.date(2013, 11, 3)  # the clock changes between them
    together = source.tables(YEAR, first, last)
    for name, table in together.items():
        assert set(table["day"].to_pylist()) == {first, last}, name
        apart = [source.tables(YEAR, day, day)[name].to_pylist() for day in (first, last)]
        assert sorted(table.to_pylist(), key=str) == sorted(apart[0] + apart[1], key=str), name
    assert together["schedule"].num_rows > 1000
