"""Builders for jobs: declarations, and the place that a manifest is rendered for."""

from __future__ import annotations

from typing import Any

from artifacts.refs import sha256
from operators import manifests
from operators.jobs.contract import TorchJob
from operators.jobs.render import Place
from tests.make.operators import IMAGE

KEY = sha256(b"a training key")


def torch_job(**changes: Any) -> TorchJob:
    """A job of two processors, of the flights team."""
    return TorchJob(**{"model": "flight_delay", "owner": "flights-team", "tenant": "flights", **changes})


def gpu_job(**changes: Any) -> TorchJob:
    """A job of two nodes with eight GPUs each, in a queue."""
    gpus = {"nodes": 2, "processes_per_node": 8, "gpus_per_process": 1, "cpus_per_process": 12, "memory_mib": 65_536}
    queued = {"hardware": "infiniband", "queue": "training", "priority": "daily", "gpu_topology": "same-rack"}
    return torch_job(**{**gpus, **queued, **changes})


def place(**changes: Any) -> Place:
    """Where a manifest is for."""
    arguments: dict[str, Any] = {
        "name": manifests.pod_name("training.train", KEY, 2),
        "namespace": "perennial",
        "image": IMAGE,
        "spec_uri": "s3://b/spec.json",
        "result_uri": "s3://b/result.json",
        "labels": manifests.labels("training", KEY, {"dag": "retrain__flight_delay", "task": "fit_final", "run": "r1"}),
        "annotations": {"perennial/key": KEY},
        "env": manifests.step_environment({"PERENNIAL_STORE": "s3://perennial/store"}),
    }
    return Place(**{**arguments, **changes})
