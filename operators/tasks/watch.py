"""The light tasks of the ``watch`` DAG: which partitions to check, and what the policy says of each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowSkipException

from monitoring.contract import CheckRef, CheckRow, Decision
from monitoring.policy import decide, row_of
from operators import live
from operators.ledger import DECISION, Entry, ledger
from operators.payload import load
from operators.pipelines import Pipeline
from operators.plans import watch as plans
from operators.settings import platform
from operators.tasks.release import PROMOTION, RELEASE
from operators.versions import by_package
from serving.contract import Deployed

DRIFT = "drift"


def _live(row: Pipeline) -> Deployed:
    champion = live.routing(row.model)[0].champion
    if champion is None:
        raise AirflowSkipException(f"no version of '{row.model}' is live; there is nothing to watch")
    return champion


def choose_partitions(row: Pipeline) -> dict[str, Any]:
    """The closed partitions that nobody has checked against the live version; skips when there is none."""
    champion = _live(row)
    log = plans.logged(row, platform().store)
    waiting = plans.unchecked(row, champion, log, ledger().entries(DRIFT, row.model))
    if not waiting:
        raise AirflowSkipException(f"every closed partition of the predictions of '{row.model}' has been checked")
    return {"package": champion.package.digest, "partitions": [ref.partition.isoformat() for ref in waiting]}


def decide_all(row: Pipeline, results: Sequence[Any]) -> bool:
    """Lets the policy look at each check in the order of the days; returns whether a retrain has been decided.

    Every check gets its ledger row, also for a no, with its reasons and its evidence.
    """
    checks = sorted((load(result, CheckRef) for result in results if result), key=lambda check: check.partition)
    decided = False
    for check in checks:
        decided = _decide(row, check, checks[-1].partition) or decided
    return decided or bool([entry for entry in ledger().open_decisions(row.model) if entry.body["trigger"] == "drift"])


def _decide(row: Pipeline, check: CheckRef, newest: dt.date) -> bool:
    book = ledger()
    current = row_of(check, row.drift)
    earlier = [
        past
        for past in plans.history(book.entries(DRIFT, row.model), check.package_digest)
        if past.partition < check.partition
    ]
    decisions = book.entries(DECISION, row.model)
    promotions = book.entries(PROMOTION, row.model)
    answer = decide(
        (*earlier, current),
        plans.retrains(decisions, book.closures(row.model), book.entries(RELEASE, row.model)),
        retraining=bool(book.open_decisions(row.model)),
        now=live.now(),
        model=row.model,
        policy=row.drift,
        newest=newest,
        breaker_closed_at=promotions[-1].at if promotions else None,
    )
    entry = _write_check(row, check, current, answer)
    if not answer.retrain or answer.trigger_id is None:
        return False
    body = {
        "trigger": "drift",
        "partition": check.partition.isoformat(),
        "reasons": list(answer.reasons),
        "check": entry.id,
        "evidence": check.digest,
        "evidence_uri": check.uri,
        "package_digest": check.package_digest,
    }
    return not book.append(DECISION, row.model, body, unique=answer.trigger_id).existed


def _write_check(row: Pipeline, check: CheckRef, current: CheckRow, answer: Decision) -> Entry:
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
        "evidence": check.digest,
        "evidence_uri": check.uri,
    }
    return ledger().append(DRIFT, row.model, body, unique=f"drift:{check.package_digest}:{check.partition}")


def version_in_front(row: Pipeline) -> Any:
    """The live version as the ledger knows it."""
    return by_package(ledger(), row.model, _live(row).package.digest)
