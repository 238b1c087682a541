"""The cluster's objects as kustomize renders them: valid for two minors, pinned, confined, bounded, probed, and whole."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from artifacts.settings import ROOT
from operators import manifests
from operators.tasks import sweep

OVERLAYS = sorted((ROOT / "docker" / "kubernetes" / "overlays").iterdir())
MINORS = ("1.36", "1.37")
SECRETS = {manifests.SECRET, "perennial-gateway"}  # made by hand or by an operator of secrets, never in a file here

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders the files")


@pytest.fixture(scope="module", params=OVERLAYS, ids=lambda path: path.name)
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """What an overlay renders to."""
    folder: Path = request.param
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def containers(objects: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for one in of(objects, "Deployment").values():
        spec = one["spec"]["template"]["spec"]
        for container in (*spec.get("initContainers", []), *spec["containers"]):
            yield spec, container


def texts(value: Any, field: str) -> Iterator[Any]:
    """Every value of a field, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == field:
                yield inner
            yield from texts(inner, field)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, field)


@pytest.mark.parametrize("minor", MINORS)
def test_every_object_is_valid_for_the_minor(objects: list[dict[str, Any]], minor: str) -> None:
    assert objects
    for one in objects:
        kubernetes_validate.validate(one, minor, strict=True)


def test_an_object_with_a_field_too_many_is_not_valid() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [], "hostPat": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, MINORS[0], strict=True)


def test_every_image_is_pinned_by_digest(objects: list[dict[str, Any]]) -> None:
    images = [container["image"] for _, container in containers(objects)]
    assert images
    assert all("@sha256:" in image for image in images)


def test_no_container_is_root_or_may_become_it_or_write_its_image(objects: list[dict[str, Any]]) -> None:
    for spec, container in containers(objects):
        assert spec["securityContext"] == dict(manifests.POD_SECURITY)
        assert container["securityContext"] == dict(manifests.CONTAINER_SECURITY)


def test_every_container_has_requests_limits_and_probes(objects: list[dict[str, Any]]) -> None:
    for _, container in containers(objects):
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
        ports = {port["name"] for port in container["ports"]}
        assert container["readinessProbe"]["httpGet"]["port"] in ports
        assert container["livenessProbe"]["httpGet"]["port"] in ports


def test_no_host_is_reached_into(objects: list[dict[str, Any]]) -> None:
    for field in ("hostPath", "hostNetwork", "hostPID", "hostIPC", "hostPort", "privileged"):
        assert not list(texts(objects, field)), field


def test_every_reference_has_its_object_and_no_secret_is_in_a_file(objects: list[dict[str, Any]]) -> None:
    secrets = {one["name"] for field in ("secretKeyRef", "secretRef") for one in texts(objects, field)}
    assert secrets | set(texts(objects, "secretName")) == SECRETS
    assert set(texts(objects, "claimName")) <= of(objects, "PersistentVolumeClaim").keys()
    assert set(texts(of(objects, "Deployment"), "serviceAccountName")) <= of(objects, "ServiceAccount").keys()
    assert of(objects, "Secret") == {}
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in of(objects, "Deployment").values()]
    for service in of(objects, "Service").values():
        assert any(service["spec"]["selector"].items() <= found.items() for found in labels)


def test_the_worker_may_do_what_it_does_in_its_namespace_and_nothing_more(objects: list[dict[str, Any]]) -> None:
    assert of(objects, "ClusterRole") == of(objects, "ClusterRoleBinding") == {}
    (role,) = of(objects, "Role").values()
    may = {(what, verb) for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}
    assert {("pods", verb) for verb in ("create", "get", "list", "patch", "delete")} <= may
    assert {("pods/log", "get"), ("events", "list")} <= may
    assert not {what for what, _ in may} & {"secrets", "pods/exec", "roles", "rolebindings", "serviceaccounts", "*"}
    assert "*" not in {verb for _, verb in may}
    (binding,) = of(objects, "RoleBinding").values()
    assert [one["name"] for one in binding["subjects"]] == ["perennial-worker"]


def test_steps_and_servers_get_no_token_of_the_cluster(objects: list[dict[str, Any]]) -> None:
    accounts = of(objects, "ServiceAccount")
    assert {name for name, one in accounts.items() if one["automountServiceAccountToken"]} == {"perennial-worker"}
    assert all(spec["automountServiceAccountToken"] is False for spec, _ in containers(objects))


def test_nothing_comes_in_unless_a_policy_names_it(objects: list[dict[str, Any]]) -> None:
    policies = of(objects, "NetworkPolicy")
    assert policies["nothing-comes-in"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    triton = policies["gateway-and-steps-to-triton"]["spec"]["ingress"]
    assert all(rule["from"] for rule in triton)


def test_a_budget_never_holds_a_drain_for_ever(objects: list[dict[str, Any]]) -> None:
    for name, budget in of(objects, "PodDisruptionBudget").items():
        assert budget["spec"]["minAvailable"] < of(objects, "Deployment")[name]["spec"]["replicas"]


def test_the_sweep_finds_the_pods_that_the_manifests_label() -> None:
    wanted = dict(term.split("=") for term in sweep.reaper.SELECTOR.split(","))
    made = manifests.labels("training", "sha256:" + "0" * 64, {})
    assert made["app.kubernetes.io/name"] == wanted["app.kubernetes.io/name"]
