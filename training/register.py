"""Registers a packaged version in MLflow: one experiment per model, one run and one version per training key.

``python -m training.register doctor [MODEL ...]`` says where MLflow and the routing records do not agree.
"""

from __future__ import annotations

import math
import sys

from artifacts.refs import Ref
from artifacts.step import DataFault, progress, step
from training.contract import FitRef, RegisterSpec, VersionRef
from training.doctor import doctor
from training.measures import DECIDING, GUARD, Measured
from training.mlflow_store import PACKAGE_DIGEST, PACKAGE_URI, TRAINING_KEY, Registry, Version

PARTITION = "partition"


def register(spec: RegisterSpec) -> VersionRef:
    """The version of the spec's training key: the first call makes it, every later one finds it.

    ``created_at`` is MLflow's own time of creation, so it is the same in every call. A version that exists keeps the
    package that it was registered with; the reference says which.
    """
    if problems := inconsistent(spec):
        raise DataFault(problems)
    registry = Registry(spec.tracking_uri)
    key = spec.final.training_key
    if (known := registry.by_training_key(spec.model, key)) is not None:
        return reference(spec, known)
    progress(0.3, "writing the run")
    run_id = registry.run(spec.model, key, {"mlflow.runName": f"{spec.partition}", **tags(spec)})
    registry.log(run_id, params(spec), metrics(spec), tags(spec))
    registry.attach(run_id, "verdicts.json", [verdict.model_dump(mode="json") for verdict in spec.verdicts])
    registry.attach(run_id, "evaluation.json", spec.evaluation.model_dump(mode="json"))
    registry.finish(run_id)
    progress(0.8, "registering the version")
    return reference(spec, registry.create(spec.model, source(spec), run_id, tags(spec)))


def inconsistent(spec: RegisterSpec) -> list[str]:
    """Where the parts do not belong to one version."""
    keys = {spec.candidate.training_key, spec.final.training_key, spec.evaluation.training_key}
    checks = {
        f"training keys differ: {sorted(keys)}": len(keys) != 1,
        f"candidate.fit is '{spec.candidate.fit}', final.fit is '{spec.final.fit}'": (
            spec.candidate.fit,
            spec.final.fit,
        )
        != ("evaluation", "final"),
        "the fits are of another model": {spec.candidate.model, spec.final.model} != {spec.model},
    }
    return [f"register: {text}; pass the references of one version" for text, wrong in checks.items() if wrong]


def source(spec: RegisterSpec) -> str:
    """What MLflow keeps as the version's source. A server refuses file:// here, and takes a scheme it does not know."""
    return f"perennial://{spec.model}/{spec.package.digest.removeprefix('sha256:')}"


def tags(spec: RegisterSpec) -> dict[str, str]:
    """Digests and verdicts, on the run and on the version alike."""
    verdicts = {f"gate.{verdict.gate}": f"{verdict.status}: {verdict.reason}"[:500] for verdict in spec.verdicts}
    return {
        TRAINING_KEY: spec.final.training_key,
        PACKAGE_DIGEST: spec.package.digest,
        PACKAGE_URI: spec.package.uri,
        PARTITION: str(spec.partition),
        "onnx_digest": spec.onnx_digest,
        "dataset_digest": spec.final.dataset.digest,
        "dataset_key": spec.final.dataset.key,
        "candidate_fit_digest": spec.candidate.digest,
        "final_fit_digest": spec.final.digest,
        "evaluation_digest": spec.evaluation.digest,
        "trigger": spec.trigger,
        **verdicts,
    }


def params(spec: RegisterSpec) -> dict[str, object]:
    """The recipe, and what the two fits were given."""
    found: dict[str, object] = {**spec.final.network.model_dump(mode="json"), "seed": spec.final.seed}
    for name, fit in (("evaluation", spec.candidate), ("final", spec.final)):
        found |= {f"{name}_epochs": fit.epochs, f"{name}_rows": fit.rows, f"{name}_train_last": fit.train_last}
    return found | {"test_first": spec.evaluation.test_first, "test_last": spec.evaluation.test_last}


def metrics(spec: RegisterSpec) -> dict[str, float]:
    """The finite figures of both fits and of the evaluation."""
    found = {**_fit("evaluation", spec.candidate), **_fit("final", spec.final)}
    evaluation = spec.evaluation
    parts = {
        "candidate": evaluation.candidate,
        "final": evaluation.final,
        "base_rate": evaluation.base_rate,
        "boosting": evaluation.boosting,
        "champion": evaluation.champion,
    }
    for name, scores in parts.items():
        found |= _scores(f"test_{name}", scores)
    gains = ((DECIDING[evaluation.task].field, evaluation.gain), (GUARD[evaluation.task].field, evaluation.guard_gain))
    for metric, gain in gains:
        if gain is not None:
            name = f"gain_{metric}"
            found |= {name: gain.mean, f"{name}_lower": gain.lower, f"{name}_upper": gain.upper}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _fit(name: str, fit: FitRef) -> dict[str, float]:
    return {
        f"{name}_loss_first": fit.loss_first,
        f"{name}_loss_last": fit.loss_last,
        f"{name}_grad_norm_max": fit.grad_norm_max,
        f"{name}_seconds": fit.seconds,
    }


def _scores(name: str, scores: Measured | None) -> dict[str, float]:
    return {} if scores is None else {f"{name}_{key}": float(value) for key, value in scores.model_dump().items()}


def reference(spec: RegisterSpec, found: Version) -> VersionRef:
    """The reference of a registered version, from what MLflow holds; DataFault when its tags were removed."""
    missing = [tag for tag in (PACKAGE_URI, PACKAGE_DIGEST, PARTITION) if tag not in found.tags]
    if missing:
        raise DataFault([
            f"{spec.tracking_uri}: version {found.number} of '{spec.model}' has no tag '{tag}'; it was removed by hand, "
            "restore it"
            for tag in missing
        ])
    return VersionRef.model_validate({
        "model": spec.model,
        "version": found.number,
        "run_id": found.run_id,
        "training_key": spec.final.training_key,
        "package": Ref(uri=found.tags[PACKAGE_URI], digest=found.tags[PACKAGE_DIGEST]),
        "partition": found.tags[PARTITION],
        "created_at": found.created_at,
    })


if __name__ == "__main__":
    if sys.argv[1:2] == ["doctor"]:
        sys.exit(doctor(sys.argv[2:]))
    sys.exit(step(register, RegisterSpec))
