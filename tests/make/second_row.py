"""The second row on real weather: every step of its features and its retrain, as the DAGs plan them, in this process."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from artifacts.refs import Uri, file_uri, join
from feature_repo.build import build
from feature_repo.contract import DatasetRef, IngestSpec, ValidationRef
from feature_repo.ingest import ingest
from feature_repo.training_set import training_set
from feature_repo.validate import validate
from operators.pipelines import pipeline
from operators.plans import checks
from operators.plans import features as feature_plans
from operators.plans import retrain as plans
from operators.steps import layer_digest
from operators.verdicts import evaluated_slices
from serving.contract import PackageRef
from serving.package import package
from training.contract import EvaluationRef, FitRef, TorchJob, Verdict
from training.evaluate import evaluate
from training.export import export
from training.gate import verdicts
from training.train import train

ROW = pipeline("next_hour_temperature")
PARTITION = dt.date(2013, 2, 24)
DAY = dt.timedelta(days=1)
REPLAYED = tuple(PARTITION + number * DAY for number in (1, 2, 3))
"""72 requests a day: three days make the 200 that the row's policy wants."""
ONE_PROCESS = TorchJob(processes_per_node=1)


@dataclass(frozen=True)
class Made:
    """What each step gave."""

    store: Uri
    dataset: DatasetRef
    validations: tuple[ValidationRef, ...]
    candidate: FitRef
    final: FitRef
    evaluation: EvaluationRef
    verdicts: tuple[Verdict, ...]
    package: PackageRef


def features(store: Uri, last: dt.date) -> None:
    """The real lake and views of the row's repo through ``last``; days ahead too, whose schedule is known."""
    calendar, lake = ROW.calendar, ROW.repo.lake(store)
    ahead = last + 2 * DAY
    ingest(IngestSpec(source=ROW.repo.source, calendar=calendar, lake=lake, first=calendar.first, last=ahead))
    start, end = calendar.starts(calendar.first), calendar.ends(last)
    build(feature_plans.build(ROW.repo, store, feature_plans.Hours(start=start, end=end, now=end)))


def made(store: Uri) -> Made:
    """Training set to package, over a store that holds the features."""
    ask = plans.Ask(model=ROW.model, partition=PARTITION, trigger="manual", reason="test")
    raw = validate(checks.raw_days(ROW.repo, store, (PARTITION,), join(store, "validations", "raw")))
    dataset = training_set(plans.training_set(ROW, store, ask, join(store, "datasets", ROW.model)))
    checked = validate(plans.training_set_suite(ROW, dataset, join(store, "validations", "set")))
    key = plans.training_key(ROW, ask, dataset, layer_digest("training"))
    candidate = train(plans.fit(ROW, store, dataset, key, None, ONE_PROCESS))
    assert candidate is not None
    final = train(plans.fit(ROW, store, dataset, key, candidate, ONE_PROCESS))
    assert final is not None
    evaluation = evaluate(plans.evaluate(ROW, candidate, final, None, join(store, "evaluations", ROW.model)))
    evidence = plans.evidence(ask, (raw, checked), candidate, final, evaluation).model_copy(
        update={"slices": evaluated_slices(evaluation), "code": layer_digest("training")}
    )
    said = verdicts(evidence, ROW.gates)
    exported = export(plans.export(ROW, final, join(store, "onnx", ROW.model)))
    packed = package(plans.package(ROW, exported, final, evaluation, said, join(store, "packages", ROW.model)))
    return Made(store, dataset, (raw, checked), candidate, final, evaluation, said, packed)


def store_of(folder: Path) -> Uri:
    """A store below a test's folder."""
    return file_uri(folder / "store")
