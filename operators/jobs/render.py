"""Renders a TorchJob for a cluster: one pod, an Indexed Job with its Service, or a Kubeflow TrainJob. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from artifacts.refs import Uri
from operators import manifests, torch_job
from operators.jobs import hardware, kueue
from operators.jobs.contract import TorchJob

RACK = "topology.kubernetes.io/rack"
RUNTIME = "torch-distributed"  # the ClusterTrainingRuntime that Kubeflow Trainer installs
TRAINER_CONTAINER = "node"  # the name that its runtimes give to the trainer's container and to its replicated job
NAME = "perennial/job"
PATCHED = (
    "serviceAccountName",
    "volumes",
    "imagePullSecrets",
    "securityContext",
    "nodeSelector",
    "affinity",
    "tolerations",
)
"""What a TrainJob may change of its runtime's pods; the rest of a site's template belongs into the runtime itself."""


@dataclass(frozen=True)
class Place:
    """All that a manifest needs and a job does not know: names, images, the spec, the site's own template."""

    name: str
    namespace: str
    image: str
    spec_uri: Uri
    result_uri: Uri
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    env: Sequence[Mapping[str, Any]] = ()
    template: Mapping[str, Any] | None = None
    rack: str = RACK


def words(job: TorchJob, place: Place) -> tuple[str, ...]:
    """What torchrun runs: the step's door, then the job's own arguments."""
    return (job.entry_point, place.spec_uri, place.result_uri, *job.args)


def one_pod(job: TorchJob, place: Place) -> dict[str, Any]:
    """One node as one pod, the default; ``name`` is the pod's. Raises ValueError for several nodes."""
    command = torch_job.pod_command(job, job.entry_point, place.spec_uri, place.result_uri, args=job.args)
    return _pod(job, place, command, {**place.labels, **kueue.labels(job)})


def indexed_job(job: TorchJob, place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """The headless Service by which the pods find pod 0, and the Indexed Job; the Service is to be created first.

    One failed pod fails the Job, and with it the others: torchrun has restarted what could be restarted. A pod that was
    preempted or drained is replaced, and joins again. With a queue the Job is created suspended, and Kueue starts all
    its pods or none.
    """
    template = _pod(
        job, place, torch_job.node_command(place.name, job, job.max_restarts, words(job, place)), place.labels
    )
    metadata = template.pop("metadata")
    del template["apiVersion"], template["kind"]
    spec = template["spec"] | {"subdomain": place.name}
    labels: dict[str, str] = {**metadata["labels"], NAME: place.name}
    head = {"name": place.name, "namespace": place.namespace}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**head, "labels": dict(labels)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # the agents have to meet before any of them is ready
            "selector": {NAME: place.name},
            "ports": [{"name": "rendezvous", "port": torch_job.PORT}],
        },
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**head, "labels": labels | kueue.labels(job), "annotations": dict(place.annotations)},
        "spec": {
            "completionMode": "Indexed",
            "completions": job.nodes,
            "parallelism": job.nodes,
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(job.deadline.total_seconds()),
            "suspend": bool(job.queue),
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": manifests.CONTAINER, "operator": "NotIn", "values": [0]},
                    },
                ]
            },
            "template": {"metadata": {"labels": labels, "annotations": metadata["annotations"]}, "spec": spec},
        },
    }
    return service, body


def train_job(job: TorchJob, place: Place) -> dict[str, Any]:
    """The same as a TrainJob on Kubeflow's ``torch-distributed`` runtime, which brings Service, agents and gang."""
    pod = _pod(job, place, torch_job.trainer_command(job.max_restarts, words(job, place)), place.labels)
    container = _container(pod)
    labels: dict[str, str] = pod["metadata"]["labels"] | {NAME: place.name}
    mounted: dict[str, Any] = {
        name: container[name] for name in ("volumeMounts", "securityContext") if name in container
    }
    own: dict[str, Any] = {"name": TRAINER_CONTAINER, **mounted}
    patch: dict[str, Any] = {name: pod["spec"][name] for name in PATCHED if name in pod["spec"]}
    pods = {
        "metadata": {"labels": labels, "annotations": pod["metadata"]["annotations"]},
        "spec": {**patch, "containers": [own]},
    }
    replicated = {"name": TRAINER_CONTAINER, "template": {"spec": {"template": pods}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": place.name,
            "namespace": place.namespace,
            "labels": labels | kueue.labels(job),
            "annotations": dict(place.annotations),
        },
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": RUNTIME},
            "suspend": bool(job.queue),
            "activeDeadlineSeconds": int(job.deadline.total_seconds()),
            "trainer": {
                "image": container["image"],
                "command": container["command"],
                "env": container["env"],
                "numNodes": job.nodes,
                "numProcPerNode": job.processes_per_node,
                "resourcesPerNode": container["resources"],
            },
            "runtimePatches": [
                {
                    "manager": "perennial",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated]}}},
                }
            ],
        },
    }


def _pod(job: TorchJob, place: Place, command: Sequence[str], labels: Mapping[str, str]) -> dict[str, Any]:
    variables = [{"name": name, "value": value} for name, value in hardware.environment(job, "pod").items()]
    pod = manifests.pod(
        name=place.name,
        image=job.image or place.image,
        command=command,
        env=[*place.env, *variables],
        namespace=place.namespace,
        labels=labels,
        resources=torch_job.pod_resources(job),
        annotations={**place.annotations, **kueue.pod_annotations(job, place.rack)},
        template=place.template,
    )
    pod["spec"]["activeDeadlineSeconds"] = int(job.deadline.total_seconds())
    return pod


def _container(pod: Mapping[str, Any]) -> dict[str, Any]:
    return next(dict(one) for one in pod["spec"]["containers"] if one["name"] == manifests.CONTAINER)
