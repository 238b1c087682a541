"""The requests and labels of past hours at weather stations: asked whether or not an observation comes, labelled when it does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import pyarrow as pa

from feature_repo.contract import NextObservation
from feature_repo.tables import RAW_SCHEMAS
from serving.past import Observations
from tests.make import gateway as make

QUESTION = NextObservation(value="temp")
MINUTES = dt.timedelta(minutes=20)
HOUR = dt.timedelta(hours=1)


def day(*readings: tuple[str, dt.datetime, float | None]) -> Mapping[str, pa.Table]:
    rows = [
        {"origin": station, "temp": temp, "event_time": hour, "available_time": hour + MINUTES}
        for station, hour, temp in readings
    ]
    names = RAW_SCHEMAS["weather"].names
    return {
        "weather": pa.Table.from_pylist(
            [{name: row.get(name) for name in names} for row in rows], RAW_SCHEMAS["weather"]
        )
    }


def past() -> Observations:
    return Observations(QUESTION, make.CALENDAR)


def test_every_hour_is_asked_half_an_hour_before_it_even_where_the_station_fell_silent() -> None:
    days = [
        day(("JFK", make.instant(2, 10), 60.0), ("EWR", make.instant(2, 12), 61.0), ("JFK", make.instant(2, 14), 63.0))
    ]
    found = list(past().requests(days, make.instant(2, 10), make.instant(2, 14)))
    assert [(asked.request_id, asked.at) for asked in found] == [
        ("JFK-2013-09-02T11Z", make.instant(2, 10, 30)),  # JFK has reported by 10:20, EWR by 12:20
        ("JFK-2013-09-02T12Z", make.instant(2, 11, 30)),
        ("EWR-2013-09-02T13Z", make.instant(2, 12, 30)),
        ("JFK-2013-09-02T13Z", make.instant(2, 12, 30)),
        ("EWR-2013-09-02T14Z", make.instant(2, 13, 30)),
        ("JFK-2013-09-02T14Z", make.instant(2, 13, 30)),
    ]
    assert found[0].inputs == {"origin": "JFK", "hour": "2013-09-02T11:00:00Z"}


def test_each_request_belongs_to_one_span() -> None:
    days = [day(("JFK", make.instant(1, 10), 60.0))]
    whole = list(past().requests(days, make.instant(2, 0), make.instant(3, 0)))
    parts = [
        asked
        for start in range(24)
        for asked in past().requests(days, make.instant(2, start), make.instant(2, start) + HOUR)
    ]
    assert parts == whole
    assert len(whole) == 24


def test_nothing_is_asked_outside_the_calendar() -> None:
    days = [day(("JFK", make.instant(1, 10), 60.0))]
    ends = make.CALENDAR.ends(make.CALENDAR.last or make.FIRST)
    assert len(list(past().requests(days, ends - HOUR, ends + 5 * HOUR))) == 1


def test_a_label_is_the_reading_when_its_report_was_out_and_no_reading_is_none() -> None:
    days = [
        day(("JFK", make.instant(2, 10), 60.5), ("JFK", make.instant(2, 11), None), ("JFK", make.instant(2, 12), 62.0))
    ]
    found = list(past().labels(days, make.instant(2, 10), make.instant(2, 12)))
    assert [(label.request_id, label.label, label.known_at) for label in found] == [
        ("JFK-2013-09-02T10Z", 60.5, make.instant(2, 10, 20))
    ]
