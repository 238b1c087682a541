"""The few calls to a cluster that a job needs; the one module of jobs that knows the Kubernetes client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from operators.jobs.render import NAME

NOT_FOUND, TAKEN = 404, 409
GROUP, VERSION, PLURAL = "trainer.kubeflow.org", "v1alpha1", "trainjobs"


class Cluster(Protocol):
    """What a job's operator asks of a cluster."""

    def create(self, manifest: Mapping[str, Any]) -> bool:
        """Creates an object; False when one of that name is there already, which is then ours."""

    def job(self, kind: str, name: str) -> dict[str, Any] | None:
        """A Job or TrainJob; None when it is gone."""

    def pods(self, name: str) -> list[dict[str, Any]]:
        """The pods of a job."""

    def events(self, name: str) -> list[dict[str, Any]]:
        """What the cluster has told about a job and its pods, oldest first."""

    def delete(self, kind: str, name: str) -> None:
        """Deletes a Job or TrainJob with its pods, and a Job's Service; gone is gone."""


class KubernetesCluster:
    """A namespace of a real cluster. The provider's hook is not used to create: it tries five times over 30 s at a 409."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._core, self._batch = client.CoreV1Api(api), client.BatchV1Api(api)
        self._custom = client.CustomObjectsApi(api)

    def create(self, manifest: Mapping[str, Any]) -> bool:
        """Creates an object; False when one of that name is there already, which is then ours."""
        make: dict[str, Callable[[], Any]] = {
            "Service": lambda: self._core.create_namespaced_service(self._namespace, dict(manifest)),
            "Job": lambda: self._batch.create_namespaced_job(self._namespace, dict(manifest)),
            "TrainJob": lambda: self._custom.create_namespaced_custom_object(
                GROUP, VERSION, self._namespace, PLURAL, dict(manifest)
            ),
        }
        try:
            make[manifest["kind"]]()
        except ApiException as error:
            if error.status == TAKEN:
                return False
            raise
        return True

    def job(self, kind: str, name: str) -> dict[str, Any] | None:
        """A Job or TrainJob; None when it is gone."""
        try:
            if kind == "TrainJob":
                return dict(self._custom.get_namespaced_custom_object(GROUP, VERSION, self._namespace, PLURAL, name))
            return self._plain(self._batch.read_namespaced_job(name, self._namespace))
        except ApiException as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def pods(self, name: str) -> list[dict[str, Any]]:
        """The pods of a job."""
        found = self._core.list_namespaced_pod(self._namespace, label_selector=f"{NAME}={name}")
        return [self._plain(pod) for pod in found.items]

    def events(self, name: str) -> list[dict[str, Any]]:
        """What the cluster has told about a job and its pods, oldest first."""
        found = [self._plain(one) for one in self._core.list_namespaced_event(self._namespace).items]
        ours = (one for one in found if str((one.get("involvedObject") or {}).get("name", "")).startswith(name))
        return sorted(ours, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))

    def delete(self, kind: str, name: str) -> None:
        """Deletes a Job or TrainJob with its pods, and a Job's Service; gone is gone."""
        options = {"propagation_policy": "Foreground"}
        calls: list[Callable[[], Any]] = (
            [
                lambda: self._custom.delete_namespaced_custom_object(
                    GROUP, VERSION, self._namespace, PLURAL, name, **options
                )
            ]
            if kind == "TrainJob"
            else [
                lambda: self._batch.delete_namespaced_job(name, self._namespace, **options),
                lambda: self._core.delete_namespaced_service(name, self._namespace),
            ]
        )
        for call in calls:
            try:
                call()
            except ApiException as error:
                if error.status != NOT_FOUND:
                    raise

    def _plain(self, value: Any) -> dict[str, Any]:
        return dict(self._api.sanitize_for_serialization(value))
