from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.audit import due, effect, precision
from monitoring.contract import DriftPolicy, Effect, EffectEvidence
from tests.make import monitoring as make

POLICY = DriftPolicy()
NOW = make.noon(make.LAST)


def evidence(number: int = 0, **changes: Any) -> EffectEvidence:
    fields: dict[str, Any] = {"decided_at": NOW + number * make.DAY, "promoted": True}
    return EffectEvidence(**{**fields, **changes})


def effects(helped: str) -> list[Effect]:
    """One drift retrain per letter, oldest first: y helped, n did not."""
    return [effect(evidence(number, promoted=letter == "y"), POLICY) for number, letter in enumerate(helped)]


@pytest.mark.parametrize(
    ("changes", "helped", "said"),
    [
        ({"promoted": False}, False, "not promoted"),
        ({}, True, "nothing was measured yet"),
        ({"score_before": 0.4, "score_after": 0.2}, True, "drift score 0.40 -> 0.20"),
        ({"score_before": 0.4, "score_after": 0.21}, False, "drift score 0.40 -> 0.21"),
        ({"labelled": 900, "loss_old": 0.5, "loss_new": 0.49}, True, "0.5000 of the old champion -> 0.4900"),
        ({"labelled": 900, "loss_old": 0.5, "loss_new": 0.51}, False, "on 900 labels"),
        ({"labelled": 499, "loss_old": 0.5, "loss_new": 0.51}, True, "a replay needs 500"),
    ],
)
def test_a_retrain_helped_when_quality_or_else_drift_improved(changes: dict[str, Any], helped: bool, said: str) -> None:
    found = effect(evidence(**changes), POLICY)
    assert found.helped is helped
    assert any(said in reason for reason in found.reasons)


def test_quality_has_the_last_word_over_drift() -> None:
    better = {"labelled": 900, "loss_old": 0.5, "loss_new": 0.49, "gain_lower": 0.002}
    found = effect(evidence(score_before=0.4, score_after=0.4, **better), POLICY)
    assert (found.drift_improved, found.quality_improved, found.helped) == (False, True, True)
    assert found.gain == pytest.approx(0.01)
    assert "lower bound of the gain +0.0020" in found.reasons[-1]


def test_an_audit_is_due_a_week_after_promotion() -> None:
    assert not due(NOW, NOW + 6 * make.DAY, POLICY)
    assert due(NOW, NOW + 7 * make.DAY, POLICY)


@pytest.mark.parametrize(
    ("helped", "share"),
    [
        ("", 0.30),
        ("nnnnn", 0.30),
        ("yynnnn", 0.30),
        ("ynnnnn", 0.35),
        ("ynnnnny", 0.35),
        ("n" * 11, 0.35),
        ("n" * 12, 0.40),
        ("n" * 60, 0.50),
    ],
)
def test_mostly_wrong_triggers_become_harder_to_pull(helped: str, share: float) -> None:
    found = precision(effects(helped), POLICY)
    assert found.trigger_share == pytest.approx(share)
    assert ("instead of 0.30" in found.words) is (share > 0.30)


def test_the_precision_is_of_the_last_six() -> None:
    found = precision(effects("yyyynnyyn"), POLICY)
    assert (found.share, found.retrains) == (0.5, 6)
    assert found.words == "3 of the last 6 drift retrains helped"
    assert precision([], POLICY).share is None


@given(helped=st.text("yn", max_size=40), policy_share=st.floats(0.1, 0.9))
def test_the_share_only_rises_and_never_beyond_its_limit(helped: str, policy_share: float) -> None:
    policy = DriftPolicy(trigger_share=policy_share)
    shares = [precision(effects(helped[:number]), policy).trigger_share for number in range(len(helped) + 1)]
    assert shares == sorted(shares)
    assert shares[-1] <= max(policy.share_limit, policy_share) + 1e-9
    assert precision(effects(helped)[::-1], policy) == precision(effects(helped), policy)
