"""A job as processes of this machine: its books, its smaller self, and how an end is told."""

from __future__ import annotations

import datetime as dt
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import psutil
from pydantic import BaseModel, JsonValue

from artifacts.step import Failure
from operators import manifests
from operators.jobs import hardware, observe, utilisation
from operators.jobs.accounts import Accounts
from operators.jobs.contract import TorchJob, declared
from operators.jobs.diagnosis import Evidence, diagnose
from operators.jobs.history import History
from operators.jobs.keeper import Keeper
from operators.jobs.states import State
from operators.ledger import Ledger
from operators.steps import PlannedStep


def keeper(
    step: PlannedStep,
    attempt: int,
    book: Ledger,
    words: Mapping[str, str],
    accounts: Accounts | None,
    policy: utilisation.Policy,
) -> Keeper:
    """The books of one attempt at a distributed step; raises TypeError for a step that is none."""
    if step.job is None:
        raise TypeError(f"{step.module}: no distributed job")
    history = History(book, f"{words.get('dag', 'perennial')}/{words.get('task', '')}".rstrip("/"))
    name = manifests.pod_name(step.module, step.key, attempt)
    whole = declared(step.job).model_copy(update={"entry_point": step.module})
    job = history.declare(name, step.key, attempt, whole, lineage(step.spec))
    found = Keeper(history, job, words, time.monotonic, accounts, policy)
    if job.state == "DECLARED":
        found.move("VALIDATED", "spec and job hold")
    return found


def lineage(spec: BaseModel) -> dict[str, JsonValue]:
    """What a training's spec says of where its model comes from."""
    dataset: Any = getattr(spec, "dataset", None)
    named = {name: getattr(spec, name, None) for name in ("model", "fit", "training_key", "seed")}
    data = {"dataset": dataset.digest, "dataset_uri": dataset.uri} if dataset is not None else {}
    return {name: value for name, value in {**named, **data}.items() if value is not None}


def smaller(step: PlannedStep) -> PlannedStep | None:
    """The same work, under the same key, with half the processes; None where that cannot be.

    Its checkpoint is for any number of processes. The key keeps the first number, the ledger says the one that ran.
    """
    network: Any = getattr(step.spec, "network", None)
    job = utilisation.smaller(declared(step.job), network.global_batch if network else None) if step.job else None
    return sized(step, job) if job is not None else None


def sized(step: PlannedStep, job: TorchJob) -> PlannedStep:
    """The same work, under the same key, as a job of another size."""
    if "job" not in type(step.spec).model_fields:
        return replace(step, job=job)
    spec = type(step.spec).model_validate({**step.spec.model_dump(), "job": job.shape.model_dump()})
    return replace(step, spec=spec, job=job)


def uid(pid: int) -> str:
    """What names a process for ever: the machine, its number, and when it began."""
    return f"{socket.gethostname()}:{pid}:{psutil.Process(pid).create_time():.2f}"


def lives(name: str) -> bool | None:
    """Whether the process of a uid still runs; None for one of another machine, whose processes cannot be seen here."""
    host, pid, began = name.rsplit(":", 2)
    if host != socket.gethostname():
        return None
    try:
        one = psutil.Process(int(pid))
        return f"{one.create_time():.2f}" == began and bool(one.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def close_pod(keeper: Keeper, pod: Mapping[str, Any], outcome: str, reason: str, said: Failure | None) -> None:
    """Reads the meter of a job that was one pod, and closes it; its container's times are what is paid for."""
    code = ""
    if outcome != "done":
        end, why, _ = observe.why({}, [pod], ())
        words = {"kind": said.kind, "said": said.reason} if said else {}
        code = (
            "H101" if outcome == "killed" else diagnose(Evidence(exit=end, reason=why, distributed=True, **words)).code
        )
    for one in observe.times([pod] if pod else []):
        keeper.started(one.uid, one.started)
        keeper.ended(one.uid, one.ended or dt.datetime.now(dt.UTC), code=code)
    state: State = "COMPLETED" if not code else "HALTED" if code[:1] in {"H", "Q"} else "FAILED"
    keeper.close(state, reason, code=code)


def variables(job: TorchJob) -> list[str]:
    """What is logged when a job begins: the variables of its processes, each with its reason."""
    return [f"{one.name}={one.value}  ({one.reason})" for one in hardware.profile(job, "local")]
