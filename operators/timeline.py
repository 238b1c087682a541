"""What the ledger says of a model over time: scores, thresholds, states, retrains, releases, quality. Pure: entries in."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from artifacts.refs import Uri
from operators.ledger import Entry

DAYS = 120  # shown at most, the newest
FRONT = ("promoted", "rolled_back_to")  # outcomes of a release that put a version in front


class Point(NamedTuple):
    """One check, as it was decided last."""

    day: dt.date
    version: int | None
    state: str
    retrain: bool
    score: float | None
    share: float
    psi: float | None
    psi_threshold: float | None
    skill: float | None
    bounds: tuple[float, float] | None
    promised: float | None
    labelled: int
    drifted: tuple[str, ...]
    reasons: tuple[str, ...]
    page: str


class Mark(NamedTuple):
    """Something that happened beside the checks: a retrain, a release, an alert, an audit. ``day`` is the data clock's.

    ``came_off`` is False for a retrain or a release that put nothing in front, and for one that did not help.
    """

    day: dt.date
    kind: str
    words: tuple[str, ...]
    came_off: bool = True


class Timeline(NamedTuple):
    """All of it for one model."""

    model: str
    points: tuple[Point, ...]
    marks: tuple[Mark, ...]
    precision: str | None
    trigger_share: float | None


def timeline(
    model: str, entries: Mapping[str, Sequence[Entry]], versions: Mapping[str, int], store: Uri, share: float
) -> Timeline:
    """``entries`` by kind: drift, retrain, release, alert, effect; ``versions``: package digest -> number.

    ``share`` is the policy's trigger share, for checks that gave no decision of their own.
    """
    checks = {str(entry.body["partition"]): entry for entry in entries["drift"]}  # the newest of a day counts
    points = tuple(_point(entry, versions, store, share) for _, entry in sorted(checks.items()))[-DAYS:]
    first = points[0].day if points else None
    marks = [mark for mark in _marks(entries) if first is None or mark.day >= first - dt.timedelta(days=1)]
    effects = entries["effect"]
    precision: Any = effects[-1].body["precision"] if effects else None
    return Timeline(
        model,
        points,
        tuple(sorted(marks)),
        precision["words"] if precision else None,
        points[-1].share if points else None,
    )


def _point(entry: Entry, versions: Mapping[str, int], store: Uri, share: float) -> Point:
    body: Any = entry.body
    decision, quality = body["decision"], body.get("quality") or {}
    low, high = quality.get("skill_lower"), quality.get("skill_upper")
    return Point(
        day=dt.date.fromisoformat(body["partition"]),
        version=versions.get(body["package_digest"]),
        state=decision["state"],
        retrain=decision["retrain"],
        score=body.get("score"),
        share=decision.get("trigger_share") or share,
        psi=body.get("prediction_psi"),
        psi_threshold=body.get("prediction_threshold"),
        skill=quality.get("skill"),
        bounds=None if low is None or high is None else (low, high),
        promised=quality.get("skill_at_promotion"),
        labelled=quality.get("labelled", 0),
        drifted=tuple(body.get("drifted", ())),
        reasons=tuple(decision["reasons"]),
        page=_page(body, store),
    )


def _page(body: Mapping[str, Any], store: Uri) -> str:
    """The check's own page, seen from the timeline's; empty for one that failed, or whose store is another by now."""
    uri = str(body.get("evidence_uri") or "")
    inside = uri.removeprefix(store).strip("/")
    return f"../artifacts/{inside}/summary.html" if body.get("evidence") and inside != uri else ""


def _marks(entries: Mapping[str, Sequence[Entry]]) -> list[Mark]:
    found = [
        Mark(entry.at.date(), "release", _release(entry.body), entry.body["outcome"] in FRONT)
        for entry in entries["release"]
    ]
    found += [
        Mark(entry.at.date(), "retrain", _retrain(entry.body), entry.body["outcome"] == "trained")
        for entry in entries["retrain"]
    ]
    found += [
        Mark(dt.date.fromisoformat(str(entry.body["partition"])), "alert", (str(entry.body["words"]),))
        for entry in entries["alert"]
    ]
    audits: Any = [(entry.at.date(), entry.body) for entry in entries["effect"]]
    return found + [Mark(day, "audit", _audit(body), bool(body["effect"]["helped"])) for day, body in audits]


def _release(body: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"version {body.get('version')}: {body['outcome']}", *map(str, body.get("reasons", ())))


def _retrain(body: Mapping[str, Any]) -> tuple[str, ...]:
    said = body.get("reasons") or [reason for reason in (body.get("reason"),) if reason]
    return (
        f"retrain by {body.get('trigger')}, trained through {body['partition']}: {body['outcome']}",
        *map(str, said),
    )


def _audit(body: Mapping[str, Any]) -> tuple[str, ...]:
    effect: Any = body["effect"]
    helped = "helped" if effect["helped"] else "did not help"
    decided = effect["decided_at"][:10]
    return (f"the drift retrain of {decided} {helped}", *effect["reasons"])
