"""The request's own features, on both sides of a clock change and where a time is missing."""

import numpy as np

from feature_repo.views.flight import CATEGORICAL, NUMERIC, derive


def asked(*departures: str) -> dict[str, np.ndarray]:
    times = np.array(departures, dtype="datetime64[us]")
    text = {name: np.array([name.upper()] * len(times), dtype=object) for name in ("carrier", "origin", "dest")}
    return text | {
        "flight": np.ones(len(times), dtype=np.int64),
        "distance": np.full(len(times), 500.0),
        "scheduled_departure": times,
        "scheduled_arrival": times + np.timedelta64(95, "m"),
    }


def test_hour_and_weekday_are_those_of_new_york() -> None:
    found = derive(asked("2013-09-01T13:30", "2013-09-02T02:15", "2013-01-01T03:00"))
    assert found["flight__hour"].tolist() == [9.5, 22.25, 22.0]
    assert found["flight__weekday"].tolist() == ["6", "6", "0"]
    assert found["flight__duration_minutes"].tolist() == [95.0] * 3


def test_the_clock_change_is_followed_within_the_day() -> None:
    found = derive(asked("2013-11-03T05:30", "2013-11-03T06:30", "2013-03-10T06:59", "2013-03-10T07:00"))
    assert found["flight__hour"].round(2).tolist() == [1.5, 1.5, 1.98, 3.0]


def test_a_missing_time_gives_nulls_and_leaves_the_others_alone() -> None:
    found = derive(asked("NaT", "2013-09-01T13:30"))
    assert np.isnan(found["flight__hour"]).tolist() == [True, False]
    assert found["flight__weekday"].tolist() == [None, "6"]
    assert np.isnan(found["flight__duration_minutes"]).tolist() == [True, False]


def test_no_rows_in_no_rows_out_and_the_names_are_complete() -> None:
    found = derive(asked())
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys((*NUMERIC, *CATEGORICAL), 0)
