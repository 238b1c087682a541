"""A model's timeline says what the ledger says, and its page shows it without loading anything."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, get_args
from xml.etree import ElementTree as ET

import pytest

from artifacts.refs import sha256
from monitoring.contract import Decision
from operators.ledger import Entry
from operators.timeline import Timeline, timeline
from operators.timeline_page import MARKS, STATES, page

STORE = "file:///store"
DAY = dt.timedelta(days=1)
NOON = dt.datetime(2013, 9, 1, 12, tzinfo=dt.UTC)


def entry(number: int, body: dict[str, Any], day: int = 1) -> Entry:
    digest, at = sha256(b"d"), NOON + (day - 1) * DAY
    return Entry(
        id=number, at=at, recorded_at=at, kind="k", subject="m", actor="a", body=body, previous=digest, digest=digest
    )


def check(number: int, day: int, state: str = "STABLE", **changes: Any) -> Entry:
    decision = {"state": state, "retrain": state == "TRIGGERED", "reasons": [f"because {number}"], "trigger_share": 0.3}
    quality = {
        "skill": 0.2, "skill_lower": 0.1, "skill_upper": 0.3, "skill_at_promotion": 0.15, "labelled": 900,
    }  # fmt: skip
    body = {
        "partition": f"2013-09-{day:02d}", "package_digest": "p", "decision": decision, "score": 0.25, "prediction_psi": 0.1,
        "prediction_threshold": 0.4, "quality": quality, "drifted": ["origin delay: mean 9 -> 31 minutes"],
        "evidence": "sha256:e", "evidence_uri": f"{STORE}/checks/m/{day}", **changes,
    }  # fmt: skip
    return entry(number, body, day + 1)


def made(**entries: list[Entry]) -> Timeline:
    every = {kind: entries.get(kind, []) for kind in ("drift", "retrain", "release", "alert", "effect")}
    return timeline("m", every, {"p": 7}, STORE, 0.3)


def whole() -> Timeline:
    """Each kind of thing once."""
    effect = {"helped": False, "decided_at": "2013-09-02T12:00:00Z", "reasons": ["worse"]}
    said = {"words": "1 of the last 6 drift retrains helped", "share": 0.2, "retrains": 6}
    return made(
        drift=[check(1, 1), check(2, 2, "TRIGGERED"), check(3, 4, "WATCH"), check(9, 4, "RETRAINING")],
        retrain=[entry(4, {"trigger": "drift", "partition": "2013-09-02", "outcome": "refused", "reasons": ["G4"]}, 3)],
        release=[entry(5, {"version": 7, "outcome": "promoted", "reasons": ["all well"]}, 1)],
        alert=[entry(6, {"partition": "2013-09-04", "words": "<b>pager</b>"}, 4)],
        effect=[entry(8, {"effect": effect, "precision": said}, 4)],
    )


def test_a_day_is_as_it_was_decided_last_and_its_figures_are_the_ledgers() -> None:
    found = whole()
    assert [(str(point.day), point.state) for point in found.points] == [
        ("2013-09-01", "STABLE"),
        ("2013-09-02", "TRIGGERED"),
        ("2013-09-04", "RETRAINING"),
    ]
    point = found.points[1]
    assert (point.version, point.retrain, point.score, point.share, point.skill) == (7, True, 0.25, 0.3, 0.2)
    assert (point.bounds, point.promised, point.labelled) == ((0.1, 0.3), 0.15, 900)
    assert point.page == "../artifacts/checks/m/2/summary.html"
    assert [(mark.kind, mark.came_off) for mark in found.marks] == [
        ("release", True),
        ("retrain", False),
        ("alert", True),
        ("audit", False),
    ]
    assert found.precision == "1 of the last 6 drift retrains helped"


def test_a_check_that_failed_or_lies_in_another_store_has_no_page() -> None:
    found = made(drift=[check(1, 1, evidence=None), check(2, 2, evidence_uri="file:///elsewhere/checks/m/2")])
    assert [point.page for point in found.points] == ["", ""]


def test_a_row_of_a_failed_check_has_no_figures_and_is_drawn_all_the_same() -> None:
    decision = {"state": "CHECK_FAILED", "retrain": False, "reasons": ["killed"]}
    body = {
        "partition": "2013-09-01",
        "package_digest": "p",
        "decision": decision,
        "evidence": None,
        "evidence_uri": None,
    }
    found = made(drift=[entry(1, body)])
    assert (found.points[0].score, found.points[0].share) == (None, 0.3)
    assert "CHECK_FAILED" in page(found)


def test_the_newest_days_are_shown_and_old_marks_go_with_the_old_days() -> None:
    checks = [check(number, 1, partition=(dt.date(2013, 1, 1) + number * DAY).isoformat()) for number in range(200)]
    found = made(drift=checks, alert=[entry(300, {"partition": "2013-01-05", "words": "old"})])
    assert (len(found.points), str(found.points[-1].day)) == (120, "2013-07-19")
    assert found.marks == ()


def drawing(text: str) -> ET.Element:
    found = re.search(r"<svg.*?</svg>", text, re.DOTALL)
    assert found is not None
    return ET.fromstring(found[0].replace("class=hit", 'class="hit"'))  # noqa: S314  our own page


def test_every_check_can_be_hovered_for_its_reasons_and_clicked_for_its_report() -> None:
    svg = drawing(page(whole()))
    titles = [node.text or "" for node in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert sum("because 2" in text for text in titles) == 4  # state, score, prediction, skill
    assert any("2013-09-02: TRIGGERED, version 7, score 0.25 of 0.30\nbecause 2" in text for text in titles)
    assert any("retrain by drift, trained through 2013-09-02: refused; G4" in text for text in titles)
    links = [node.get("href") for node in svg.iter("{http://www.w3.org/2000/svg}a")]
    assert links.count("../artifacts/checks/m/2/summary.html") == 3


def test_a_line_breaks_where_a_day_has_no_check() -> None:
    lines = [node.get("points", "") for node in drawing(page(whole())).iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(lines) == 3
    assert all(len(line.split()) == 2 for line in lines)


def test_the_page_is_self_contained_and_words_from_outside_stay_words() -> None:
    text = page(whole())
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in text
    assert "&lt;b&gt;pager&lt;/b&gt;" in text
    assert "<b>pager" not in text
    assert "1 of the last 6 drift retrains helped" in text


def test_nothing_yet_is_a_page_too() -> None:
    assert "No closed day has been checked yet" in page(made())


@pytest.mark.parametrize("state", list(STATES))
def test_every_state_of_the_policy_has_a_colour(state: str) -> None:
    assert set(get_args(Decision.model_fields["state"].annotation)) == set(STATES)
    assert state in page(made(drift=[check(1, 1, state)]))
    assert set(MARKS) == {"retrain", "release", "alert", "audit"}
