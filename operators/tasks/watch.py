"""The light tasks of the ``watch`` DAG: which partitions to check, and what the policy says of each."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from artifacts.refs import Digest, Uri, join
from artifacts.step import failure_of, failure_uri
from monitoring.contract import CheckRef, CheckRow, Decision, Situation
from monitoring.policy import decide, row_of
from operators import live
from operators.ledger import DECISION, Attempt, Entry, ledger
from operators.payload import load
from operators.pipelines import Pipeline
from operators.plans import evidence
from operators.plans import watch as plans
from operators.settings import platform
from operators.steps import layer_digest
from operators.tasks.situation import new_labels, situation
from operators.versions import Version, by_package
from serving.contract import Deployed

log = logging.getLogger(__name__)

DRIFT, ALERT = plans.DRIFT, plans.ALERT


def _live(row: Pipeline) -> Deployed:
    champion = live.routing(row.model)[0].champion
    if champion is None:
        raise AirflowSkipException(f"no version of '{row.model}' is live; there is nothing to watch")
    return champion


def waiting(row: Pipeline, champion: Deployed, *, again: bool = False) -> tuple[dt.date, ...]:
    """The closed partitions that wait for a check of the live version; with ``again`` also those that were given up."""
    store, book = platform().store, ledger()
    checked = [entry for entry in book.entries(DRIFT, row.model) if not (again and entry.body.get("failed"))]
    inputs = plans.inputs(row, champion, store, layer_digest("monitoring"))
    found = plans.unchecked(row, champion, plans.logged(row, store), checked, inputs)
    return tuple(ref.partition for ref in found)


def choose_partitions(row: Pipeline, *, by_hand: bool = False) -> dict[str, Any]:
    """The closed partitions that nobody has checked against the live version; skips when there is none.

    A run by hand also takes those whose check has failed too often. Fails when the data clock has gone back.
    """
    champion = _live(row)
    if (now := live.now()) < champion.promoted_at:
        raise AirflowFailException(
            f"the data clock says {now:%Y-%m-%dT%H:%MZ}, before version {champion.version} went live at "
            f"{champion.promoted_at:%Y-%m-%dT%H:%MZ}: it has gone back; give this history its clock again, or begin another "
            "with its own PERENNIAL_STATE"
        )
    found = waiting(row, champion, again=by_hand)
    told = None if found else unheard(row, champion)
    if told is not None:
        log.info("%s: %s is decided anew", told.words, told.partition)
        found = (told.partition,)
    if not found:
        raise AirflowSkipException(f"every closed partition of the predictions of '{row.model}' has been checked")
    return {
        "package": champion.package.digest,
        "partitions": [partition.isoformat() for partition in found],
        "again": told is not None,
    }


def unheard(row: Pipeline, champion: Deployed) -> evidence.News | None:
    """What has come from outside since the newest decision about the live version, and may change it."""
    book, package = ledger(), champion.package.digest
    checks = [entry for entry in book.entries(DRIFT, row.model) if entry.body["package_digest"] == package]
    if not checks:
        return None
    last = max(checks, key=lambda entry: (str(entry.body["partition"]), entry.id))
    return evidence.news(last, book.entries(ALERT, row.model), new_labels(row, package, live.now()), row.drift)


class Failure(NamedTuple):
    """A check that gave no result: what the policy calls it, why, and where its step says so."""

    partition: dt.date
    outcome: Literal["incident", "failed"]
    reason: str
    evidence: Uri | None = None


def failures(row: Pipeline, asked: Mapping[str, Any], done: Iterable[dt.date], run_id: str) -> list[Failure]:
    """The checks of a run that gave no result, in the words of their steps; none when another version went live meanwhile."""
    champion = live.routing(row.model)[0].champion
    if champion is None or champion.package.digest != asked["package"]:
        return []
    attempts = ledger().of_task(f"watch__{row.model}", run_id, "check")
    days = map(dt.date.fromisoformat, asked["partitions"])
    kept = set(done)
    return [_failure(day, attempts.get(index)) for index, day in enumerate(days) if day not in kept]


def _failure(partition: dt.date, attempt: Attempt | None) -> Failure:
    """Bad data is an incident of the feed; anything else is a check that could not be run."""
    if attempt is None:
        return Failure(partition, "failed", "no step was begun; the task's log says why")
    result = join(str(attempt.begun.body["folder"]), "result.json")
    words = failure_of(result)
    if words is None or attempt.finished is None:
        said = attempt.finished.body["reason"] if attempt.finished else "its worker was lost"
        return Failure(partition, "failed", str(said))
    outcome: Literal["incident", "failed"] = "incident" if words.kind == "bad_data" else "failed"
    return Failure(partition, outcome, words.reason, failure_uri(result))


def decide_all(row: Pipeline, asked: Mapping[str, Any], results: Sequence[Any], run_id: str) -> bool:
    """Lets the policy look at each check in the order of the days; returns whether a retrain has been decided.

    Every check gets its ledger row with its reasons and its evidence, also for a no, and also when it failed.
    """
    checks = {check.partition: check for check in (load(result, CheckRef) for result in results if result)}
    failed = {failure.partition: failure for failure in failures(row, asked, checks, run_id)}
    package = str(asked["package"])
    past = (row.partition for row in plans.history(ledger().entries(DRIFT, row.model), package))
    newest = max((*checks, *failed, *past), default=None)
    decided = False
    for partition in sorted({*checks, *failed}):
        if partition in failed:
            _write_failure(row, package, failed[partition], newest, run_id)
        else:
            decided = _decide(row, checks[partition], newest, again=bool(asked.get("again"))) or decided
    return decided or bool([entry for entry in ledger().open_decisions(row.model) if entry.body["trigger"] == "drift"])


def _answer(row: Pipeline, current: CheckRow, found: Situation) -> Decision:
    """What the policy says after a check, by all that the ledger remembers."""
    past = plans.history(ledger().entries(DRIFT, row.model), current.package_digest)
    earlier = (check for check in past if check.partition < current.partition)
    return decide((*earlier, current), found, row.drift)


def _decide(row: Pipeline, check: CheckRef, newest: dt.date | None, *, again: bool) -> bool:
    current, heard = row_of(check, row.drift), _heard(row)
    found = situation(row, current, newest)
    answer = _answer(row, current, found)
    entry = _write_check(row, check, current, answer, {"alert": heard, "labels": found.new_labels}, again=again)
    if not answer.retrain or answer.trigger_id is None:
        return False
    body = {
        "trigger": "drift",
        "cause": answer.cause,
        "partition": check.partition.isoformat(),
        "reasons": list(answer.reasons),
        "check": entry.id,
        "evidence": check.digest,
        "evidence_uri": check.uri,
        "package_digest": check.package_digest,
    }
    return not ledger().append(DECISION, row.model, body, unique=answer.trigger_id).existed


def _write_failure(row: Pipeline, package: Digest, failure: Failure, newest: dt.date | None, run_id: str) -> None:
    champion = _live(row)
    inputs = plans.inputs(row, champion, platform().store, layer_digest("monitoring"))(failure.partition)
    name = failure.partition.isoformat()
    before = {
        entry.unique
        for entry in ledger().entries(DRIFT, row.model)
        if (entry.body["partition"], entry.body.get("inputs"), entry.body["package_digest"]) == (name, inputs, package)
    }
    number, most = len(before - {_run(row, name, run_id)}) + 1, row.drift.failed_checks
    last = f"run {number} of {most} with this end"
    if number >= most:
        last = f"failed in {number} runs; left alone until its data change, or until `watch` is started by hand"
    current = CheckRow(
        partition=failure.partition,
        package_digest=package,
        outcome=failure.outcome,
        hit=False,
        score=None,
        reasons=(failure.reason, last),
    )
    body = {
        "partition": name,
        "package_digest": package,
        "failed": True,
        "inputs": inputs,
        "row": current.model_dump(mode="json"),
        "decision": _answer(row, current, situation(row, current, newest)).model_dump(mode="json"),
        "evidence": None,
        "evidence_uri": failure.evidence,
    }
    ledger().append(DRIFT, row.model, body, unique=_run(row, name, run_id))


def _run(row: Pipeline, partition: str, run_id: str) -> str:
    return f"drift:{row.model}:{partition}:failed:{run_id}"


def _heard(row: Pipeline) -> int:
    """The newest alert's id; read before the situation, so one that comes meanwhile is heard twice and never missed."""
    said = ledger().entries(ALERT, row.model, newest=1)
    return said[0].id if said else 0


def _write_check(
    row: Pipeline, check: CheckRef, current: CheckRow, answer: Decision, heard: Mapping[str, int], *, again: bool
) -> Entry:
    body = {
        "partition": check.partition.isoformat(),
        "package_digest": check.package_digest,
        "reference": check.reference_digest,
        "rows": check.rows,
        "score": check.score,
        "prediction_psi": check.prediction_psi,
        "prediction_threshold": check.prediction_threshold,
        "drifted": [finding.words for finding in check.findings if finding.kind not in ("ok", "warn")],
        "quality": check.quality.model_dump(mode="json") if check.quality else None,
        "row": current.model_dump(mode="json"),
        "decision": answer.model_dump(mode="json"),
        "heard": dict(heard),
        "evidence": check.digest,
        "evidence_uri": check.uri,
    }
    name = f"drift:{check.package_digest}:{check.partition}"
    first = ledger().append(DRIFT, row.model, body, unique=name)
    if not again or not first.existed:
        return first
    return ledger().append(DRIFT, row.model, body, unique=f"{name}:{heard['alert']}:{heard['labels']}")


def version_in_front(row: Pipeline) -> Version:
    """The live version as the ledger knows it."""
    return by_package(ledger(), row.model, _live(row).package.digest)
