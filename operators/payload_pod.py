"""Runs a step as a Kubernetes pod; imported only when ``Platform.runner`` is ``pod``, since the provider takes seconds."""

from __future__ import annotations

import time
from typing import Any

import yaml  # type: ignore[import-untyped]  # its stubs are no dependency of ours
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from kubernetes.client.exceptions import ApiException
from pydantic import BaseModel, ValidationError

from artifacts.settings import ROOT
from artifacts.step import failure_of, failure_uri, progress_uri
from artifacts.store import read_bytes, remove
from operators import manifests
from operators.jobs import local, render
from operators.jobs.keeper import Keeper
from operators.jobs.utilisation import Policy
from operators.ledger import Attempt, ledger
from operators.payload import accounts, planned, task_words
from operators.process import StepRefused, verdict
from operators.settings import platform
from operators.steps import PlannedStep, StepCall, finished, write_plan

POD_START_SECONDS = 900  # decisions.md 4.9: PodsReady 15 min
TWIN_POLL_SECONDS = 10.0
WHO = ("dag", "task", "run", "map_index")


class PayloadPodOperator(KubernetesPodOperator):
    """Runs a step in a pod of its image; the result travels through the store, never through an XCom sidecar.

    :param call: the step; its functions run in the worker.
    :param inputs: arguments of ``call.spec`` (templated).
    """

    template_fields = (*KubernetesPodOperator.template_fields, "inputs")

    def __init__(self, *, call: StepCall, inputs: dict[str, Any] | None = None, **arguments: Any) -> None:
        ours = {
            "kubernetes_conn_id": None,  # in the cluster, or KUBECONFIG: no connection has to exist
            "random_name_suffix": False,  # the name comes from the key and the attempt
            "do_xcom_push": False,
            "durable": True,
            "on_finish_action": "delete_succeeded_pod",  # a failed one is kept to be looked at; the next has another name
            "startup_timeout_seconds": POD_START_SECONDS,
            "schedule_timeout_seconds": POD_START_SECONDS,
            "termination_message_policy": "FallbackToLogsOnError",
            "log_pod_spec_on_failure": False,
        }
        super().__init__(**{**ours, **arguments})
        self.call = call
        self.inputs = inputs if inputs is not None else {}
        self._step: PlannedStep | None = None
        self._attempt = 0
        self._keeper: Keeper | None = None

    def execute(self, context: Context) -> dict[str, str]:
        """Plans the step; reuses its result, attaches to its pod, or starts the next attempt's pod."""
        step = self._step = planned(self.call, self.inputs)
        words = task_words(context)
        mine = self._open_attempt(step, words)
        if mine is not None and self._result(step) is not None:  # its pod ended well while no worker looked
            ledger().finish_attempt(step.key, mine, "done", {"reason": "found after the worker was lost"})
            self._open(step, mine, words)
            self._close("done", "found after the worker was lost")
            return step.xcom()
        if mine is None and finished(step) is not None:
            self.log.info("%s: reused %s", step.module, step.result_uri)
            return step.xcom()
        self._attempt = mine or self._begin(step, words)
        write_plan(step, self._attempt)  # also for an attempt of one's own: its worker may have been lost before this
        self._open(step, self._attempt, words)
        self.render(step, words)
        try:
            outcome, reason = "done", ""
            self._admit()
            self._run(step, context)
        except BaseException as error:
            outcome, reason = "refused" if isinstance(error, AirflowFailException) else "failed", str(error)
            raise
        finally:
            ledger().finish_attempt(step.key, self._attempt, outcome, {"reason": reason.partition("\n")[0]})
            self._close(outcome, reason)
        return step.xcom()

    def _open(self, step: PlannedStep, attempt: int, words: dict[str, str]) -> None:
        """Opens the books of a distributed step."""
        if step.job is not None:
            self._keeper = local.keeper(step, attempt, ledger(), words, accounts(), Policy())

    def _admit(self) -> None:
        """Waits for the tenant's budget; an adopted pod has been admitted before."""
        if self._keeper is None or self._keeper.job.state not in {"VALIDATED", "QUEUED"}:
            return
        while (found := self._keeper.admit()).verdict == "queue":
            self.log.info("queued: %s", found.reason)
            time.sleep(TWIN_POLL_SECONDS)
        if found.verdict == "never":
            raise AirflowFailException(f"Q101 {found.reason}")

    def _close(self, outcome: str, reason: str) -> None:
        if self._keeper is None or self._keeper.job.over or self._step is None:
            return
        pod = self.client.api_client.sanitize_for_serialization(self.remote_pod) if self.remote_pod else {}
        local.close_pod(self._keeper, pod, outcome, reason, failure_of(self._step.result_uri))

    def render(self, step: PlannedStep, words: dict[str, str]) -> None:
        """Sets name and manifest of the pod that stands for this attempt."""
        place = platform()
        job = self._keeper.job.declared if self._keeper else None
        python = ("python", "-m", step.module, step.spec_uri, step.result_uri)
        settings = {
            "PERENNIAL_STORE": place.store,
            "PERENNIAL_STORES": place.stores_json,
            "PERENNIAL_MLFLOW": place.mlflow,
            "PERENNIAL_ONLINE": place.online,
        }
        template = yaml.safe_load((ROOT / place.pod_template).read_text()) if place.pod_template else None
        self.name = manifests.pod_name(step.module, step.key, self._attempt)
        self.namespace = place.namespace
        common: dict[str, Any] = {
            "name": self.name,
            "image": getattr(place, f"{step.image}_image"),
            "env": manifests.step_environment(settings),
            "namespace": place.namespace,
            "labels": manifests.labels(step.image, step.key, words),
            "annotations": {"perennial/key": step.key},
            "template": template,
        }
        if job:
            where = render.Place(**common, spec_uri=step.spec_uri, result_uri=step.result_uri, rack=place.rack_label)
            self.pod_template_dict = render.one_pod(job, where)
        else:
            self.pod_template_dict = manifests.pod(**common, command=python)

    def _open_attempt(self, step: PlannedStep, words: dict[str, str]) -> int | None:
        """The number of this very task's attempt that nobody has finished, such as one whose worker was lost.

        While another task's attempt at the same key is open, waits for it: that task has the pod.
        """
        until = time.monotonic() + manifests.DEADLINE_SECONDS
        while (newest := self._newest(step)) is not None and newest.outcome is None:
            if all(newest.begun.body.get(name) == words[name] for name in WHO):
                return newest.attempt
            if finished(step) is not None or time.monotonic() > until:
                return None
            self.log.info(
                "%s: the same work is running for %s; waiting for it", step.module, newest.begun.body.get("run")
            )
            time.sleep(TWIN_POLL_SECONDS)
        return None

    @staticmethod
    def _newest(step: PlannedStep) -> Attempt | None:
        attempts = ledger().attempts(step.key)
        return attempts[-1] if attempts else None

    @staticmethod
    def _begin(step: PlannedStep, words: dict[str, str]) -> int:
        for stale in (step.result_uri, failure_uri(step.result_uri), progress_uri(step.result_uri)):
            remove(stale)
        return ledger().begin_attempt(step.key, {"module": step.module, "folder": step.folder, **words})

    def _run(self, step: PlannedStep, context: Context) -> None:
        """The pod to its end. A result in the store is success, whatever the cluster says of the pod afterwards."""
        trouble: Exception | None = None
        try:
            super().execute(context)
        except (AirflowException, ApiException) as error:
            trouble = error
        if self._result(step) is not None:
            return
        try:
            raise verdict(*self._death(), failure_of(step.result_uri), distributed=step.job is not None) from trouble
        except StepRefused as error:
            raise AirflowFailException(str(error)) from error

    @staticmethod
    def _result(step: PlannedStep) -> BaseModel | None:
        try:
            return step.result_type.model_validate_json(read_bytes(step.result_uri))
        except (FileNotFoundError, ValidationError):
            return None

    def _death(self) -> tuple[int, str]:
        if self.remote_pod is None:
            return 1, "the pod could not be seen"
        return manifests.death(self.client.api_client.sanitize_for_serialization(self.remote_pod))

    def on_kill(self) -> None:
        """Deletes the pod and closes the attempt, so that a later run starts another."""
        super().on_kill()
        if self._step is not None and self._attempt:
            ledger().finish_attempt(self._step.key, self._attempt, "killed", {"reason": "the task was ended"})
            self._close("killed", "the task was ended")
