"""One message for each change of state, and one when nothing is decided any more."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from artifacts.refs import sha256
from operators import notices
from operators.ledger import Entry

NOON = dt.datetime(2013, 9, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def entry(number: int, body: dict[str, Any], unique: str | None = None) -> Entry:
    digest, at = sha256(b"d"), NOON + number * DAY
    return Entry(
        id=number, at=at, recorded_at=at, kind="k", subject="m", actor="a", body=body, unique=unique, previous=digest, digest=digest
    )  # fmt: skip


def checks(*states: str) -> list[Entry]:
    return [
        entry(
            number, {"partition": f"2013-09-0{number}", "decision": {"state": state, "reasons": [f"because {number}"]}}
        )
        for number, state in enumerate(states, 1)
    ]


def told(found: list[notices.Message]) -> list[Entry]:
    return [entry(100 + place, {}, unique=message.name) for place, message in enumerate(found)]


def test_one_message_per_change_with_its_reasons_and_none_for_what_stays() -> None:
    said = checks("STABLE", "WATCH", "WATCH", "TRIGGERED", "RETRAINING", "STABLE")
    found = notices.changes(said, [], NOON + 4 * DAY, "http://page")
    assert [message.subject for message in found] == [
        "m: STABLE -> WATCH after 2013-09-02",
        "m: WATCH -> TRIGGERED after 2013-09-04",
        "m: TRIGGERED -> RETRAINING after 2013-09-05",
        "m: RETRAINING -> STABLE after 2013-09-06",
    ]
    assert found[1].text() == "m: WATCH -> TRIGGERED after 2013-09-04\n  because 4\n  http://page"
    assert found[1].facts == {
        "model": "m", "partition": "2013-09-04", "from": "WATCH", "to": "TRIGGERED", "check": 4, "page": "http://page",
        "reasons": ["because 4"],
    }  # fmt: skip
    assert notices.changes(said, told(found), NOON + 4 * DAY, "http://page") == []


def test_what_was_lost_is_told_later_but_history_is_not() -> None:
    said = checks("WATCH", "STABLE", "WATCH", "STABLE")
    found = notices.changes(said, [], NOON + 6 * DAY, "")
    assert [message.facts["check"] for message in found] == [3, 4]
    assert [message.facts["check"] for message in notices.changes(said, told(found[:1]), NOON + 6 * DAY, "")] == [4]


def test_words_from_outside_stay_words() -> None:
    said = checks("WATCH")
    said[0].body["decision"]["reasons"] = ["<script>{{ 7 * 7 }}"]  # type: ignore[index,call-overload]
    html = notices.changes(said, [], NOON, "")[0].html()
    assert "&lt;script&gt;{{ 7 * 7 }}" in html


@pytest.mark.covers("field-reports 30")
def test_a_daily_retrain_that_nobody_decided_for_26_hours_is_an_alarm() -> None:
    decisions = [entry(0, {})]
    tick = NOON + DAY
    assert notices.overdue("m", decisions, tick, NOON + dt.timedelta(hours=26)) is None
    found = notices.overdue("m", decisions, tick, NOON + dt.timedelta(hours=26, seconds=1))
    assert found is not None
    assert found.subject == "m: no retrain was decided since 2013-09-01T12:00Z, one was due at 2013-09-02T12:00Z"
    assert found.name == "overdue:m:0"


def test_without_cron_or_before_the_first_decision_nothing_is_overdue() -> None:
    assert notices.overdue("m", [entry(0, {})], None, NOON + 90 * DAY) is None
    assert notices.overdue("m", [], NOON, NOON + 90 * DAY) is None
