"""The light tasks of the effect audit: which replays are due, and what every ended drift retrain has brought."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from monitoring.audit import precision
from monitoring.effect_contract import EffectRef
from operators import live
from operators.ledger import DECISION, ledger
from operators.payload import load
from operators.pipelines import Pipeline
from operators.plans import effects as plans
from operators.plans import watch
from operators.settings import platform
from operators.tasks.release import PROMOTION, RELEASE
from operators.tasks.situation import effects

EFFECT = watch.EFFECT


def due(row: Pipeline) -> tuple[plans.Audit, ...]:
    """The drift retrains that can be judged by now and have not been."""
    book = ledger()
    decisions, ends, releases = (
        book.entries(DECISION, row.model),
        book.closures(row.model),
        book.entries(RELEASE, row.model),
    )
    retrains = watch.retrains(decisions, ends, releases, book.entries(watch.DRIFT, row.model), row.drift)
    promotions, done = book.entries(PROMOTION, row.model), book.entries(EFFECT, row.model)
    told = plans.Told(decisions, ends, releases, promotions, retrains, done)
    return plans.audits(told, live.now(), row.drift)


def to_replay(row: Pipeline) -> list[dict[str, Any]]:
    """The inputs of the replays that are due, one for each promoted drift retrain with a closed partition behind it."""
    store = platform().store
    return [{"decision": audit.decision} for audit in due(row) if plans.answered(row, audit, store)]


def conclude(row: Pipeline, asked: Iterable[Any] | None, results: Sequence[Any], run_id: str) -> list[int]:
    """Writes the effect of every drift retrain that is due, with the precision of all triggers; returns the decisions.

    One whose replay this run could not make is judged by its drift score alone, once and for all, and says why.
    """
    found = {ref.new: ref for ref in (load(result, EffectRef) for result in results if result)}
    places = {int(inputs["decision"]): place for place, inputs in enumerate(asked or ())}
    written = []
    for audit in due(row):
        replayed = found.get(audit.new) if audit.new else None
        if (
            audit.new
            and replayed is None
            and audit.decision not in places
            and plans.answered(row, audit, platform().store)
        ):
            continue  # it has fallen due since this run began
        why_not = "its version was taken back by a rollback" if audit.taken_back else None
        if audit.new and replayed is None:
            why_not = _why_not(row, places.get(audit.decision), run_id)
        _write(row, audit, replayed, why_not)
        written.append(audit.decision)
    return written


def _why_not(row: Pipeline, place: int | None, run_id: str) -> str:
    if place is None:
        return "no partition that it answered was closed by then, so nothing was replayed"
    attempt = ledger().of_task(f"watch__{row.model}", run_id, "effect").get(place)
    said = (
        attempt.finished.body["reason"]
        if attempt and attempt.finished
        else "no step has ended; the task's log says why"
    )
    return f"the old champion could not be replayed: {said}"


def _write(row: Pipeline, audit: plans.Audit, replayed: EffectRef | None, why_not: str | None) -> None:
    found = plans.conclude(audit, replayed, why_not, row.drift)
    judged = precision((*effects(row), found), row.drift)
    body = {
        "decision": audit.decision,
        "old": audit.old,
        "new": audit.new,
        "effect": found.model_dump(mode="json"),
        "precision": {"share": judged.share, "retrains": judged.retrains, "words": judged.words},
        "trigger_share": judged.trigger_share,
        "evidence": replayed.digest if replayed else None,
        "evidence_uri": replayed.uri if replayed else None,
    }
    ledger().append(EFFECT, row.model, body, unique=f"effect:{audit.decision}")
