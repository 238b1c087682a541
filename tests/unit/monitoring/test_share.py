from __future__ import annotations

from typing import Any

from monitoring.contract import DriftPolicy, Finding
from monitoring.policy import row_of
from monitoring.share import moved_most
from tests.make import monitoring as make


def finding(name: str, kind: Any, weight: float, score: float = 0.1) -> Finding:
    return Finding(
        feature=name, kind=kind, score=score, threshold=0.2, weight=weight, words=f"{name}: mean 9 -> 31 minutes"
    )


FOUND = (
    finding("light", "drift", 0.05),
    finding("heavy", "drift", 0.2),
    finding("half", "warn", 0.3),
    finding("nulls", "nulls", 0.06),
    finding("quiet", "ok", 0.39),
)


def test_what_moved_most_is_named_by_what_it_adds_to_the_share() -> None:
    assert moved_most(FOUND) == (
        "moved most: heavy: mean 9 -> 31 minutes; half: mean 9 -> 31 minutes; nulls: mean 9 -> 31 minutes"
    )
    assert moved_most(FOUND[-1:]) is None


def test_the_decision_says_what_moved_most_and_a_quiet_check_does_not() -> None:
    hit = row_of(make.check_ref(score=0.46, findings=FOUND), DriftPolicy())
    assert hit.reasons[-1].startswith("moved most: heavy")
    assert hit.share_only
    calm = row_of(make.check_ref(score=0.2, findings=FOUND), DriftPolicy())
    assert not any("moved most" in reason for reason in calm.reasons)
