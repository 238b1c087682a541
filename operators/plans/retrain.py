"""The specs of the ``retrain`` DAG's steps, from the row and what earlier steps returned. Reads manifests, writes nothing."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from pydantic import BaseModel

from artifacts.refs import Digest, Ref, Uri, join, short
from artifacts.secret import without_password
from feature_repo.contract import DatasetRef, Target, TrainingSetSpec, ValidateSpec, ValidationRef
from feature_repo.snapshot import training_snapshots
from operators.pipelines import Pipeline
from operators.versions import BACKFILL
from serving.contract import PackageRef, PackageSpec
from training.contract import (
    EvaluateSpec,
    EvaluationRef,
    ExportSpec,
    FitRef,
    GateEvidence,
    OnnxRef,
    RegisterSpec,
    TorchJob,
    TrainSpec,
    Verdict,
    Windows,
)

DAY = dt.timedelta(days=1)


class Ask(BaseModel, frozen=True, extra="forbid"):
    """What a run of ``retrain`` has been asked for: the outcome that design 3.3 names."""

    model: str
    partition: dt.date
    trigger: Literal["scheduled", "manual", "drift", "backfill"]
    reason: str
    decision: int | None = None
    salt: str = ""
    run_id: str = ""


def training_set(row: Pipeline, store: Uri, ask: Ask, output: Uri) -> TrainingSetSpec:
    """The as-of join of a partition, pinned to the snapshots of lake and views that it reads."""
    lake, views = row.repo.lake(store), row.repo.views(store)
    horizon = row.recipe.SPLIT.label_horizon_days * DAY
    lake_snapshot, views_snapshot = training_snapshots(
        row.calendar,
        lake=lake,
        views=views,
        first=row.first,
        partition=ask.partition,
        label_horizon=horizon,
    )
    return TrainingSetSpec(
        model=row.model,
        question=row.question,
        known_share=row.question.known_share,
        calendar=row.calendar,
        lake=lake,
        lake_snapshot=lake_snapshot,
        views=views,
        views_snapshot=views_snapshot,
        partition=ask.partition,
        as_of=row.calendar.as_of(ask.partition),
        first=row.first,
        label_horizon=horizon,
        output=output,
    )


def training_set_suite(row: Pipeline, dataset: DatasetRef, output: Uri) -> ValidateSpec:
    """The expectations of a training set."""
    target = Target(uri=dataset.uri, digest=dataset.digest, partition=dataset.partition)
    return ValidateSpec(
        suite="training_set", calendar=row.calendar, targets=(target,), question=row.question, output=output
    )


def training_key(row: Pipeline, ask: Ask, dataset: DatasetRef, code: Digest) -> Digest:
    """The identity of the version that a run makes; a forced run salts it."""
    key: Digest = row.recipe.training_key(dataset, code, salt=ask.salt)
    return key


def fit_output(store: Uri, key: Digest, fit: str) -> Uri:
    """Where a fit lies."""
    return join(store, "fits", short(key), fit)


def fit(
    row: Pipeline, store: Uri, dataset: DatasetRef, key: Digest, evaluation: FitRef | None, job: TorchJob
) -> TrainSpec:
    """The evaluation fit, or, once that has found its epochs, the final fit."""
    kind = "final" if evaluation else "evaluation"
    spec = row.recipe.train_spec(
        dataset, key, kind, fit_output(store, key, kind), epochs=evaluation.epochs if evaluation else None, job=job
    )
    return TrainSpec.model_validate(spec)


def _windows(row: Pipeline, dataset: DatasetRef) -> Windows:
    return Windows.cut(dataset.first, dataset.partition, row.recipe.SPLIT)


def evaluate(row: Pipeline, candidate: FitRef, final: FitRef, champion: FitRef | None, output: Uri) -> EvaluateSpec:
    """Candidate and champion on the newest window that neither evaluation fit has seen."""
    return EvaluateSpec(
        model=row.model,
        dataset=candidate.dataset,
        windows=_windows(row, candidate.dataset),
        candidate=candidate,
        final=final,
        champion=champion,
        boosting=row.boosting,
        dimensions=row.recipe.DIMENSIONS,
        thresholds=row.recipe.THRESHOLDS,
        persistence=row.recipe.PERSISTENCE,
        seed=row.recipe.SEED,
        output=output,
    )


def evidence(
    ask: Ask,
    validations: tuple[ValidationRef, ...],
    candidate: FitRef,
    final: FitRef,
    evaluation: EvaluationRef,
) -> GateEvidence:
    """What the run's own steps give the gates; ``operators/verdicts.py`` adds what the ledger and the store know."""
    return GateEvidence(
        dataset=candidate.dataset,
        validations=validations,
        candidate=candidate,
        final=final,
        evaluation=evaluation,
        drift_triggered=ask.trigger == "drift",
        backfill=ask.trigger == BACKFILL,
    )


def export(row: Pipeline, final: FitRef, output: Uri) -> ExportSpec:
    """The final fit as ONNX."""
    return ExportSpec(fit=final, windows=_windows(row, final.dataset), output=output)


def package(
    row: Pipeline, onnx: OnnxRef, final: FitRef, evaluation: EvaluationRef, verdicts: tuple[Verdict, ...], output: Uri
) -> PackageSpec:
    """Everything that serving needs, and every proof that it is the same model."""
    return PackageSpec(
        onnx=onnx,
        final=final,
        evaluation=evaluation,
        serving=row.serving,
        partition=final.dataset.partition,
        verdicts=verdicts,
        output=output,
    )


def register(
    ask: Ask,
    tracking_uri: str,
    candidate: FitRef,
    evaluation: EvaluationRef,
    final: FitRef,
    packed: PackageRef,
    verdicts: tuple[Verdict, ...],
) -> RegisterSpec:
    """One MLflow version per training key."""
    return RegisterSpec(
        model=ask.model,
        tracking_uri=without_password(tracking_uri),
        partition=ask.partition,
        trigger=ask.trigger,
        candidate=candidate,
        final=final,
        evaluation=evaluation,
        package=Ref(uri=packed.uri, digest=packed.digest),
        onnx_digest=packed.onnx_digest,
        verdicts=(*verdicts, packed.parity),
    )
