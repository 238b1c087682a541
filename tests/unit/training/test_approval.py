"""G10: who may approve, until when, and that silence is no consent."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.make import gates as make
from training.approval import ApprovalEvidence, approval_verdict
from training.contract import GatePolicy, Verdict

POLICY = GatePolicy()
ASKED = make.approval().asked_at
HOUR = dt.timedelta(hours=1)


def verdict(**changes: Any) -> Verdict:
    found = approval_verdict(make.approval(**changes), POLICY)
    assert found is not None
    return found


def test_what_nobody_has_to_approve_is_automatic_and_says_by_which_policy() -> None:
    found = approval_verdict(ApprovalEvidence(), GatePolicy(first_release="automatic"))
    assert found is not None
    assert found.status == "pass"
    assert "tier 'low'" in found.reason
    assert "first_release is 'automatic'" in found.reason


def test_somebody_else_agreed_in_time() -> None:
    found = verdict(comment="read the slices")
    assert found.status == "pass"
    assert found.reason == "ada agreed: read the slices"
    assert found.figures["approver"] == "ada"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"answer": "rejected", "comment": "too hot"}, "ada refused: too hot"),
        ({"approver": "grace"}, "grace asked for this version and cannot approve it"),
        ({"approver": None}, "nobody knows who approved"),
        ({"answered_at": ASKED + 73 * HOUR}, "does not lie within 3 days"),
        ({"answered_at": ASKED - HOUR}, "does not lie within 3 days"),
        ({"answered_at": None}, "does not lie within 3 days"),
        ({"answer": None, "answered_at": None, "now": ASKED + 72 * HOUR}, "nobody answered until 2013-09-05 08:00 UTC"),
    ],
)
def test_an_answer_that_does_not_count_fails(changes: dict[str, Any], words: str) -> None:
    found = verdict(**changes)
    assert found.status == "fail"
    assert words in found.reason


def test_what_a_schedule_asked_for_anybody_may_approve() -> None:
    assert verdict(author=None).status == "pass"
    assert verdict(author=None, approver=None).reason == "somebody agreed"


@pytest.mark.parametrize(
    "changes",
    [{"answer": None, "now": ASKED + 71 * HOUR}, {"answer": None, "now": None}, {"asked_at": None}],
)
def test_while_a_person_has_time_there_is_no_verdict(changes: dict[str, Any]) -> None:
    assert approval_verdict(make.approval(**changes), POLICY) is None


@given(
    answer=st.sampled_from(["approved", "rejected", None]),
    approver=st.sampled_from(["ada", "grace", None]),
    author=st.sampled_from(["ada", "grace", None]),
    hours=st.integers(-10, 200),
)
def test_a_pass_means_that_another_person_agreed_in_time(
    answer: Any, approver: str | None, author: str | None, hours: int
) -> None:
    found = approval_verdict(
        make.approval(answer=answer, approver=approver, author=author, answered_at=ASKED + hours * HOUR), POLICY
    )
    if found is not None and found.status == "pass":
        assert answer == "approved"
        assert 0 <= hours <= 72
        assert author is None or approver not in (None, author)


def test_a_backfill_asks_nobody_whatever_the_tier() -> None:
    asked = ApprovalEvidence(needed="the model is of the high tier", backfill=True)
    found = approval_verdict(asked, GatePolicy(tier="high"))
    assert found is not None
    assert (found.status, found.reason) == ("pass", "automatic: a backfill is never released")
