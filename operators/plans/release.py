"""The specs of the ``release`` DAG's steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from artifacts.refs import Uri
from artifacts.secret import without_password
from operators.pipelines import Pipeline
from operators.versions import Version
from serving.contract import (
    Deployed,
    JudgeSpec,
    PackageRef,
    PredictionsRef,
    Routing,
    StageRef,
    StageSpec,
    TritonServer,
    UnstageSpec,
)
from training.contract import AliasSpec, FitRef

JUDGED_PARTITIONS = 7


class Candidate(BaseModel, frozen=True, extra="forbid"):
    """What a run of ``release`` is about."""

    model: str
    version: int
    rollback: bool
    reason: str
    run_id: str = ""
    force: bool = False
    actor: str = "perennial"


def stage(package: PackageRef, name: str, triton: TritonServer) -> StageSpec:
    """Loads a version beside the others, without traffic."""
    return StageSpec(package=package, name=name, triton=triton)


def judge(
    row: Pipeline,
    version: Version,
    staged: StageRef,
    routing: Routing,
    logged: Sequence[PredictionsRef],
    triton: TritonServer,
    output: Uri,
) -> JudgeSpec:
    """Champion and candidate on the same requests: the newest logged ones, or the training set's while none are."""
    live = routing.champion
    final: FitRef = version.final_fit_ref()
    return JudgeSpec(
        model=row.model,
        candidate=staged,
        candidate_package=version.package_ref(),
        champion=_staged(live) if live else None,
        champion_package=live.package if live else None,
        predictions=tuple(sorted(logged, key=lambda ref: ref.partition)[-JUDGED_PARTITIONS:]),
        final=final,
        triton=triton,
        policy=row.release,
        seed=row.recipe.SEED,
        output=output,
    )


def _staged(live: Deployed) -> StageRef:
    return StageRef(name=live.name, package=live.package, golden=0, load_seconds=0.0)


def unstage(name: str, triton: TritonServer) -> UnstageSpec:
    """Unloads a version that no route leads to."""
    return UnstageSpec(name=name, triton=triton)


def aliases(routing: Routing, tracking_uri: str, challenger: int | None = None) -> AliasSpec:
    """MLflow's aliases as the routing record says; ``challenger`` is the version that a release is judging."""
    champion, previous = routing.champion, routing.previous
    return AliasSpec(
        model=routing.model,
        tracking_uri=without_password(tracking_uri),
        champion=champion.version if champion else None,
        previous=previous.version if previous else None,
        challenger=challenger,
        package_digest=champion.package.digest if champion else None,
        previous_digest=previous.package.digest if previous else None,
    )
