"""The step calls of the ``release`` DAG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from artifacts.refs import join, short
from artifacts.settings import ROOT
from operators import live
from operators.payload import PENDING, Skip, StepCall, load
from operators.pipelines import Pipeline
from operators.plans import release as plans
from operators.plans.release import Candidate
from operators.plans.watch import logged
from operators.rollout import triton_name
from operators.settings import platform
from operators.tasks.release import leftover, version_of
from serving.contract import JudgementRef, StageRef, UnstageRef
from serving.routing import loaded
from training.contract import AliasRef

XCom = Mapping[str, Any]


def stage(row: Pipeline) -> StepCall:
    """Loads the candidate beside the champion."""

    def spec(candidate: XCom) -> BaseModel:
        chosen = Candidate.model_validate(candidate)
        package = version_of(row.model, chosen.version).package_ref()
        spec = plans.stage(package, triton_name(row.model, chosen.version), platform().triton)
        return spec.model_copy(update={"rehearsal": rehearsal()})

    return StepCall("serving.stage", "serving", spec, StageRef, effect=True)


def rehearsal() -> Path | None:
    """The environment of a throw-away server; only beside the embedded server is there one."""
    here = platform()
    return ROOT / ".venv-triton" if here.runner == "process" and here.triton_flavour == "embedded" else None


def judge(row: Pipeline) -> StepCall:
    """Asks champion and candidate the same requests."""

    def spec(candidate: XCom, staged: XCom) -> BaseModel | Skip:
        chosen = Candidate.model_validate(candidate)
        if chosen.rollback:
            return Skip("a rollback goes back to a version that was live; its golden requests were answered again")
        routing, _ = live.routing(row.model)
        version = version_of(row.model, chosen.version)
        return plans.judge(
            row, version, load(staged, StageRef), routing, logged(row, platform().store), platform().triton, PENDING
        )

    return StepCall(
        "serving.judge",
        "serving",
        spec,
        JudgementRef,
        output=lambda _, key: join(platform().store, "judgements", row.model, short(key)),
        effect=True,
        salt=lambda candidate, **_: str(candidate["run_id"]),  # each run's evidence stays for the ledger to point at
    )


def challenge(row: Pipeline) -> StepCall:
    """Names the version that is being judged in MLflow's aliases."""

    def spec(candidate: XCom) -> BaseModel | Skip:
        chosen = Candidate.model_validate(candidate)
        routing, _ = live.routing(row.model)
        if chosen.rollback:
            return Skip("a rollback judges nobody")
        return plans.aliases(routing, platform().mlflow, chosen.version)

    return StepCall("training.alias", "training", spec, AliasRef, effect=True)


def alias(row: Pipeline) -> StepCall:
    """Projects the routing record onto MLflow's aliases."""

    def spec(settled: XCom) -> BaseModel:
        routing, _ = live.routing(row.model)
        return plans.aliases(routing, platform().mlflow)

    return StepCall("training.alias", "training", spec, AliasRef, effect=True)


def unstage(row: Pipeline) -> StepCall:
    """Unloads what no route leads to any more: a version that was not promoted, or the one before the previous one."""

    def spec(settled: XCom) -> BaseModel | Skip:
        routing, _ = live.routing(row.model)
        routed = {one.name for one in loaded(routing)}
        name = leftover(row.model) if settled["promoted"] else triton_name(row.model, int(settled["version"]))
        if name is None or name in routed:
            return Skip("nothing is loaded that no route leads to; the previous version stays for a rollback")
        return plans.unstage(name, platform().triton)

    return StepCall("serving.unstage", "serving", spec, UnstageRef, effect=True)
