"""The light tasks of the ``release`` DAG: which version, promote or refuse, roll back, and the end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from artifacts.records import Conflict
from operators import live
from operators.approvals import held
from operators.ledger import ledger
from operators.payload import load
from operators.pipelines import Pipeline
from operators.plans.release import Candidate
from operators.rollout import Refused, Released, choose, deployed, not_newer, promoted, rank, rolled_back, triton_name
from operators.settings import platform
from operators.versions import Version, versions
from serving.confirm import unanswered
from serving.contract import Deployed, JudgementRef, PackageRef, Routing, TritonServer
from serving.routing import loaded
from training.contract import AliasRef

RELEASE = "release"
PROMOTION = "promotion"
INTENT = "promotion-intent"
OVERRULED = "alias-overruled"
FAILED_LIMIT = 3


def version_of(model: str, number: int) -> Version:
    """A registered version by its number."""
    for version in versions(ledger(), model):
        if version.registered.version == number:
            return version
    raise LookupError(f"the ledger has no version {number} of '{model}'")


def released(model: str) -> list[Released]:
    """Earlier releases; a run that failed counts only when it was the last of three."""
    rows = [
        Released(package_digest=str(entry.body["package"]), outcome=str(entry.body["outcome"]), at=entry.at)
        for entry in ledger().entries(RELEASE, model)
    ]
    failures: dict[str, int] = {}
    for row in rows:
        failures[row.package_digest] = failures.get(row.package_digest, 0) + (row.outcome == "failed")
    return [row for row in rows if row.outcome != "failed" or failures[row.package_digest] >= FAILED_LIMIT]


def choose_candidate(row: Pipeline, params: Mapping[str, Any], run_id: str, actor: str = "perennial") -> dict[str, Any]:
    """What this run releases; skips when nothing waits, fails when a version was asked for that may not go."""
    reason, force = str(params["reason"]).strip(), bool(params["force"])
    if (params["version"] is not None or params["rollback"] or force) and not reason:
        raise AirflowFailException(
            "reason: is empty; a release or a rollback by hand says why (trigger it again with a reason)"
        )
    routing, _ = live.routing(row.model)
    if params["rollback"]:
        if routing.previous is None:
            raise AirflowFailException(f"'{row.model}' has no previous version to go back to")
        number, words = routing.previous.version, reason
    else:
        version = _chosen(row, routing, params["version"], force=force)
        number, words = version.registered.version, reason or f"trained by {version.trigger}"
    chosen = Candidate(
        model=row.model,
        version=number,
        rollback=bool(params["rollback"]),
        reason=words,
        run_id=run_id,
        force=force,
        actor=actor,
    )
    return chosen.model_dump(mode="json")


def _chosen(row: Pipeline, routing: Routing, typed: int | None, *, force: bool) -> Version:
    blocked = dt.timedelta(days=row.release.blocked_days)
    for one in versions(ledger(), row.model):
        why = held(ledger(), row.model).get(one.registered.training_key)
        if one.registered.version == typed and why:
            raise AirflowFailException(
                f"version {typed} may not go, with or without force: {why}; see approve__{row.model}"
            )
    try:
        version = choose(
            agreed_versions(row.model), routing, released(row.model), typed, live.now(), blocked, force=force
        )
    except Refused as error:
        raise AirflowFailException(str(error)) from error
    if version is None:
        raise AirflowSkipException(
            f"every registered version of '{row.model}' has been judged, or is older than the live one"
        )
    return version


Question = Callable[[TritonServer, str, PackageRef], str | None]


def settle(row: Pipeline, candidate: Candidate, judgement: Any | None, ask: Question = unanswered) -> dict[str, Any]:
    """Promotes, refuses or rolls back by compare-and-set, and writes it into the ledger.

    ``ask`` gives the reason why the version that is about to get traffic does not answer just now, or None.
    """
    version = version_of(row.model, candidate.version)
    evidence = load(judgement, JudgementRef) if judgement else None
    if candidate.rollback:
        return _switch(row, candidate, version, evidence, ask)
    if evidence is None or evidence.status != "pass":
        reasons = list(evidence.reasons) if evidence else ["NO_EVIDENCE: the judge gave no judgement"]
        write_release(row, version, "refused", reasons, evidence, candidate)
        return {"promoted": False, "version": candidate.version}
    return _switch(row, candidate, version, evidence, ask)


def _switch(
    row: Pipeline, candidate: Candidate, version: Version, evidence: JudgementRef | None, ask: Question
) -> dict[str, Any]:
    """Puts the version in front, unless an earlier try of this task has done so; a retry never undoes it."""
    while True:
        routing, expected = live.routing(row.model)
        if routing.champion is not None and routing.champion.package.digest == version.registered.package.digest:
            return _written(row, candidate, version, evidence, routing, expected)
        if candidate.rollback and (routing.previous is None or routing.previous.version != candidate.version):
            raise AirflowFailException(
                f"version {candidate.version} is no longer the previous one; look at the routing before rolling back again"
            )
        problem = None if candidate.rollback or candidate.force else not_newer(version, routing)
        if problem:
            write_release(row, version, "superseded", [problem], evidence, candidate)
            return {"promoted": False, "version": candidate.version}
        after = _after(routing, candidate, version)
        intent = {"expected": expected, "routing": after.model_dump(mode="json"), "reason": candidate.reason}
        ledger().append(INTENT, row.model, intent)
        if silent := ask(platform().triton, triton_name(row.model, candidate.version), version.package_ref()):
            reason = (
                f"NOT_ANSWERING: {silent}; traffic was not changed, and the version is staged again by the next run"
            )
            write_release(row, version, "failed", [reason], evidence, candidate)
            return {"promoted": False, "version": candidate.version, "failed": reason}
        try:
            live.records().put(Routing.record(row.model), after.model_dump(mode="json"), expected)
        except Conflict:
            continue
        return _written(row, candidate, version, evidence, after, expected + 1)


def _after(routing: Routing, candidate: Candidate, version: Version) -> Routing:
    now = live.now()
    if candidate.rollback:
        return rolled_back(routing, now)
    return promoted(routing, deployed(version, version.package_ref(), now))


def _written(
    row: Pipeline,
    candidate: Candidate,
    version: Version,
    evidence: JudgementRef | None,
    routing: Routing,
    routing_version: int,
) -> dict[str, Any]:
    """Writes a switch into the ledger, once per version of the routing record."""
    body = {
        "from": _named(routing.previous),
        "to": _named(routing.champion),
        "package": version.registered.package.digest,
        "decision": version.decision,
        "rollback": candidate.rollback,
        "force": candidate.force,
        "reason": candidate.reason,
        "evidence": evidence.digest if evidence else None,
        "routing_version": routing_version,
    }
    name = promotion_name(row.model, routing_version)
    ledger().append(PROMOTION, row.model, body, unique=name, actor=candidate.actor)
    outcome = "rolled_back_to" if candidate.rollback else "promoted"
    reasons = list(evidence.reasons) if evidence else [candidate.reason]
    write_release(row, version, outcome, reasons, evidence, candidate, unique=f"release:{row.model}:{routing_version}")
    return {"promoted": True, "version": candidate.version}


def promotion_name(model: str, routing_version: int) -> str:
    """The unique name of the ledger's row about one version of a routing record."""
    return f"promotion:{model}:{routing_version}"


def _named(live_version: Deployed | None) -> dict[str, Any] | None:
    return (
        {"name": live_version.name, "version": live_version.version, "digest": live_version.package.digest}
        if live_version
        else None
    )


def write_release(
    row: Pipeline,
    version: Version,
    outcome: str,
    reasons: list[str],
    evidence: JudgementRef | None,
    candidate: Candidate,
    unique: str | None = None,
) -> None:
    """Writes how the release of a version ended."""
    body = {
        "package": version.registered.package.digest,
        "version": version.registered.version,
        "partition": version.registered.partition.isoformat(),
        "outcome": outcome,
        "reasons": reasons,
        "reason": candidate.reason,
        "force": candidate.force,
        "kind": evidence.kind if evidence else None,
        "figures": evidence.figures if evidence else {},
        "evidence": evidence.digest if evidence else None,
        "evidence_uri": evidence.uri if evidence else None,
    }
    ledger().append(RELEASE, row.model, body, unique=unique, actor=candidate.actor)


def note_overruled(row: Pipeline, run_id: str, projections: Sequence[Any]) -> tuple[str, ...]:
    """Writes into the ledger which of MLflow's aliases somebody had moved by hand; they were not followed."""
    found = tuple(moved for one in projections if one for moved in load(one, AliasRef).overruled)
    if found:
        body = {"aliases": list(found), "run_id": run_id, "reason": "set by hand in MLflow; the routing record decides"}
        ledger().append(OVERRULED, row.model, body, unique=f"{OVERRULED}:{row.model}:{run_id}")
    return found


def end(row: Pipeline, candidate: Candidate | None, settled: Mapping[str, Any] | None) -> bool:
    """Writes a failure into the ledger; returns whether another version is waiting. Raises when the run has failed.

    A run that never knew what it was for wakes nobody: it would wake itself for ever. ``sweep`` looks after the rest.
    """
    if candidate is None:
        return False
    if settled is None:
        write_release(
            row,
            version_of(row.model, candidate.version),
            "failed",
            ["a task of the run failed; its log says why"],
            None,
            candidate,
        )
        raise AirflowFailException(
            f"the release of {row.model} version {candidate.version} failed before a verdict; traffic was not changed"
        )
    if "failed" in settled:
        raise AirflowFailException(f"version {candidate.version} of {row.model}: {settled['failed']}")
    waiting = next_version(row)
    return waiting is not None and rank(waiting) != rank(version_of(row.model, candidate.version))


def next_version(row: Pipeline) -> Version | None:
    """The version that the next release would take, or None when nothing waits."""
    routing, _ = live.routing(row.model)
    blocked = dt.timedelta(days=row.release.blocked_days)
    return choose(agreed_versions(row.model), routing, released(row.model), None, live.now(), blocked)


def agreed_versions(model: str) -> tuple[Version, ...]:
    """The versions that wait for nobody's approval, in the order in which they were registered."""
    waiting = held(ledger(), model)
    return tuple(one for one in versions(ledger(), model) if one.registered.training_key not in waiting)


def leftover(model: str) -> str | None:
    """The name of the version that the newest promotion has put out of the routing, or None when nothing was."""
    routing, _ = live.routing(model)
    kept = {one.name for one in loaded(routing)}
    for record in reversed(live.records().history(Routing.record(model))):
        old = Routing.model_validate(record.value)
        for one in (old.previous, old.champion):
            if one is not None and one.name not in kept:
                return one.name
    return None
