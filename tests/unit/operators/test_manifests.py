"""The golden manifests are written anew by ``UPDATE_GOLDEN=1 pytest tests/unit/operators/test_manifests.py``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.refs import sha256
from operators import manifests, torch_job
from operators.jobs import hardware
from tests.make.operators import IMAGE
from training.contract import TorchJob

GOLDEN = Path(__file__).parents[2] / "golden"
KEY = sha256(b"a key")
WORDS = {
    "dag": "retrain__flight_delay",
    "task": "train.evaluation",
    "run": "scheduled__2013-09-01T10:00:00+00:00",
    "map_index": "-1",
}
SETTINGS = {
    "PERENNIAL_STORE": "s3://perennial/store",
    "PERENNIAL_STORES": '[{"type":"s3","name":"lake","bucket":"perennial","access_key":{"env":"LAKE_KEY"},"secret_key":{"env":"LAKE_SECRET"}}]',
    "PERENNIAL_MLFLOW": "postgresql://mlflow:password@db/mlflow",
    "PERENNIAL_ONLINE": "",
}
SITE = {
    "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "training", "perennial/key": "not-the-sites-business"}},
    "spec": {
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}],
        "containers": [
            {
                "name": "base",
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                "env": [
                    {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
                    {"name": "PERENNIAL_STORE", "value": "s3://wrong"},
                ],
                "resources": {"limits": {"memory": "16Gi"}},
            }
        ],
    },
}


def rendered(**changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "name": manifests.pod_name("training.evaluate", KEY, 1),
        "image": IMAGE,
        "command": ("python", "-m", "training.evaluate", "s3://b/spec.json", "s3://b/result.json"),
        "env": manifests.step_environment(SETTINGS),
        "namespace": "perennial",
        "labels": manifests.labels("training", KEY, WORDS),
        "annotations": {"perennial/key": KEY},
    }
    return manifests.pod(**{**arguments, **changes})


def distributed() -> dict[str, Any]:
    job = TorchJob(processes_per_node=4, gpus_per_process=1, cpus_per_process=2)
    threads = [{"name": name, "value": value} for name, value in hardware.environment(job, "pod").items()]
    return rendered(
        name=manifests.pod_name("training.train", KEY, 2),
        command=torch_job.pod_command(job, "training.train", "s3://b/spec.json", "s3://b/result.json"),
        env=[*manifests.step_environment(SETTINGS), *threads],
        resources=torch_job.pod_resources(job),
        template=SITE,
    )


@pytest.mark.parametrize(("name", "make"), [("pod_plain", rendered), ("pod_distributed_site", distributed)])
def test_the_manifest_is_the_golden_one(name: str, make: Any) -> None:
    path = GOLDEN / f"{name}.yaml"
    text = yaml.safe_dump(make(), sort_keys=True)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text()


def test_the_site_is_under_ours_and_over_the_defaults() -> None:
    spec = distributed()["spec"]
    (container,) = spec["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert env["PERENNIAL_STORE"] == "s3://perennial/store"
    assert env["HTTPS_PROXY"] == "http://proxy:3128"
    assert container["resources"]["limits"]["memory"] == "8192Mi"
    assert spec["tolerations"] == SITE["spec"]["tolerations"]
    assert rendered(template=SITE)["spec"]["containers"][0]["resources"]["limits"]["memory"] == "16Gi"


def test_no_secret_is_in_a_manifest() -> None:
    assert "password" not in yaml.safe_dump(distributed())
    (store, _, mlflow) = manifests.step_environment(SETTINGS)
    assert store["value"] == "s3://perennial/store"
    assert mlflow["valueFrom"] == {"secretKeyRef": {"name": manifests.SECRET, "key": "PERENNIAL_MLFLOW"}}


def test_a_site_puts_its_own_volume_in_the_place_of_the_cache() -> None:
    path = {"name": manifests.CACHE_VOLUME, "hostPath": {"path": "/var/cache/perennial"}}
    spec = rendered(template={"spec": {"volumes": [path]}})["spec"]
    assert spec["volumes"][0] == path  # a volume of two kinds would be refused
    assert spec["containers"][0]["volumeMounts"][0] == {
        "name": manifests.CACHE_VOLUME,
        "mountPath": manifests.CACHE_FOLDER,
    }


def test_ours_wins_in_command_labels_and_security_and_the_site_elsewhere() -> None:
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    base = {
        "name": manifests.CONTAINER,
        "command": ["sh"],
        "args": ["-c", "true"],
        "image": "other",
        "env": [proxy],
        "securityContext": {"privileged": True, "runAsUser": 0, "capabilities": {"add": ["SYS_ADMIN"]}},
    }
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    ca = {"name": "ca", "configMap": {"name": "site-ca"}}
    site = {
        "metadata": {"labels": {"perennial/key": "stolen", "team": "maps"}},
        "spec": {
            "securityContext": {"runAsUser": 0, "runAsNonRoot": False, "supplementalGroups": [7]},
            "restartPolicy": "Always",
            "containers": [base],
            "tolerations": [toleration],
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [ca],
        },
    }
    made = rendered(template=site)
    spec, labels, (container,) = made["spec"], made["metadata"]["labels"], made["spec"]["containers"]
    assert container["command"][:3] == ["python", "-m", "training.evaluate"]
    assert "args" not in container
    assert container["image"] == IMAGE
    assert container["securityContext"] == dict(manifests.CONTAINER_SECURITY)
    assert spec["securityContext"] == {**manifests.POD_SECURITY, "supplementalGroups": [7]}
    assert spec["restartPolicy"] == "Never"
    assert (labels["perennial/key"], labels["team"]) == (
        manifests.labels("training", KEY, WORDS)["perennial/key"],
        "maps",
    )
    assert spec["tolerations"] == [toleration]
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert ca in spec["volumes"]
    assert proxy in container["env"]


def test_an_image_without_a_digest_is_refused() -> None:
    with pytest.raises(ValueError, match="has no digest"):
        rendered(image="registry.example/perennial-training:latest")


def test_defaults_are_not_shared_between_pods() -> None:
    first = rendered()
    first["spec"]["containers"][0]["resources"]["limits"]["memory"] = "1Ki"
    assert rendered()["spec"]["containers"][0]["resources"]["limits"]["memory"] == "4Gi"


@settings(deadline=None)  # a busy machine is no fault
@given(st.text(max_size=300))
def test_every_label_is_valid(text: str) -> None:
    assert re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", manifests.label(text))
    assert len(manifests.label(text)) <= 63


@settings(deadline=None)  # a busy machine is no fault
@given(st.text(max_size=100), st.text(max_size=100))
def test_different_long_texts_have_different_labels(one: str, two: str) -> None:
    assert (manifests.label("x" * 63 + one) == manifests.label("x" * 63 + two)) == (one == two)


@settings(deadline=None)  # a busy machine is no fault
@given(st.text(alphabet="ab_.9", min_size=1, max_size=90), st.integers(1, 10**6))
def test_every_name_is_valid_and_tells_key_and_attempt(module: str, attempt: int) -> None:
    name = manifests.pod_name(module, KEY, attempt)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= 63
    assert name.endswith(f"-a{attempt}")


def _ended(code: int, why: str, **status: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": why}}
    sidecar = {"name": "istio-proxy", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    return {
        "spec": {"nodeName": "gpu-3"},
        "status": {"phase": "Failed", "containerStatuses": [sidecar, {"name": "base", "state": state}], **status},
    }


@pytest.mark.parametrize(
    ("pod", "code", "says"),
    [
        (_ended(137, "OOMKilled"), -9, "OOMKilled (exit 137 on gpu-3)"),
        (_ended(65, "Error"), 65, "no reason given (exit 65 on gpu-3)"),
        (_ended(137, "Error", reason="Evicted", message="low on memory"), -9, "Evicted: low on memory"),
        ({"status": {"phase": "Failed", "reason": "Preempting"}}, 1, "Preempting (exit 1)"),
        ({}, 1, "no reason given (exit 1)"),
    ],
)
def test_the_death_of_a_pod_is_told_by_its_container_first(pod: dict[str, Any], code: int, says: str) -> None:
    found, text = manifests.death(pod)
    assert found == code
    assert says in text
