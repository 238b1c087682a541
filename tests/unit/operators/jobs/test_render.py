"""The golden manifests are written anew by ``UPDATE_GOLDEN=1 pytest tests/unit/operators/jobs/test_render.py``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from operators.jobs import render
from tests.make.jobs import gpu_job, place, torch_job
from tests.make.kubernetes_schema import problems, train_job_problems

GOLDEN = Path(__file__).parents[3] / "golden"
SITE = {
    "spec": {
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "containers": [{"name": "base", "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}],  # noqa: S108
    }
}


def one_node() -> dict[str, Any]:
    job = gpu_job(nodes=1, hardware="nvlink", gpu_topology="nvlink")
    return render.one_pod(job, place(template=SITE))


def indexed() -> dict[str, Any]:
    return render.indexed_job(gpu_job(), place(template=SITE))[1]


def service() -> dict[str, Any]:
    return render.indexed_job(gpu_job(), place(template=SITE))[0]


def train_job() -> dict[str, Any]:
    return render.train_job(gpu_job(), place(template=SITE))


@pytest.mark.parametrize(
    ("name", "make"),
    [("job_one_pod", one_node), ("job_indexed", indexed), ("job_service", service), ("job_trainjob", train_job)],
)
def test_the_manifest_is_the_golden_one(name: str, make: Any) -> None:
    path = GOLDEN / f"{name}.yaml"
    text = yaml.safe_dump(make(), sort_keys=True)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text()


def test_every_manifest_is_what_the_api_knows() -> None:
    assert problems(one_node(), "V1Pod") == []
    assert problems(indexed(), "V1Job") == []
    assert problems(service(), "V1Service") == []
    assert train_job_problems(train_job()) == []


def test_the_schema_check_finds_a_field_that_no_api_has() -> None:
    job = indexed()
    job["spec"]["completionmode"] = "Indexed"
    job["spec"]["template"]["spec"]["containers"][0]["envs"] = []
    assert problems(job, "V1Job") == [
        "V1Job.spec.completionmode: no such field",
        "V1Job.spec.template.spec.containers[0].envs: no such field",
    ]
    del job["spec"]["template"]
    assert "template" in problems(job, "V1Job")[0]
    odd = train_job()
    odd["spec"]["trainer"]["numGpus"] = 8
    assert train_job_problems(odd) == ["TrainJob.spec.trainer.numGpus: no such field"]


@pytest.mark.covers("field-reports 90")
def test_a_queued_job_starts_whole_or_not_at_all() -> None:
    job = indexed()
    assert job["spec"]["suspend"] is True  # nothing runs before Kueue has room for all of it
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "daily"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] == "86400"
    assert job["spec"]["parallelism"] == job["spec"]["completions"] == 2
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert any("join_timeout=900" in word for word in command)  # and no agent waits for the others for ever
    assert train_job()["spec"]["suspend"] is True
    assert (
        render.indexed_job(gpu_job(queue="", priority="", gpu_topology="any"), place())[1]["spec"]["suspend"] is False
    )


@pytest.mark.covers("field-reports 85")
def test_one_failed_rank_stops_the_set_and_a_preempted_pod_is_replaced() -> None:
    spec = indexed()["spec"]
    assert spec["backoffLimit"] == 0
    ignore, fail = spec["podFailurePolicy"]["rules"]
    assert ignore == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert fail["action"] == "FailJob"
    assert fail["onExitCodes"] == {"containerName": "base", "operator": "NotIn", "values": [0]}
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_the_agents_meet_at_the_pod_that_the_service_resolves() -> None:
    job, headless = indexed(), service()
    pod = job["spec"]["template"]
    command = pod["spec"]["containers"][0]["command"]
    name = job["metadata"]["name"]
    assert f"--rdzv-endpoint={name}-0.{name}:29400" in command
    assert pod["spec"]["subdomain"] == headless["metadata"]["name"] == name
    assert headless["spec"]["clusterIP"] == "None"
    selector = headless["spec"]["selector"]
    assert selector.items() <= pod["metadata"]["labels"].items()
    assert len(f"{name}-15") <= 63  # the host name of a pod


@pytest.mark.parametrize(
    ("topology", "nodes", "hardware", "asked"),
    [
        ("any", 2, "infiniband", {}),
        ("same-node", 1, "infiniband", {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}),
        ("nvlink", 1, "nvlink", {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}),
        ("nvlink", 2, "nvlink", {"kueue.x-k8s.io/podset-required-topology": "nvidia.com/gpu.clique"}),
        ("same-rack", 2, "ethernet", {"kueue.x-k8s.io/podset-required-topology": "site/rack"}),
    ],
)
def test_the_topology_is_asked_of_kueue_on_the_pods(
    topology: str, nodes: int, hardware: str, asked: dict[str, str]
) -> None:
    job = gpu_job(gpu_topology=topology, nodes=nodes, hardware=hardware)
    pods = render.indexed_job(job, place(rack="site/rack"))[1]["spec"]["template"]["metadata"]["annotations"]
    assert {name: value for name, value in pods.items() if name.startswith("kueue")} == asked
    patch = render.train_job(job, place(rack="site/rack"))["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]
    pods = patch["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"]
    assert {name: value for name, value in pods.items() if name.startswith("kueue")} == asked


def test_a_jobs_own_image_arguments_and_environment_arrive() -> None:
    image = f"registry.example/own@sha256:{'1' * 64}"
    job = torch_job(image=image, args=("--profile",), environment={"HF_HOME": "/cache"})
    (container,) = render.one_pod(job, place())["spec"]["containers"]
    assert container["image"] == image
    assert container["command"][-3:] == ["s3://b/spec.json", "s3://b/result.json", "--profile"]
    assert {"name": "HF_HOME", "value": "/cache"} in container["env"]
