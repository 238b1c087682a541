"""The provider's pod manager, deciding by the state of one container: whatever logs, sidecars and lost answers do.

The provider's own follows the log stream to its end and then waits for the pod's phase, so that a stream that the kubelet
has rotated away, or a sidecar that stays, holds the task (field reports 1 to 4, 11 to 15).
"""

from __future__ import annotations

import time
from typing import Any

from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import KubernetesApiException, generic_api_retry
from airflow.providers.cncf.kubernetes.utils.container import container_is_completed
from airflow.providers.cncf.kubernetes.utils.pod_manager import PodManager
from kubernetes.client import V1Pod
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

KEY_LABEL = "perennial/key"
CALL_SECONDS = (5, 30)  # to connect, and between two bytes; without it a dropped connection holds the task for ever
LOG_CALL_SECONDS = (2, 5)
LOG_EVERY_SECONDS = 5.0
LOG_BYTES = 1 << 20  # of one read
LOG_TOTAL_BYTES = 16 << 20  # of one pod; the store has what matters: result, progress, failure
ENDED = frozenset({"Succeeded", "Failed"})
TAKEN = 409


class StateManager(PodManager):
    """Creates once, polls once a second, copies logs on the side."""

    _log_until = ""
    _log_bytes = 0

    @generic_api_retry  # type: ignore[untyped-decorator]
    def create_pod(self, pod: V1Pod) -> V1Pod:
        """Creates the pod; one that is there already under its name and key is the same work, and is adopted.

        Raises RuntimeError when the name belongs to other work.
        """
        body = self._client.api_client.sanitize_for_serialization(pod)
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            return self._client.create_namespaced_pod(namespace, body, _request_timeout=CALL_SECONDS)
        except ApiException as error:
            if error.status != TAKEN:
                raise
        found = self.read_pod(pod)
        if (found.metadata.labels or {}).get(KEY_LABEL) != pod.metadata.labels[KEY_LABEL]:
            raise RuntimeError(f"pod {namespace}/{name} exists and is not this work's; delete it and try again")
        self.log.info("Attached to pod %s/%s", namespace, name)
        return found

    @generic_api_retry  # type: ignore[untyped-decorator]
    def read_pod(self, pod: V1Pod) -> V1Pod:
        """The pod as it is now."""
        try:
            return self._client.read_namespaced_pod(
                pod.metadata.name, pod.metadata.namespace, _request_timeout=CALL_SECONDS
            )
        except HTTPError as error:
            raise KubernetesApiException(f"the cluster does not answer: {error}") from error

    def await_container_completion(self, pod: V1Pod, container_name: str, polling_time: float = 1) -> None:
        """Returns once the container has ended or the pod has; copies new log lines meanwhile, when they can be read."""
        next_log = 0.0
        while not _over(self.read_pod(pod), container_name):
            if time.monotonic() >= next_log:
                self.copy_log(pod, container_name)
                next_log = time.monotonic() + LOG_EVERY_SECONDS
            time.sleep(polling_time)
        self.copy_log(pod, container_name)

    def await_pod_completion(self, pod: V1Pod, *_: Any, **__: Any) -> V1Pod:
        """The pod as it is: its container has ended, and no sidecar is waited for."""
        return self.read_pod(pod)

    def copy_log(self, pod: V1Pod, container_name: str) -> None:
        """Writes the lines that came since the last call into the task's log; says so when it cannot, and never raises."""
        if self._log_bytes > LOG_TOTAL_BYTES:
            return
        try:
            answer = self._client.read_namespaced_pod_log(
                pod.metadata.name,
                pod.metadata.namespace,
                container=container_name,
                timestamps=True,
                limit_bytes=LOG_BYTES,
                **({"since_seconds": int(LOG_EVERY_SECONDS * 12)} if self._log_until else {}),
                _request_timeout=LOG_CALL_SECONDS,
                _preload_content=False,  # else the client gives the text of a bytes literal
            )
            text = answer.data.decode(errors="replace")
        except (ApiException, HTTPError) as error:
            self.log.info("the log of %s cannot be read now: %s", pod.metadata.name, getattr(error, "reason", error))
            return
        for line in text.splitlines():
            stamp, _, words = line.partition(" ")
            if stamp > self._log_until:
                self._log_until, self._log_bytes = stamp, self._log_bytes + len(line)
                self.log.info("[%s] %s", container_name, words)
        if self._log_bytes > LOG_TOTAL_BYTES:
            self.log.info("the log is longer than %d MiB; the rest is not copied", LOG_TOTAL_BYTES >> 20)


def _over(pod: V1Pod, container_name: str) -> bool:
    return container_is_completed(pod, container_name) or pod.status.phase in ENDED
