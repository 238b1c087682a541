"""One command starts a backfill of many days, the newest first, or none of them."""

import datetime as dt

import pytest

from operators import backfill
from tests.make import control

NOW = dt.datetime(2013, 9, 10, 18, tzinfo=dt.UTC)


class Airflow:
    def __init__(self):
        self.asked = []

    def trigger(self, dag_id, conf):
        self.asked.append((dag_id, conf["partition"], conf["reason"]))


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path, monkeypatch, NOW)


def test_each_day_gets_a_run_the_newest_first(capsys):
    airflow = Airflow()
    assert backfill.main(["flight_delay", "2013-09-01", "2013-09-03", "--reason", "r"], airflow) == 0
    days = [f"2013-09-0{number}" for number in (3, 2, 1)]
    assert airflow.asked == [("backfill__flight_delay", day, "r") for day in days]
    assert "3 runs of backfill__flight_delay wait, 2013-09-03 first" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        ("2013-09-03", "2013-09-01", "give the older one first"),
        ("2013-03-01", "2013-09-01", "at most 60 at a time"),
        ("2013-09-08", "2013-09-11", "2013-09-1"),
        ("2012-12-30", "2013-01-02", "2012-12-3"),
    ],
)
def test_a_span_that_cannot_be_is_refused_whole(first, last, words, capsys):
    airflow = Airflow()
    with pytest.raises(SystemExit):
        backfill.main(["flight_delay", first, last, "--reason", "r"], airflow)
    assert words in capsys.readouterr().err
    assert airflow.asked == []
