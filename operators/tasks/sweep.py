"""The light tasks of the ``sweep`` DAG: what crashes cut and what lost events left undone, found from stored state."""

from __future__ import annotations

import datetime as dt
from typing import Any

from artifacts.cleaning import Cleaned, clean
from operators import live, reaper
from operators.gaps import gaps
from operators.jobs import accounts, local
from operators.jobs.history import History
from operators.jobs.keeper import UTILISATION
from operators.ledger import FAILED, ledger
from operators.pipelines import PIPELINES, Pipeline
from operators.settings import platform
from operators.tasks.approve import unasked
from operators.tasks.effects import due
from operators.tasks.release import INTENT, PROMOTION, next_version, promotion_name
from operators.tasks.watch import unheard, waiting

CLEANED = "cleaned"
CLEAN_EVERY = dt.timedelta(hours=6)  # looking at every object costs calls on an object store, and what is old stays old
CALL_SECONDS = (5, 30)  # to connect to the cluster, and between two bytes
GONE = 404
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


def close_meters(now: dt.datetime) -> list[str]:
    """Reads the meters of jobs whose runner was lost: what was held is known up to the last sign of life. ``now`` is the wall clock.

    A process of this machine that is gone ended with its runner; of any other only the deadline says that it must have.
    """
    book, closed = ledger(), []
    jobs = {job.name: job for job in History(book).jobs()}
    for meter in accounts.open_meters(book):
        job = jobs.get(meter.job)
        alive = local.lives(meter.uid) if ":" in meter.uid else None
        expired = job is not None and now - meter.started > job.declared.deadline + reaper.GRACE
        if (
            alive
            or not (alive is False or expired or (job is not None and job.over))
            or now - meter.started < reaper.GRACE
        ):
            continue
        signs = [step.at for step in job.steps] if job else []
        signs += [entry.recorded_at for entry in book.entries(UTILISATION, meter.job)]
        ended = max([meter.started, *signs])
        accounts.end(book, meter, ended, code="S201", closed_by="reaper")
        if job is not None and not job.over:
            History(book, "sweep").move(job, "FAILED", "its runner was lost; closed by sweep", code="S201")
        if job is not None:
            accounts.Accounts(book, live.records(), platform().budgets, live.now).settle(job.name, job.declared)
        closed.append(meter.uid)
    return closed


def reap_pods(task: Any, now: dt.datetime, config_file: str | None = None) -> list[str]:
    """Removes pods that nobody waits for, and closes their attempts; returns their names. ``now`` is the wall clock."""
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook  # noqa: PLC0415  costs 3 s
    from kubernetes.client.exceptions import ApiException  # noqa: PLC0415

    namespace = platform().namespace
    core = KubernetesHook(conn_id=None, config_file=config_file).core_v1_client
    found = core.list_namespaced_pod(namespace, label_selector=reaper.SELECTOR, _request_timeout=CALL_SECONDS).items

    def delete(name: str) -> None:
        try:
            core.delete_namespaced_pod(name, namespace, _request_timeout=CALL_SECONDS)
        except ApiException as error:
            if error.status != GONE:
                raise

    pods = [core.api_client.sanitize_for_serialization(pod) for pod in found]
    return reaper.reap(pods, lambda pod: _task_state(task, pod), ledger(), delete, now)


def _task_state(task: Any, pod: reaper.Owned) -> str | None:
    mapped = {"map_index": pod.map_index} if pod.map_index >= 0 else {}
    states = task.get_task_states(dag_id=pod.dag, task_ids=[pod.task], run_ids=[pod.run], **mapped)
    known = list(states.get(pod.run, {}).values())
    return (
        (known[0] or "none") if known else None
    )  # a task that was cleared and not yet queued has no state, and is there
