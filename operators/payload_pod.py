"""Runs a step as a Kubernetes pod; imported only when ``Platform.runner`` is ``pod``, since the provider takes seconds."""

from __future__ import annotations

import functools
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import yaml  # type: ignore[import-untyped]  # its stubs are no dependency of ours
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout
from kubernetes.client import V1Pod
from kubernetes.client.exceptions import ApiException
from pydantic import BaseModel, ValidationError
from urllib3.exceptions import HTTPError

from artifacts.settings import ROOT
from artifacts.step import failure_of, failure_uri, progress_uri
from artifacts.store import read_bytes, remove
from operators import manifests
from operators.jobs import local, render
from operators.jobs.keeper import Keeper
from operators.jobs.utilisation import Policy
from operators.ledger import Attempt, ledger
from operators.payload import accounts, planned, task_words
from operators.pod_manager import ENDED, StateManager
from operators.process import StepFailed, StepRefused, verdict
from operators.settings import platform
from operators.steps import PlannedStep, StepCall, finished, write_plan

POD_START_SECONDS = 900  # decisions.md 4.9: PodsReady 15 min
TWIN_POLL_SECONDS = 10.0
LOST_PODS = 3  # pods that the cluster may take away within one try of the task
STATE_SECONDS = 3.0  # a kill waits 5 s before it gets harder
GONE = 404
TROUBLE = (AirflowException, ApiException, HTTPError)
WHO = ("dag", "task", "run", "map_index")


class PodLost(StepFailed):
    """The cluster took the pod away before it could answer; another one may be started at once."""


class PodUnseen(StepFailed):
    """Nobody can say how the pod is; its attempt stays open, and the next try attaches to it."""


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
            "get_logs": False,  # the provider would follow the stream; the state manager copies it on the side
            "durable": True,
            "on_finish_action": "delete_succeeded_pod",  # a failed one is kept to be looked at; the next has another name
            "startup_timeout_seconds": POD_START_SECONDS,
            "schedule_timeout_seconds": POD_START_SECONDS,
            "startup_check_interval_seconds": 1,
            "termination_message_policy": "FallbackToLogsOnError",
            "log_pod_spec_on_failure": False,
        }
        super().__init__(**{**ours, **arguments})
        self.call = call
        self.inputs = inputs if inputs is not None else {}
        self._step: PlannedStep | None = None
        self._attempt = 0
        self._task: Any = None
        self._keeper: Keeper | None = None

    def execute(self, context: Context) -> dict[str, str]:
        """Plans the step; reuses its result, attaches to its pod, or starts the next attempt's pod."""
        step = self._step = planned(self.call, self.inputs)
        self._task, words = context["ti"], task_words(context)
        mine = self._open_attempt(step, words)
        if mine is not None and self._result(step) is not None:  # its pod ended well while no worker looked
            self._attempt = mine
            self._open(step, mine, words)
            self._finish(step, "done", "found after the worker was lost")
            return step.xcom()
        if mine is None and finished(step) is not None:
            self.log.info("%s: reused %s", step.module, step.result_uri)
            return step.xcom()
        for lost in range(LOST_PODS + 1):
            self._attempt = mine if mine is not None and not lost else self._begin(step, words)
            try:
                self._try(step, words, context)
                break
            except PodLost as error:
                if lost == LOST_PODS:
                    raise
                self.log.info("%s; starting another, %d of %d", error, lost + 1, LOST_PODS)
        return step.xcom()

    def _try(self, step: PlannedStep, words: dict[str, str], context: Context) -> None:
        """One attempt; it stays open in the ledger when nobody saw how it ended, so that the next try attaches to it."""
        write_plan(step, self._attempt)  # also for an attempt of one's own: its worker may have been lost before this
        self._open(step, self._attempt, words)
        self.render(step, words)
        self.pod = self.pod_request_obj = self.remote_pod = None  # the provider's; a pod before this one was lost
        self.__dict__.pop("pod_manager", None)
        outcome, reason = "done", ""
        try:
            self._admit()
            self._run(step, context)
        except PodUnseen:
            raise
        except Exception as error:
            outcome, reason = "refused" if isinstance(error, AirflowFailException) else "failed", str(error)
            self._finish(step, outcome, reason)
            raise
        self._finish(step, outcome, reason)

    def _finish(self, step: PlannedStep, outcome: str, reason: str) -> None:
        ledger().finish_attempt(step.key, self._attempt, outcome, {"reason": reason.partition("\n")[0]})
        if self._keeper is not None and not self._keeper.job.over:
            pod = self.client.api_client.sanitize_for_serialization(self.remote_pod) if self.remote_pod else {}
            local.close_pod(self._keeper, pod, outcome, reason, failure_of(step.result_uri))

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

    @functools.cached_property
    def pod_manager(self) -> StateManager:
        """Decides by the container's state."""
        return StateManager(kube_client=self.client, callbacks=self.callbacks)

    def get_or_create_pod(self, pod_request_obj: V1Pod, context: Context) -> V1Pod:
        """The attempt's pod: created, or adopted when it is there. Its name says which work it is, and is never another's."""
        return self.pod_manager.create_pod(pod_request_obj)

    def find_pod(self, namespace: str, context: Context, *, exclude_checked: bool = True) -> V1Pod | None:
        """The attempt's pod, by name: two that fit the same labels are no question then; None when it is gone."""
        if self.pod is None:
            return None
        try:
            return self.pod_manager.read_pod(self.pod)
        except ApiException as error:
            if error.status == GONE:
                return None
            raise

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
            "annotations": manifests.marks(step.key, self._attempt, words),
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
        except TROUBLE as error:
            trouble = error
        if self._result(step) is not None:
            return
        seen = self._seen(trouble)
        if seen is None or manifests.disrupted(seen):
            how = "is gone" if seen is None else f"was taken away: {manifests.death(seen)[1]}"
            raise PodLost(f"pod {self.name} {how}; it left no result") from trouble
        if seen["status"].get("phase") not in ENDED and not manifests.ended(seen):
            self._delete()  # it could not start: nobody would wait for it any more
            raise StepFailed(f"pod {self.name} did not start: {_root(trouble)}{self._last_event()}") from trouble
        code, place = manifests.death(seen)
        try:
            raise verdict(code, place, failure_of(step.result_uri), distributed=step.job is not None) from trouble
        except StepRefused as error:
            raise AirflowFailException(str(error)) from error

    def _seen(self, trouble: Exception | None) -> dict[str, Any] | None:
        """The pod as it ended, else as it is now; None when it is gone. Raises PodUnseen when the cluster does not answer."""
        as_json = self.client.api_client.sanitize_for_serialization
        last: dict[str, Any] = as_json(self.remote_pod) if self.remote_pod is not None else {}
        if manifests.ended(last):
            return last
        if self.pod is None:
            raise PodUnseen(f"pod {self.name} could not be created: {_root(trouble)}") from trouble
        try:
            return dict(as_json(self.pod_manager.read_pod(self.pod)))
        except TROUBLE as error:
            if isinstance(error, ApiException) and error.status == GONE:
                return None
            raise PodUnseen(f"pod {self.name} cannot be seen: {_root(error)}") from error

    def _last_event(self) -> str:
        try:
            events = self.pod_manager.read_pod_events(self.pod).items
        except TROUBLE:
            return ""
        return f"; last event: {events[-1].reason}: {events[-1].message}" if events else ""

    def _delete(self) -> None:
        try:
            self.pod_manager.delete_pod(self.pod)
        except TROUBLE as error:
            self.log.info("pod %s is not deleted: %s; the sweep will", self.name, error)

    @staticmethod
    def _result(step: PlannedStep) -> BaseModel | None:
        try:
            return step.result_type.model_validate_json(read_bytes(step.result_uri))
        except (FileNotFoundError, ValidationError):
            return None

    def on_kill(self) -> None:
        """Deletes the pod when somebody ended the task. When only its worker goes, the pod lives on for the next try."""
        if not isinstance(sys.exception(), AirflowTaskTimeout) and not self._ended_by_someone():
            self.log.info("the worker goes, pod %s stays; the next try attaches to it", self.name)
            return
        super().on_kill()
        if self._step is not None and self._attempt:
            self._finish(self._step, "killed", "the task was ended")

    def _ended_by_someone(self) -> bool:
        """Whether the task is no longer to run; without an answer it is, and the sweep removes a pod that nobody wants."""
        answer: list[str | None] = []

        def ask() -> None:
            with suppress(Exception):  # no answer is one, too
                answer.append(_state(self._task))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()  # this is a signal's handler, and the call that it came into may hold the line to the supervisor
        asking.join(STATE_SECONDS)
        return bool(answer) and answer[0] != "running"


def _state(task: Any) -> str | None:
    """The state of a task instance as Airflow has it; None when it knows none."""
    states = task.get_task_states(
        dag_id=task.dag_id,
        task_ids=[task.task_id],
        run_ids=[task.run_id],
        **({"map_index": task.map_index} if task.map_index >= 0 else {}),
    )
    return next((state for state in states.get(task.run_id, {}).values()), None)


def _root(error: BaseException | None) -> str:
    """The first error of a chain: what the clean-up says after it is not why."""
    while error is not None and isinstance(error.__context__, TROUBLE):
        error = error.__context__
    return str(error).partition("\n")[0] or "no reason given"
