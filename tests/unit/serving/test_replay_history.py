"""What the replay reads from the past: who asked when, labels by when they became known, slots without gaps."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from serving.history import HOUR, History, slots
from tests.make import gateway as make

START = make.instant(2, 8)


def history(root: Path) -> History:
    make.lake(root)
    make.views(root, days=2)
    return History(make.replay_spec(root, "http://nowhere"))


def test_requests_are_asked_two_hours_before_departure_in_order(tmp_path: Path) -> None:
    found = history(tmp_path).requests(START, START + 3 * HOUR)
    assert [(asked.request_id, asked.at) for asked in found] == [
        ("2013-09-02-UA0", make.instant(2, 8)),
        ("2013-09-02-UA1", make.instant(2, 10)),
    ]
    assert found[0].inputs == {
        **{"carrier": "UA", "flight": 0, "origin": "EWR", "dest": "BOS", "distance": 200.0},
        **{"scheduled_departure": "2013-09-02T10:00:00Z", "scheduled_arrival": "2013-09-02T11:00:00Z"},
    }


def test_each_request_belongs_to_one_leg(tmp_path: Path) -> None:
    found = history(tmp_path)
    middle = make.instant(2, 20)
    parts = [*found.requests(START, middle), *found.requests(middle, START + 30 * HOUR)]
    assert parts == found.requests(START, START + 30 * HOUR)
    assert len({asked.request_id for asked in parts}) == len(parts) == 9


def test_labels_come_when_they_become_known(tmp_path: Path) -> None:
    found = history(tmp_path).labels(make.instant(2, 11), make.instant(2, 16))
    assert [(label.request_id, label.label, label.known_at.hour, label.known_at.minute) for label in found] == [
        ("2013-09-02-UA0", 0, 11, 0),
        ("2013-09-02-UA1", 1, 12, 0),  # cancelled: known at the scheduled departure
        ("2013-09-02-UA2", 1, 15, 40),  # 40 minutes late
    ]


def test_instants_are_those_of_the_views(tmp_path: Path) -> None:
    found = history(tmp_path).instants(START, START + 2 * HOUR)
    assert sorted(found) == [make.instant(2, 8), make.instant(2, 8, 20), make.instant(2, 9), make.instant(2, 9, 20)]


def instants(days: int) -> st.SearchStrategy[dt.datetime]:
    """Instants to the microsecond from 2013-09-01 on."""
    return st.timedeltas(dt.timedelta(0), dt.timedelta(days=days)).map(lambda after: make.instant(1, 0) + after)


@given(
    start=instants(2),
    length=st.timedeltas(dt.timedelta(seconds=1), dt.timedelta(days=1)),
    cuts=st.sets(instants(4), max_size=8),
)
def test_slots_cover_the_time_line_once_and_begin_at_every_instant(
    start: dt.datetime, length: dt.timedelta, cuts: set[dt.datetime]
) -> None:
    found = slots(start, start + length, cuts)
    assert found[0][0] == start
    assert found[-1][1] == start + length
    assert all(a < b and b - a <= HOUR for a, b in found)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(found))
    assert {cut for cut in cuts if start <= cut < start + length} <= {a for a, _ in found}
