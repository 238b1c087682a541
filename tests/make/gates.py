"""Builders of the evidence that gates look at: a version that passes everything, to be changed in one place."""

from __future__ import annotations

import datetime as dt
from typing import Any

from artifacts.refs import sha256
from feature_repo.contract import DatasetRef, ValidationRef
from serving.gate import Arm, Evidence
from training.approval import ApprovalEvidence
from training.contract import Columns, EvaluationRef, FitRef, GateEvidence, Network, Verdict
from training.gate import recipe_of
from training.measures import Errors, Gain, Look, Scores, Slice

PARTITION = dt.date(2013, 8, 31)
KEY = sha256(b"training")


def dataset_ref(**changes: Any) -> DatasetRef:
    fields: dict[str, Any] = {
        "uri": "file:///store/dataset",
        "digest": sha256(b"dataset"),
        "key": sha256(b"dataset key"),
        "model": "flight_delay",
        "partition": PARTITION,
        "as_of": dt.datetime(2013, 9, 1, 14, tzinfo=dt.UTC),
        "rows": 200_000,
        "positives": 50_000,
        "first": dt.date(2013, 1, 1),
        "last": dt.date(2013, 8, 30),
        "columns": ("row_id", "label"),
    }
    return DatasetRef.model_validate({**fields, **changes})


def fit_ref(kind: str = "evaluation", **changes: Any) -> FitRef:
    fields: dict[str, Any] = {
        "uri": f"file:///store/{kind}",
        "digest": sha256(kind.encode()),
        "training_key": KEY,
        "model": "flight_delay",
        "fit": kind,
        "dataset": dataset_ref(),
        "columns": Columns(numeric=("x",), categorical=("c",)),
        "network": Network(),
        "seed": 1,
        "epochs": 3,
        "rows": 150_000,
        "train_last": dt.date(2013, 7, 31) if kind == "evaluation" else dt.date(2013, 8, 30),
        "seen_last": dt.date(2013, 8, 15) if kind == "evaluation" else dt.date(2013, 8, 30),
        "loss_first": 0.6,
        "loss_last": 0.45,
        "grad_norm_max": 3.0,
        "base_rate": 0.25,
        "seconds": 10.0,
    }
    return FitRef.model_validate({**fields, **changes})


def scores(log_loss: float = 0.45, auc: float = 0.75) -> Scores:
    return Scores(log_loss=log_loss, auc=auc, pr_auc=0.5, brier=0.15, ece=0.02)


def gain(mean: float = 0.004, standard_error: float = 0.001) -> Gain:
    return Gain(
        mean=mean,
        lower=mean - 1.96 * standard_error,
        upper=mean + 1.96 * standard_error,
        standard_error=standard_error,
    )


def evaluation_ref(**changes: Any) -> EvaluationRef:
    fields: dict[str, Any] = {
        "uri": "file:///store/evaluation",
        "digest": sha256(b"evaluation"),
        "model": "flight_delay",
        "training_key": KEY,
        "test_first": dt.date(2013, 8, 17),
        "test_last": dt.date(2013, 8, 30),
        "rows": 13_000,
        "positives": 3_000,
        "candidate": scores(),
        "final": scores(0.44, 0.76),
        "base_rate": scores(0.55, 0.5),
        "boosting": scores(0.45, 0.755),
        "champion": scores(0.454, 0.746),
        "champion_key": sha256(b"champion"),
        "gain": gain(),
        "guard_gain": gain(),
    }
    return EvaluationRef.model_validate({**fields, **changes})


def first_evaluation(**changes: Any) -> EvaluationRef:
    """The evaluation of a first model, which has no champion."""
    alone = {"champion": None, "champion_key": None, "gain": None, "guard_gain": None}
    return evaluation_ref(**{**alone, **changes})


def errors(mae: float = 3.0, rmse: float = 4.0, bias: float = 0.1) -> Errors:
    return Errors(mae=mae, rmse=rmse, r2=0.8, bias=bias)


def regression_ref(**changes: Any) -> EvaluationRef:
    """The evaluation of a regression that passes everything under ``regression_policy``."""
    fields: dict[str, Any] = {
        "task": "regression",
        "positives": 0,
        "candidate": errors(),
        "final": errors(2.9),
        "base_rate": errors(6.0, 8.0),
        "boosting": errors(2.95),
        "champion": errors(3.2, 4.2),
        "gain": gain(0.2, 0.05),
        "guard_gain": gain(0.2, 0.05),
    }
    return evaluation_ref(**{**fields, **changes})


def one_slice(value: str = "EWR", **changes: Any) -> Slice:
    fields: dict[str, Any] = {
        "dimension": "origin",
        "value": value,
        "group": True,
        "rows": 4_000,
        "positives": 1_000,
        "label_mean": 0.25,
        "deciding": 0.45,
        "guard": 0.75,
        "bias": 0.01,
        "bias_error": 0.006,
        "gain_over_base": gain(0.1, 0.003),
        "gain": gain(0.004, 0.002),
        "known": True,
    }
    return Slice.model_validate({**fields, **changes})


def slices(**changes: Any) -> tuple[Slice, ...]:
    """Three large slices that nobody has anything against."""
    return tuple(one_slice(value, **changes) for value in ("EWR", "JFK", "LGA"))


def look(seed: int, **changes: Any) -> Look:
    """An earlier refusal of the same recipe on the same data, with another seed."""
    fields: dict[str, Any] = {
        "training_key": sha256(f"seed {seed}".encode()),
        "dataset": dataset_ref().digest,
        "recipe": recipe_of(fit_ref()),
        "passed": False,
    }
    return Look.model_validate({**fields, **changes})


def approval(**changes: Any) -> ApprovalEvidence:
    """A person has agreed in time to what somebody else asked for."""
    asked = dt.datetime(2013, 9, 2, 8, tzinfo=dt.UTC)
    fields: dict[str, Any] = {
        "needed": "G4 champion: too few rows",
        "asked_at": asked,
        "now": asked + dt.timedelta(hours=2),
        "answer": "approved",
        "answered_at": asked + dt.timedelta(hours=1),
        "approver": "ada",
        "author": "grace",
    }
    return ApprovalEvidence.model_validate({**fields, **changes})


def validation_ref(**changes: Any) -> ValidationRef:
    fields: dict[str, Any] = {
        "uri": "file:///store/validation",
        "digest": sha256(b"validation"),
        "suite": "training_set",
        "target": dataset_ref().digest,
        "first": dataset_ref().partition,
        "last": dataset_ref().partition,
        "expectations": 12,
    }
    return ValidationRef.model_validate({**fields, **changes})


def gate_evidence(**changes: Any) -> GateEvidence:
    """Evidence that passes every gate: a champion of the day before, clearly beaten."""
    fields: dict[str, Any] = {
        "dataset": dataset_ref(),
        "validations": (validation_ref(),),
        "candidate": fit_ref("evaluation"),
        "final": fit_ref("final"),
        "evaluation": evaluation_ref(),
        "slices": slices(),
        "code": sha256(b"code"),
        "champion_partition": PARTITION - dt.timedelta(days=1),
    }
    return GateEvidence.model_validate({**fields, **changes})


def arm(**changes: Any) -> Arm:
    fields: dict[str, Any] = {"requests": 2000, "errors": 0, "points": 60, "p50_ms": 1.0, "p99_ms": 2.0}
    return Arm.model_validate({**fields, **changes})


def release_evidence(**changes: Any) -> Evidence:
    """Evidence of a paired replay that passes every rule."""
    fields: dict[str, Any] = {
        "candidate": arm(),
        "champion": arm(),
        "equal_share": 1.0,
        "labelled": 5000,
        "loss": 0.44,
        "claimed_loss": 0.44,
        "champion_loss": 0.45,
        "difference_served": 0.02,
        "difference_offline": 0.02,
        "latency_p": {"p50": 0.5, "p99": 0.5},
        "budget": Verdict(gate="G9 budget", status="pass", reason="p99 2 ms"),
    }
    return Evidence.model_validate({**fields, **changes})
