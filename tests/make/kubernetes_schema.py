"""Checks manifests against the API's own types: the Kubernetes client's models, and the fields of a TrainJob."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes import client

POD_PATCH: Mapping[str, Any] = {
    **dict.fromkeys(("serviceAccountName", "nodeSelector", "tolerations", "schedulingGates"), None),
    "volumes": "list[V1Volume]",
    "imagePullSecrets": "list[V1LocalObjectReference]",
    "securityContext": "V1PodSecurityContext",
    "affinity": "V1Affinity",
    "containers": [
        {"name": None, "env": None, "volumeMounts": "list[V1VolumeMount]", "securityContext": "V1SecurityContext"}
    ],
}
METADATA: Mapping[str, Any] = {"labels": None, "annotations": None}
PODS: Mapping[str, Any] = {"metadata": METADATA, "spec": POD_PATCH}
PATCH: Mapping[str, Any] = {
    "manager": None,
    "trainingRuntimeSpec": {
        "template": {
            "metadata": METADATA,
            "spec": {
                "replicatedJobs": [{"name": None, "template": {"metadata": METADATA, "spec": {"template": PODS}}}]
            },
        }
    },
}
TRAIN_JOB: Mapping[str, Any] = {
    "apiVersion": None,
    "kind": None,
    "metadata": "V1ObjectMeta",
    "spec": {
        "runtimeRef": {"apiGroup": None, "kind": None, "name": None},
        "suspend": None,
        "activeDeadlineSeconds": None,
        "managedBy": None,
        "trainer": {
            **dict.fromkeys(("image", "command", "args", "numNodes", "numProcPerNode"), None),
            "env": "list[V1EnvVar]",
            "resourcesPerNode": "V1ResourceRequirements",
        },
        "runtimePatches": [PATCH],
    },
}
"""The fields of trainer.kubeflow.org/v1alpha1 (2.2 and later) that a job may write; a text names a Kubernetes type, None a plain value."""


def problems(value: Any, kind: str, path: str = "") -> list[str]:
    """What the Kubernetes type ``kind`` does not know or misses in a manifest."""
    api = client.ApiClient()
    try:
        typed = api._ApiClient__deserialize(api.sanitize_for_serialization(value), kind)
    except (ValueError, TypeError, AttributeError) as error:
        return [f"{path or kind}: {error}"]
    back = api.sanitize_for_serialization(typed)
    return differences(value, back, path or kind)


def differences(ours: Any, theirs: Any, path: str) -> list[str]:
    """Where a manifest lost something on its way through the API's types."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        lost = [f"{path}.{name}: no such field" for name in ours if name not in theirs]
        return lost + [
            line for name in ours if name in theirs for line in differences(ours[name], theirs[name], f"{path}.{name}")
        ]
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        if len(ours) != len(theirs):
            return [f"{path}: {len(ours)} became {len(theirs)}"]
        return [
            line
            for at, pair in enumerate(zip(ours, theirs, strict=True))
            for line in differences(*pair, f"{path}[{at}]")
        ]
    return [] if ours == theirs else [f"{path}: {ours!r} became {theirs!r}"]


def train_job_problems(value: Any, schema: Any = TRAIN_JOB, path: str = "TrainJob") -> list[str]:
    """What a TrainJob's API does not know in a manifest."""
    if isinstance(schema, str):
        return problems(value, schema, path)
    if isinstance(schema, list):
        return [line for at, one in enumerate(value) for line in train_job_problems(one, schema[0], f"{path}[{at}]")]
    if isinstance(schema, Mapping):
        unknown = [f"{path}.{name}: no such field" for name in value if name not in schema]
        known = (name for name in value if name in schema)
        return unknown + [
            line for name in known for line in train_job_problems(value[name], schema[name], f"{path}.{name}")
        ]
    return []
