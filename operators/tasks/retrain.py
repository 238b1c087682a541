"""The light tasks of the ``retrain`` DAG: what the run is for, whether features are there, the gates, and the end."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from artifacts.clock import NotClosed
from feature_repo.contract import ValidationRef
from operators import live
from operators.gaps import gaps
from operators.ledger import FAILED, RETRAIN, Entry, ledger
from operators.partitions import resolve
from operators.payload import load
from operators.pipelines import Pipeline
from operators.plans import retrain as plans
from operators.plans.retrain import Ask
from operators.settings import platform
from operators.verdicts import GATE, keep, with_history
from operators.versions import BACKFILL, Version, by_package, record
from serving.contract import PackageRef
from training.approval import ApprovalEvidence, approval_verdict
from training.contract import EvaluationRef, FitRef, Verdict, VersionRef
from training.gate import passed, reason_for_approval, recipe_of, verdicts

Trigger = Literal["scheduled", "manual", "drift"]

log = logging.getLogger("perennial.retrain")


def _trigger(run_type: str) -> Trigger:
    """``run_type`` is Airflow's word or its enumeration, whose members are texts but print otherwise."""
    return {"scheduled": "scheduled", "asset_triggered": "drift"}.get(
        str(getattr(run_type, "value", run_type)), "manual"
    )  # type: ignore[return-value]


def resolve_ask(row: Pipeline, params: Mapping[str, Any], run_type: str, run_id: str, actor: str) -> dict[str, Any]:
    """What this run is asked for; skips when a drift event finds no open decision or the outcome exists already.

    Everything is worked out from the ledger: events may be doubled, merged, late or lost.
    """
    trigger, now = _trigger(run_type), live.now()
    waiting = _waiting(row.model) or _failed_by(row.model, run_id)
    decided = None
    if trigger == "drift":
        if not waiting:
            raise AirflowSkipException(f"no decision to retrain '{row.model}' is open; the event came twice, or late")
        decided = max(str(entry.body["partition"]) for entry in waiting)
    elif trigger == "manual" and not str(params["reason"]).strip():
        raise AirflowFailException("reason: is empty; a retrain by hand says why (trigger it again with a reason)")
    try:
        partition = resolve(params["partition"], decided, row.calendar, now)
    except (ValueError, NotClosed) as error:
        raise AirflowFailException(str(error)) from error
    decision = _decision(row, params, trigger, partition, run_id, actor, waiting)
    ask = Ask(
        model=row.model,
        partition=partition,
        trigger=trigger,
        reason=str(params["reason"]) or "; ".join(str(reason) for reason in _reasons(decision)),
        decision=decision.id,
        salt=str(decision.id) if params["force"] else "",
        run_id=run_id,
    )
    log.info("%s", echo(row, ask))
    _stop_when_fresh(row, ask, force=bool(params["force"]))
    return ask.model_dump(mode="json")


def echo(row: Pipeline, ask: Ask) -> str:
    """What a run is about to do, in one line, before any work."""
    ends, as_of = row.calendar.ends(ask.partition), row.calendar.as_of(ask.partition)
    return (
        f"{ask.model}: trains through service day {ask.partition} ({row.calendar.zone}, ends {ends:%Y-%m-%dT%H:%MZ}), rows from "
        f"{row.first} on, as known at {as_of:%Y-%m-%dT%H:%MZ}; {ask.trigger}: {ask.reason}"
    )


def _waiting(model: str) -> list[Entry]:
    return [entry for entry in ledger().open_decisions(model) if entry.body["trigger"] == "drift"]


def _failed_by(model: str, run_id: str) -> list[Entry]:
    """The drift decisions that this very run has closed as failed: it was cleared from its start, and is asked again."""
    book = ledger()
    ends = [entry for entry in book.entries(RETRAIN, model) if entry.body.get("run_id") == run_id]
    failed = {entry.body["decision"] for entry in ends if entry.body["outcome"] == FAILED}
    return [
        book.get(decision)
        for decision, end in book.closures(model).items()
        if decision in failed and end.body["outcome"] == FAILED and book.get(decision).body["trigger"] == "drift"
    ]


def _reasons(decision: Entry) -> Sequence[Any]:
    reasons = decision.body.get("reasons")
    return reasons if isinstance(reasons, list) else []


def _decision(
    row: Pipeline,
    params: Mapping[str, Any],
    trigger: Trigger,
    partition: dt.date,
    run_id: str,
    actor: str,
    waiting: Sequence[Entry],
) -> Entry:
    """The decision that this run carries out: the open one for a drift run, else one of its own."""
    if trigger == "drift":
        return next(entry for entry in reversed(waiting) if entry.body["partition"] == partition.isoformat())
    reasons = [str(params["reason"])] if params["reason"] else [f"the daily schedule, partition {partition}"]
    body = {
        "trigger": trigger,
        "partition": partition,
        "reasons": reasons,
        "force": bool(params["force"]),
        "run_id": run_id,
    }
    return ledger().append(
        "decision",
        row.model,
        {**body, "partition": partition.isoformat()},
        unique=f"{trigger}:{row.model}:{run_id}",
        actor=actor,
    )


def _stop_when_fresh(row: Pipeline, ask: Ask, *, force: bool) -> None:
    champion = live.routing(row.model)[0].champion
    if champion is None or champion.package.partition < ask.partition or force:
        return
    reason = f"version {champion.version}, trained through {champion.package.partition}, is live already; nothing to do for {ask.partition}"
    close(ask, "ALREADY_FRESH", {"reason": reason, "version": champion.version})
    raise AirflowSkipException(reason)


def close(ask: Ask, outcome: str, body: Mapping[str, Any]) -> None:
    """Writes how a run ended, and closes its decision and every older one that the same outcome covers.

    A run that failed and was cleared closes its decision anew: what it came to supersedes the failure.
    """
    answer = {
        **body,
        "partition": ask.partition.isoformat(),
        "trigger": ask.trigger,
        "outcome": outcome,
        "decision": ask.decision,
        "run_id": ask.run_id,
    }
    book = ledger()
    book.append(RETRAIN, ask.model, answer, unique=f"retrain:{ask.decision or ask.run_id}:{outcome}")
    if ask.trigger == BACKFILL:
        return
    closing = {"by": ask.decision, **body}
    if ask.decision is not None:
        book.close_decision(book.get(ask.decision), outcome, closing)
    for entry in book.open_decisions(ask.model):
        covered = entry.body["trigger"] == "drift" and str(entry.body["partition"]) <= ask.partition.isoformat()
        if covered and outcome != FAILED:
            book.close_decision(entry, outcome, closing)


def features_ready(row: Pipeline, ask: Ask, waited: dt.timedelta, limit: dt.timedelta) -> bool:
    """Whether the views reach the partition's end; fails with FEATURES_NOT_READY once ``limit`` has passed."""
    built, _ = live.built(row.repo.progress_record)
    needed = row.calendar.ends(ask.partition)
    if built.built_to is not None and built.built_to >= needed:
        return True
    if waited > limit:
        raise AirflowFailException(
            f"FEATURES_NOT_READY: features/{row.repo.name} reach {built.built_to or 'nothing'}, partition {ask.partition} needs {needed:%Y-%m-%dT%H:%MZ}; "
            f"look at the DAG features__{row.repo.name}"
        )
    return False


def champion_version(model: str) -> Version | None:
    """The live version as the ledger knows it; None when nothing is live."""
    live_now = live.routing(model)[0].champion
    return by_package(ledger(), model, live_now.package.digest) if live_now else None


def judge(
    row: Pipeline, ask: Ask, validations: Sequence[Any], candidate: Any, final: Any, evaluation: Any
) -> dict[str, Any]:
    """Runs the row's gates, keeps their verdicts as an artifact and a ledger entry; skips the rest when one stands against."""
    champion = None if ask.trigger == BACKFILL else champion_version(row.model)
    evidence = plans.evidence(
        ask,
        tuple(load(value, ValidationRef) for value in validations),
        load(candidate, FitRef),
        load(final, FitRef),
        load(evaluation, EvaluationRef),
    )
    if champion and champion.registered.training_key == evidence.candidate.training_key:
        reason = f"version {champion.registered.version} went live while this run was judging it again"
        close(ask, "ALREADY_FRESH", {"reason": reason, "version": champion.registered.version})
        raise AirflowSkipException(reason)
    evidence = with_history(evidence, ledger(), champion)
    quality = verdicts(evidence, row.gates)
    needed = reason_for_approval(quality, row.gates)
    asked = ApprovalEvidence(needed=needed, backfill=evidence.backfill)
    approval = approval_verdict(asked, row.gates)  # none while a person has to be asked, which ``approve`` does
    found = (*quality, approval) if approval else quality
    waits = approval is None and needed is not None  # goes on to be packaged, and waits in front of its release
    accepted = waits or passed(found, row.gates)
    kept = keep(platform().store, evidence, row.gates, found)
    body = {
        "training_key": evidence.candidate.training_key,
        "partition": ask.partition.isoformat(),
        "trigger": ask.trigger,
        "decision": ask.decision,
        "dataset": evidence.dataset.digest,
        "recipe": recipe_of(evidence.candidate),
        "evaluation": evidence.evaluation.digest,
        "evaluation_uri": evidence.evaluation.uri,
        "verdicts_uri": kept.uri,
        "verdicts_digest": kept.digest,
        "passed": accepted,
        "needs_approval": needed if waits else None,
        "first_release": row.gates.first_release if champion is None else None,
        "verdicts": [verdict.model_dump(mode="json") for verdict in found],
        "reasons": [f"{verdict.gate}: {verdict.status}, {verdict.reason}" for verdict in found],
    }
    entry = ledger().append(GATE, row.model, body)
    if not accepted:
        reasons = [
            f"{verdict.gate}: {verdict.reason}" for verdict in found if verdict.status in ("fail", "underpowered")
        ]
        close(ask, "refused", {"reasons": reasons, "training_key": evidence.candidate.training_key})
        raise AirflowSkipException("refused by the gates: " + "; ".join(reasons))
    return {"gate": entry.id}


def gate_verdicts(gate: Mapping[str, Any]) -> tuple[Verdict, ...]:
    """The verdicts that a gate entry of the ledger holds."""
    found = ledger().get(int(gate["gate"])).body["verdicts"]
    return tuple(Verdict.model_validate(verdict) for verdict in found) if isinstance(found, list) else ()


def record_version(
    ask: Ask, registered: Any, candidate: Any, final: Any, evaluation: Any, packed: Any
) -> dict[str, Any]:
    """Writes the registered version into the ledger and closes the decision; returns what the asset event says."""
    version = Version(
        registered=load(registered, VersionRef),
        evaluation_fit=candidate["result"],
        final_fit=final["result"],
        evaluation=evaluation["result"],
        package=packed["result"],
        trigger=ask.trigger,
        decision=ask.decision,
    )
    record(ledger(), version)
    package = load(packed, PackageRef)
    close(
        ask,
        "trained",
        {"version": version.registered.version, "training_key": package.training_key, "package": package.digest},
    )
    return {
        "model": ask.model,
        "version": version.registered.version,
        "partition": ask.partition.isoformat(),
        "digest": package.digest,
    }


def end(row: Pipeline, ask: Ask | None) -> bool:
    """Closes what a failure left open; returns whether more decisions are waiting. Raises when the run has failed.

    A run that never knew what it was for wakes nobody: it would wake itself for ever. ``sweep`` looks after the rest.
    """
    if ask is None:
        return False
    if not _closed(ask):
        close(ask, FAILED, {"reason": "a task of the run failed; its log says why"})
        raise AirflowFailException(
            f"the retrain of {ask.model} for {ask.partition} failed; the failed task's last lines say why"
        )
    return bool(gaps(row, ledger(), live.now()) if ask.trigger == BACKFILL else _waiting(row.model))


def _closed(ask: Ask) -> bool:
    if ask.decision is None:
        return any(entry.body.get("run_id") == ask.run_id for entry in ledger().entries(RETRAIN, ask.model))
    return all(entry.id != ask.decision for entry in ledger().open_decisions(ask.model))
