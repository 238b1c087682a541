"""The light tasks of the ``approve`` DAG: which version a person is asked about, and what the answer comes to."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from operators import live
from operators.approvals import ANSWERED, ASKED, answers, author, held, judged, needed, question
from operators.ledger import ledger
from operators.links import page_of
from operators.pipelines import Pipeline
from operators.plans.release import Candidate
from operators.rollout import not_newer, rank
from operators.tasks.release import version_of, write_release
from operators.versions import BACKFILL, Version, versions
from training.approval import ApprovalEvidence, approval_verdict


def which(row: Pipeline, typed: int | None, run_id: str) -> dict[str, Any]:
    """The question of this run: about the newest version that nobody has been asked about, or the one that was typed.

    Skips when there is none. A version is asked about once; a run that is cleared asks again, and has no more time than before.
    """
    book = ledger()
    version = _wanted(row, typed, run_id)
    key = version.registered.training_key
    entry = judged(book, row.model)[key]
    body = {"training_key": key, "version": version.registered.version, "needed": needed(entry), "run_id": run_id}
    asked = book.append(ASKED, row.model, body, unique=f"{ASKED}:{row.model}:{key}")
    until = asked.recorded_at + row.gates.approval_expires
    who = author(book, entry)
    subject, text = question(version, entry, page_of(version.evaluation_ref()), who, until)
    return {
        "version": version.registered.version,
        "asked_at": asked.recorded_at.isoformat(),
        "author": who,
        "subject": subject,
        "body": text,
    }


def _wanted(row: Pipeline, typed: int | None, run_id: str) -> Version:
    open_ones = _open(row)
    if typed is not None:
        for one in open_ones:
            if one.registered.version == typed:
                return one
        raise AirflowFailException(
            f"version: {typed} of '{row.model}' waits for nobody; those that do are "
            f"{[one.registered.version for one in open_ones]}"
        )
    fresh = unasked(row, run_id)
    if not fresh:
        raise AirflowSkipException(f"nobody has to be asked about a version of '{row.model}'; the policy is automatic")
    return max(fresh, key=rank)


def _open(row: Pipeline) -> list[Version]:
    """The versions that wait for an answer."""
    book = ledger()
    waiting = held(book, row.model).keys() - answers(book, row.model).keys()
    return [one for one in versions(book, row.model) if one.registered.training_key in waiting]


def unasked(row: Pipeline, run_id: str = "") -> list[Version]:
    """The versions that wait and that no run but this one has asked about; one older than the live one is left to rest."""
    asked = [entry for entry in ledger().entries(ASKED, row.model) if entry.body["run_id"] != run_id]
    keys, routing = {str(entry.body["training_key"]) for entry in asked}, live.routing(row.model)[0]
    return [
        one
        for one in _open(row)
        if one.trigger != BACKFILL and one.registered.training_key not in keys and not_newer(one, routing) is None
    ]


def settle(row: Pipeline, asked: Mapping[str, Any], answer: Mapping[str, Any], now: dt.datetime) -> bool:
    """Writes G10 into the ledger, and a refusal as the end of the version; returns whether it may be released now.

    ``now`` is the wall clock: people live on it. The first answer stays.
    """
    book, version = ledger(), version_of(row.model, int(asked["version"]))
    key = version.registered.training_key
    why = needed(judged(book, row.model)[key])
    evidence = ApprovalEvidence.model_validate({
        "needed": why,
        "asked_at": asked["asked_at"],
        "now": now,
        "author": asked["author"],
        **answer,
    })
    verdict = approval_verdict(evidence, row.gates)
    if verdict is None:
        raise AirflowFailException("the question ended before its time without an answer; clear the task that asks")
    actor = evidence.approver or "perennial"
    body = {
        "training_key": key,
        "version": version.registered.version,
        "verdict": verdict.model_dump(mode="json"),
        "evaluation": version.evaluation,
    }
    written = book.append(ANSWERED, row.model, body, unique=f"{ANSWERED}:{row.model}:{key}", actor=actor)
    given = answers(book, row.model)[key]
    if given.status != "pass" and not written.existed:
        said = f"approval of a version that needs one: {why}"
        candidate = Candidate(
            model=row.model, version=version.registered.version, rollback=False, reason=said, actor=actor
        )
        write_release(row, version, "refused", [f"{given.gate}: {given.reason}"], None, candidate)
    return given.status == "pass"
