"""The step calls of the ``retrain`` DAG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from artifacts.refs import Digest, Uri, join, short
from feature_repo.contract import DatasetRef, ValidationRef
from operators.data_gate import LOOKED_AT, held_before
from operators.jobs.contract import TorchJob
from operators.ledger import ledger
from operators.payload import PENDING, StepCall, load
from operators.pipelines import Pipeline
from operators.plans import checks
from operators.plans import retrain as plans
from operators.plans.retrain import Ask
from operators.settings import platform
from operators.steps import layer_digest
from operators.tasks.retrain import champion_version, gate_verdicts
from serving.contract import PackageRef
from training.contract import EvaluationRef, FitRef, OnnxRef, VersionRef

XCom = Mapping[str, Any]


def _below(*parts: str) -> Callable[[BaseModel, Digest], Uri]:
    return lambda _, key: join(platform().store, *parts, short(key))


def validate_raw(row: Pipeline) -> StepCall:
    """The expectations of the partition's raw day; the check of a range that has held with it is as good."""

    def spec(ask: XCom) -> BaseModel:
        wanted = checks.raw_days(row.repo, platform().store, (Ask.model_validate(ask).partition,), PENDING)
        return held_before(wanted, ledger().status(LOOKED_AT), layer_digest("features"))

    return StepCall(
        "feature_repo.validate", "features", spec, ValidationRef, output=_below("validations", row.repo.name)
    )


def training_set(row: Pipeline) -> StepCall:
    """The as-of training set of the partition."""

    def spec(ask: XCom) -> BaseModel:
        return plans.training_set(row, platform().store, Ask.model_validate(ask), PENDING)

    return StepCall("feature_repo.training_set", "features", spec, DatasetRef, output=_below("datasets", row.model))


def validate_set(row: Pipeline) -> StepCall:
    """The expectations of the training set."""

    def spec(dataset: XCom) -> BaseModel:
        return plans.training_set_suite(row, load(dataset, DatasetRef), PENDING)

    return StepCall("feature_repo.validate", "features", spec, ValidationRef, output=_below("validations", row.model))


def fit(row: Pipeline, kind: str) -> StepCall:
    """One of the two fits; the final one takes its epochs from the evaluation fit."""
    job = TorchJob(model=row.model, owner=row.owner, tenant=row.owner)

    def spec(ask: XCom, dataset: XCom, evaluation_fit: XCom | None = None) -> BaseModel:
        data = load(dataset, DatasetRef)
        key = plans.training_key(row, Ask.model_validate(ask), data, layer_digest("training"))
        first = load(evaluation_fit, FitRef) if evaluation_fit else None
        return plans.fit(row, platform().store, data, key, first, job.shape)

    return StepCall("training.train", "training", spec, FitRef, job=job)


def evaluate(row: Pipeline, *, backfill: bool = False) -> StepCall:
    """Candidate, champion, base rate and boosting on the newest window; a backfill meets no champion, who knows its days."""

    def spec(candidate: XCom, final: XCom) -> BaseModel:
        champion = None if backfill else champion_version(row.model)
        mine = load(candidate, FitRef)
        theirs = champion.evaluation_fit_ref() if champion else None
        same = theirs is not None and theirs.training_key == mine.training_key
        return plans.evaluate(row, mine, load(final, FitRef), None if same else theirs, PENDING)

    return StepCall("training.evaluate", "training", spec, EvaluationRef, output=_below("evaluations", row.model))


def export(row: Pipeline) -> StepCall:
    """The final fit as ONNX."""

    def spec(final: XCom, gate: XCom) -> BaseModel:
        return plans.export(row, load(final, FitRef), PENDING)

    return StepCall("training.export", "training", spec, OnnxRef, output=_below("onnx", row.model))


def package(row: Pipeline) -> StepCall:
    """The servable package."""

    def spec(onnx: XCom, final: XCom, evaluation: XCom, gate: XCom) -> BaseModel:
        return plans.package(
            row, load(onnx, OnnxRef), load(final, FitRef), load(evaluation, EvaluationRef), gate_verdicts(gate), PENDING
        )

    return StepCall("serving.package", "serving", spec, PackageRef, output=_below("packages", row.model))


def register(row: Pipeline) -> StepCall:
    """The MLflow version."""

    def spec(ask: XCom, candidate: XCom, final: XCom, evaluation: XCom, packed: XCom, gate: XCom) -> BaseModel:
        return plans.register(
            Ask.model_validate(ask),
            platform().mlflow,
            load(candidate, FitRef),
            load(evaluation, EvaluationRef),
            load(final, FitRef),
            load(packed, PackageRef),
            gate_verdicts(gate),
        )

    return StepCall("training.register", "training", spec, VersionRef)
