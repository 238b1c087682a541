"""G10: whether a person had to agree, and what came of it. Pure; who asks, and how, is the control plane's."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel

from training.contract import GatePolicy, Verdict
from training.verdicts import Figures, verdict

APPROVAL = "G10 approval"


class ApprovalEvidence(BaseModel, frozen=True, extra="forbid"):
    """What is known of an approval. Instants are on the wall clock: people live on it."""

    backfill: bool = False
    """A backfill is never released, so there is nothing to agree to."""
    needed: str | None = None
    """Why a person has to agree (``gate.reason_for_approval``); None when nobody has to."""
    asked_at: AwareDatetime | None = None
    now: AwareDatetime | None = None
    answer: Literal["approved", "rejected"] | None = None
    answered_at: AwareDatetime | None = None
    approver: str | None = None
    author: str | None = None
    """Who asked for the retrain; None for the schedule and for drift."""
    comment: str = ""


def approval_verdict(evidence: ApprovalEvidence, policy: GatePolicy) -> Verdict | None:
    """G10, or None while a person still has time to answer: no verdict is no pass.

    Nobody approves their own work, an answer after ``approval_expires`` is none, and silence until then is a no.
    """
    if evidence.needed is None or evidence.backfill:
        why = "a backfill is never released" if evidence.backfill else _automatic(policy)
        return Verdict(gate=APPROVAL, status="pass", reason=f"automatic: {why}", figures={"tier": policy.tier})
    figures: Figures = {
        "tier": policy.tier,
        "needed": evidence.needed,
        "answer": evidence.answer,
        "approver": evidence.approver,
        "author": evidence.author,
        "asked_at": evidence.asked_at.isoformat() if evidence.asked_at else None,
        "answered_at": evidence.answered_at.isoformat() if evidence.answered_at else None,
    }
    if evidence.asked_at is None:
        return None
    ends = evidence.asked_at + policy.approval_expires
    if evidence.answer is None:
        if evidence.now is None or evidence.now < ends:
            return None
        return verdict(APPROVAL, [f"nobody answered until {ends:%Y-%m-%d %H:%M} UTC"], "", figures)
    who = evidence.approver or "somebody"
    said = f": {evidence.comment}" if evidence.comment else ""
    return verdict(APPROVAL, _against(evidence, policy, who, said), f"{who} agreed{said}", figures)


def _automatic(policy: GatePolicy) -> str:
    return f"tier '{policy.tier}', every gate is clear, and policy.first_release is '{policy.first_release}'"


def _against(evidence: ApprovalEvidence, policy: GatePolicy, who: str, said: str) -> list[str]:
    if evidence.answer == "rejected":
        return [f"{who} refused{said}"]
    problems = []
    asked, answered = evidence.asked_at, evidence.answered_at
    if asked is None or answered is None or not asked <= answered <= asked + policy.approval_expires:
        problems.append(
            f"the answer of {answered} does not lie within {policy.approval_expires} of the question at {asked}"
        )
    if evidence.author is not None and evidence.approver is None:
        problems.append(f"nobody knows who approved; it must be someone other than {evidence.author}, who asked for it")
    if evidence.author is not None and evidence.approver == evidence.author:
        problems.append(f"{who} asked for this version and cannot approve it; ask somebody else")
    return problems
