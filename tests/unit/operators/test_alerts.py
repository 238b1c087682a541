"""Alerts from outside: two forms, one line per problem, each kept once, and none of them more than evidence."""

import datetime as dt
import json

import pytest

from operators import alerts
from operators.ledger import DECISION, ledger
from operators.plans.watch import ALERT
from tests.make import control

POLICY = alerts.AlertPolicy()
NOW = dt.datetime(2013, 9, 10, 15, tzinfo=dt.UTC)
MODEL = "flight_delay"


@pytest.fixture(autouse=True)
def _deployment(tmp_path, monkeypatch):
    control.deployment(tmp_path, monkeypatch, NOW)


def firing(**changes):
    """One alert as Alertmanager 0.27 sends it."""
    return {
        "status": "firing",
        "labels": {"alertname": "LateShare", "model": MODEL, "severity": "page"},
        "annotations": {"summary": "late share fell by half"},
        "startsAt": "2013-09-10T12:00:00.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus/graph",
        "fingerprint": "c4ca4238a0b92382",
        **changes,
    }


def group(*found, version="4"):
    return json.dumps({
        "version": version, "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "perennial",
        "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://alertmanager", "alerts": list(found),
    }).encode()  # fmt: skip


def plain(**changes):
    return json.dumps({
        "id": "ticket 7", "at": "2013-09-10T12:00:00Z", "model": MODEL, "words": "a runway is closed", **changes
    }).encode()  # fmt: skip


def take(form, body, now=NOW, policy=POLICY):
    return alerts.take(alerts.parsed(form, body, policy), ledger(), now, policy)


def kept():
    return [entry.body for entry in ledger().entries(ALERT, MODEL)]


def test_an_alertmanager_group_becomes_evidence_of_the_day_it_began_on():
    found = take("alertmanager", group(firing(), firing(status="resolved", fingerprint="b")))
    assert (found.accepted, found.repeated, found.refused, found.models) == (1, 0, (), (MODEL,))
    assert kept()[0]["partition"] == "2013-09-10"
    assert kept()[0]["words"] == "LateShare: late share fell by half"
    assert ledger().entries(DECISION) == ()


def test_the_plain_form_does_too_and_its_words_are_one_short_line():
    take("generic", plain(words="a runway\nis closed " + "x" * 500, at="2013-09-10T07:59:00Z"))
    assert kept()[0]["partition"] == "2013-09-09"  # before 04:00 in New York
    assert kept()[0]["words"].startswith("a runway is closed x")
    assert len(kept()[0]["words"]) == 300


def test_what_is_sent_again_is_kept_once():
    take("alertmanager", group(firing()))
    found = take("alertmanager", group(firing(), firing(startsAt="2013-09-10T13:00:00Z")))
    assert (found.accepted, found.repeated) == (1, 1)
    assert take("generic", plain()).accepted == 1
    assert take("generic", plain(words="other words, same id and time")).repeated == 1
    assert len(kept()) == 3


@pytest.mark.parametrize(
    ("at", "says"),
    [
        ("2013-09-07T14:59:59Z", "began more than 3 days ago"),
        ("2013-09-10T15:05:01Z", "lies ahead; the data clock shows 2013-09-10T15:00Z. Mend the sender's clock"),
    ],
)
def test_a_body_of_another_time_is_refused_so_old_ids_need_not_be_remembered(at, says):
    with pytest.raises(alerts.Refused, match=says) as refused:
        take("generic", plain(at=at))
    assert refused.value.status == 409
    assert (
        take("alertmanager", group(firing(startsAt=at), firing()))
        .refused[0]
        .startswith("alert 'c4ca4238a0b92382': at ")
    )
    assert len(kept()) == 1


def test_a_body_of_before_the_calendar_is_refused():
    live_day = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
    with pytest.raises(alerts.Refused, match="before the calendar of 'flight_delay', which begins on 2013-01-01"):
        take("generic", plain(at="2012-12-31T12:00:00Z"), now=live_day)


def test_a_day_takes_only_so_many():
    few = alerts.AlertPolicy(per_day=2)
    for number in range(2):
        take("generic", plain(id=str(number)), policy=few)
    with pytest.raises(alerts.Refused, match="2013-09-10 has 2 alerts already, and they are one hit"):
        take("generic", plain(id="3"), policy=few)
    assert take("generic", plain(id="4", at="2013-09-09T12:00:00Z"), policy=few).accepted == 1


@pytest.mark.parametrize(
    ("form", "body", "status", "lines"),
    [
        ("generic", b"{", 400, ["alert: (whole): Invalid JSON: EOF while parsing an object at line 1 column 1"]),
        ("generic", plain(model="diamonds"), 422, ["model: there is no 'diamonds'; one of ['flight_delay', 'next_hour_temperature']"]),
        ("generic", plain(at="2013-09-10T12:00:00"), 422, ["alert: at: Input should have timezone info"]),
        ("generic", b'{"id": "", "extra": 1}', 422, ["alert: id: ", "alert: at: ", "alert: model: ", "alert: words: ", "alert: extra: "]),
        ("alertmanager", group(firing(), version="3"), 422, ["alertmanager: version: Input should be '4'"]),
        ("alertmanager", group(*[firing()] * 101), 422, ["alertmanager: alerts: 101 are too many; at most 100"]),
        ("alertmanager", group(firing(labels={})), 422, ["alertmanager: alerts.0.labels.model: is missing; add the label to the rule"]),
        ("alertmanager", group(firing(startsAt="yesterday"), firing(fingerprint="")), 422,
         ["alertmanager: alerts.0.startsAt: ", "alertmanager: alerts.1.fingerprint: "]),
        ("pager", b"", 404, ["there is no form 'pager'; one of ['alertmanager', 'generic']"]),
    ],
)  # fmt: skip
def test_a_bad_body_is_refused_whole_with_a_line_per_problem(form, body, status, lines):
    with pytest.raises(alerts.Refused) as refused:
        take(form, body)
    assert refused.value.status == status
    assert len(refused.value.lines) == len(lines)
    assert all(said.startswith(line) for said, line in zip(refused.value.lines, lines, strict=True)), (
        refused.value.lines
    )
    assert kept() == []


def test_the_rate_is_a_bucket_that_refills():
    clock = [0.0]
    rate = alerts.Rate(2, lambda: clock[0])
    assert [rate.wait(), rate.wait()] == [0, 0]
    assert rate.wait() == pytest.approx(30)
    clock[0] = 29.0
    assert rate.wait() == pytest.approx(1)
    clock[0] = 30.0
    assert rate.wait() == 0
    clock[0] = 1e6
    assert [rate.wait() for _ in range(3)][2] > 0
