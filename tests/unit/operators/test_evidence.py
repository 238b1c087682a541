"""What the policy hears besides the checks."""

from __future__ import annotations

import datetime as dt
from typing import Any

from artifacts.refs import sha256
from monitoring.contract import DriftPolicy
from operators.ledger import Entry
from operators.plans import evidence
from tests.make import monitoring as make

POLICY = DriftPolicy()
DAY = dt.date(2013, 9, 1)


def entry(number: int, body: dict[str, Any], hours: float = 0) -> Entry:
    at = make.noon(DAY) + dt.timedelta(hours=hours)
    digest = sha256(b"d")
    return Entry(
        id=number, at=at, recorded_at=at, kind="k", subject="m", actor="a", body=body, previous=digest, digest=digest
    )


def test_several_alerts_of_a_day_are_one_and_their_words_are_kept_short() -> None:
    said = [
        entry(1, {"partition": "2013-09-02", "words": "a"}),
        entry(2, {"partition": "2013-09-01", "words": "b"}),
        entry(3, {"partition": "2013-09-02", "words": "c"}),
        entry(4, {"partition": "2013-09-02", "words": "a"}),
        entry(5, {"partition": "2013-09-02", "words": "x" * 400}),
    ]
    found = evidence.alerts(said)
    assert [str(alert.partition) for alert in found] == ["2013-09-01", "2013-09-02"]
    assert found[1].words.startswith("a; c; xxx")
    assert len(found[1].words) == 300


def test_the_training_time_is_the_95th_percentile_of_those_that_ended() -> None:
    decisions = [entry(number, {}) for number in range(1, 23)]
    ends = {number: entry(100 + number, {"outcome": "trained"}, hours=number) for number in range(1, 21)}
    ends[21] = entry(121, {"outcome": "failed"}, hours=1000)
    assert evidence.training_p95(decisions, ends) == dt.timedelta(hours=19)
    assert evidence.training_p95(decisions, {}) == dt.timedelta(0)


def quality(age: int, skill: float) -> dict[str, Any]:
    last = DAY + age * make.DAY
    figures = {
        "labelled": 900, "coverage": 1.0, "log_loss": 0.5, "base_log_loss": 0.5, "auc": 0.7, "skill": skill,
        "skill_at_promotion": 0.2, "difference_upper": 0.1, "last": last.isoformat(),
    }  # fmt: skip
    return {"package_digest": "p", "partition": last.isoformat(), "quality": figures}


def test_loss_by_age_is_what_the_versions_showed_week_by_week() -> None:
    shown = [*(quality(age, 0.18) for age in (1, 2, 7)), *(quality(age, 0.1) for age in (8, 9, 14)), quality(15, 0.0)]
    lost = [
        {**quality(3, 0.0), "package_digest": "lost"},
        {"package_digest": "p", "partition": "2013-09-04", "quality": None},
    ]
    checks = [entry(number, body) for number, body in enumerate((*shown, *lost), 1)]
    curve = evidence.ageing(checks, {"p": DAY}.get, POLICY)
    assert curve is not None
    assert curve.days == (7, 14)
    assert [round(loss, 6) for loss in curve.excess] == [0.01, 0.05]
    assert evidence.ageing(checks[:2], {"p": DAY}.get, POLICY) is None


def test_news_is_what_the_newest_decision_has_not_heard() -> None:
    last = entry(10, {"partition": "2013-09-05", "heard": {"alert": 4, "labels": 100}})
    late, known, old = (
        entry(number, {"partition": day, "words": "w"})
        for number, day in ((5, "2013-09-03"), (4, "2013-09-05"), (6, "2013-09-02"))
    )
    found = evidence.news(last, [known, late, old], 100, POLICY)
    assert found is not None
    assert (found.partition, found.alert) == (dt.date(2013, 9, 5), 5)
    assert evidence.news(last, [known, old], 10_000, POLICY) is None
    enough = POLICY.model_copy(update={"feedback_rows": 50})
    assert evidence.news(last, [], 149, enough) is None
    due = evidence.news(last, [], 150, enough)
    assert due is not None
    assert due.words == "50 further labels (due at 50)"


def test_a_decision_of_before_anything_was_heard_or_that_failed_is_no_reason_to_look_again() -> None:
    policy = POLICY.model_copy(update={"feedback_rows": 50})
    assert evidence.news(entry(10, {"partition": "2013-09-05"}), [], 10_000, policy) is None
    said = [entry(11, {"partition": "2013-09-05", "words": "w"})]
    failed = entry(10, {"partition": "2013-09-05", "failed": True})
    assert evidence.news(failed, said, 10_000, policy) is None


def test_labels_are_counted_from_training_or_from_the_last_try() -> None:
    tried = [entry(1, {"partition": "2013-09-03"})]
    assert evidence.counted_from(DAY, []) == DAY
    assert evidence.counted_from(DAY, tried) == dt.date(2013, 9, 3)
    assert evidence.counted_from(dt.date(2013, 9, 9), tried) == dt.date(2013, 9, 9)
