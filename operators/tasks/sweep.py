"""The light tasks of the ``sweep`` DAG: what crashes cut and what lost events left undone, found from stored state."""

from __future__ import annotations

import datetime as dt
from typing import Any

from artifacts.cleaning import Cleaned, clean
from operators import live
from operators.gaps import gaps
from operators.ledger import FAILED, ledger
from operators.pipelines import PIPELINES, Pipeline
from operators.settings import platform
from operators.tasks.approve import unasked
from operators.tasks.effects import due
from operators.tasks.release import INTENT, PROMOTION, next_version, promotion_name
from operators.tasks.watch import unheard, waiting

CLEANED = "cleaned"
CLEAN_EVERY = dt.timedelta(hours=6)  # looking at every object costs calls on an object store, and what is old stays old
LOST_AFTER = dt.timedelta(days=1)  # the longest that a training may take (decisions.md 4.9)


def unfinished(row: Pipeline) -> dict[str, Any]:
    """What is waiting for a model although nothing may be on its way, by kind."""
    book = ledger()
    routing, _ = live.routing(row.model)
    version = next_version(row)
    told = unheard(row, routing.champion) if routing.champion else None
    return {
        "decisions": [entry.id for entry in book.open_decisions(row.model) if entry.body["trigger"] == "drift"],
        "gaps": [day.isoformat() for day in gaps(row, book, live.now())],
        "approvals": [one.registered.version for one in unasked(row)],
        "packages": [version.registered.version] if version else [],
        "partitions": [day.isoformat() for day in waiting(row, routing.champion)] if routing.champion else [],
        "unheard": [*([told.words] if told else []), *(f"effect of decision {audit.decision}" for audit in due(row))],
    }


def close_lost(row: Pipeline) -> list[int]:
    """Closes decisions by hand and by cron whose run never came back to do so; an open one holds drift retrains off."""
    book, now = ledger(), live.now()
    lost = [
        entry
        for entry in book.open_decisions(row.model)
        if entry.body["trigger"] != "drift" and now - entry.at > LOST_AFTER
    ]
    for entry in lost:
        book.close_decision(entry, FAILED, {"reason": "its run never ended; closed by sweep"})
    return [entry.id for entry in lost]


def sweep() -> dict[str, dict[str, Any]]:
    """What is unfinished, per model; written into the ledger when there is anything."""
    found = {row.model: unfinished(row) for row in PIPELINES}
    for model, open_work in found.items():
        if any(open_work.values()):
            ledger().append("sweep", model, open_work)
    return found


def clean_store(now: dt.datetime) -> Cleaned | None:
    """Removes old attempts from the store and writes what went; None when that was done lately. ``now`` is the wall clock."""
    before = ledger().entries(CLEANED, newest=1)
    if before and now - before[0].recorded_at < CLEAN_EVERY:
        return None
    found = clean(platform().store, platform().attempt_grace, now)
    ledger().append(CLEANED, "store", found.model_dump(mode="json"))
    return found


def project(row: Pipeline) -> bool:
    """Finishes a promotion that was cut between the routing record and the ledger; returns whether it did.

    The intent was written first, so a routing version without its promotion row is found here. MLflow's aliases follow
    with the next release, or by the ``alias`` task of a cleared run.
    """
    book = ledger()
    _, version = live.routing(row.model)
    done = {entry.body["routing_version"] for entry in book.entries(PROMOTION, row.model)}
    if version == 0 or version in done:
        return False
    intents = [entry for entry in book.entries(INTENT, row.model) if entry.body["expected"] == version - 1]
    book.append(
        PROMOTION,
        row.model,
        {
            "routing_version": version,
            "finished_by": "sweep",
            "intent": intents[-1].id if intents else None,
            "reason": intents[-1].body["reason"] if intents else "the routing record was written without an intent",
        },
        unique=promotion_name(row.model, version),
    )
    return True
