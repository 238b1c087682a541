"""Runs a training on several nodes: an Indexed Job or a TrainJob, adopted by name after a lost worker. Imported only for pods."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import httpx
import yaml  # type: ignore[import-untyped]  # its stubs are no dependency of ours
from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from airflow.sdk import BaseOperator, Context, ResumableJobMixin
from airflow.sdk.exceptions import AirflowFailException
from pydantic import BaseModel, JsonValue, ValidationError

from artifacts.settings import ROOT
from artifacts.step import Progress, failure_of, failure_uri, progress_uri
from artifacts.store import read_bytes, remove
from operators import manifests
from operators.jobs import local, observe, render, sampling
from operators.jobs.cluster import Cluster, KubernetesCluster
from operators.jobs.codes import CODES
from operators.jobs.diagnosis import Evidence, diagnose
from operators.jobs.keeper import Keeper
from operators.jobs.states import WORKING, State
from operators.jobs.utilisation import Advice, Policy
from operators.ledger import ledger
from operators.payload import accounts, planned, task_words
from operators.process import Downscaled, StepFailed
from operators.settings import platform
from operators.steps import PlannedStep, StepCall, finished, write_plan

READY_SECONDS = 900.0  # decisions.md 4.9: PodsReady 15 min
POLL_SECONDS = 10.0
WHO = ("dag", "task", "run", "map_index")


class PayloadJobOperator(ResumableJobMixin, BaseOperator):
    """Runs a step on several nodes. The result travels through the store, and a result there is success whatever the cluster says.

    :param call: the step; its functions run in the worker.
    :param inputs: arguments of ``call.spec`` (templated).
    """

    template_fields = ("inputs",)
    external_id_key = "torch_job"
    ui_color = "#d7e9f7"
    policy = Policy()

    def __init__(
        self,
        *,
        call: StepCall,
        inputs: dict[str, Any] | None = None,
        poll_seconds: float = POLL_SECONDS,
        ready_seconds: float = READY_SECONDS,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self.call = call
        self.inputs = inputs if inputs is not None else {}
        self.poll_seconds = poll_seconds
        self.ready_seconds = ready_seconds
        self._step: PlannedStep | None = None
        self._keeper: Keeper | None = None
        self._attempt = 0
        self._words: dict[str, str] = {}

    @property
    def kind(self) -> str:
        """The kind of object that this platform's trainings are."""
        return "TrainJob" if platform().training_api == "trainjob" else "Job"

    def cluster(self) -> Cluster:
        """The cluster of this deployment: the one it runs in, or KUBECONFIG's."""
        return KubernetesCluster(KubernetesHook(conn_id=None).api_client, platform().namespace)

    def execute(self, context: Context) -> dict[str, str]:
        """Plans the step; reuses its result, adopts its running job, or starts the next attempt's."""
        step, words = planned(self.call, self.inputs), task_words(context)
        self._step, self._words = step, words
        attempt = self._open_attempt(step, words)
        if attempt is None and finished(step) is not None:
            self.log.info("%s: reused %s", step.module, step.result_uri)
            return step.xcom()
        while True:
            try:
                self._run(context, self._step, attempt or self._begin(step, words))
            except Downscaled as ask:
                self.log.info("goes on with fewer processes: %s", ask)
                self._step, attempt = ask.step, None
            else:
                return step.xcom()

    def _run(self, context: Context, step: PlannedStep, attempt: int) -> None:
        """One attempt to its end; an adopted one has the size that the ledger says."""
        self._attempt = attempt
        self._keeper = local.keeper(step, attempt, ledger(), self._words, accounts(), self.policy)
        self._step = local.sized(step, self._keeper.job.declared)
        write_plan(self._step, attempt)
        try:
            self._admit(self._keeper)
            self.execute_resumable(context)
        except (StepFailed, Downscaled) as error:
            self._end("downscaled" if isinstance(error, Downscaled) else "failed", str(error), error.code)
            if isinstance(error, StepFailed) and not CODES[error.code].retry:
                raise AirflowFailException(str(error)) from error
            raise
        # Any other error is the worker's: the job runs on, the attempt stays open, and the next try adopts both.
        self._end("done", made=getattr(self._result(self._step), "digest", ""))

    def _end(self, outcome: str, reason: str = "", code: str = "", made: str = "") -> None:
        step, keeper = self._known()
        first = reason.partition("\n")[0]
        self._meter(self._cluster_pods(), code=code, final=True)
        end: State = "COMPLETED" if outcome == "done" else "HALTED" if code[:1] in {"H", "Q"} else "FAILED"
        keeper.close(end, first, code=code, made=made)
        ledger().finish_attempt(step.key, self._attempt, outcome, {"reason": first})

    def _open_attempt(self, step: PlannedStep, words: dict[str, str]) -> int | None:
        """This very task's attempt that nobody has finished; waits while another task's is open."""
        until = time.monotonic() + manifests.DEADLINE_SECONDS
        while (found := ledger().attempts(step.key)) and found[-1].outcome is None:
            if all(found[-1].begun.body.get(name) == words[name] for name in WHO):
                return found[-1].attempt
            if finished(step) is not None or time.monotonic() > until:
                return None
            self.log.info("%s: the same work is running elsewhere; waiting for it", step.module)
            time.sleep(self.poll_seconds)
        return None

    @staticmethod
    def _begin(step: PlannedStep, words: dict[str, str]) -> int:
        for stale in (step.result_uri, failure_uri(step.result_uri), progress_uri(step.result_uri)):
            remove(stale)
        return ledger().begin_attempt(step.key, {"module": step.module, "folder": step.folder, **words})

    def _admit(self, keeper: Keeper) -> None:
        if keeper.job.state not in {"VALIDATED", "QUEUED"} or keeper.job.when("ADMITTED") is not None:
            return  # adopted: it was admitted before its worker was lost
        while (found := keeper.admit()).verdict == "queue":
            self.log.info("queued: %s", found.reason)
            time.sleep(self.poll_seconds)
        if found.verdict == "never":
            raise StepFailed(found.reason, "Q101")

    def manifests(self) -> tuple[dict[str, Any], ...]:
        """What is created, in this order."""
        step, keeper = self._known()
        place, job = platform(), keeper.job.declared
        template = yaml.safe_load((ROOT / place.pod_template).read_text()) if place.pod_template else None
        settings = {
            "PERENNIAL_STORE": place.store,
            "PERENNIAL_STORES": place.stores_json,
            "PERENNIAL_MLFLOW": place.mlflow,
            "PERENNIAL_ONLINE": place.online,
        }
        where = render.Place(
            name=keeper.job.name,
            namespace=place.namespace,
            image=getattr(place, f"{step.image}_image"),
            spec_uri=step.spec_uri,
            result_uri=step.result_uri,
            labels=manifests.labels(step.image, step.key, self._words),
            annotations={"perennial/key": step.key},
            env=manifests.step_environment(settings),
            template=template,
            rack=place.rack_label,
        )
        return (render.train_job(job, where),) if self.kind == "TrainJob" else render.indexed_job(job, where)

    def submit_job(self, context: Context) -> JsonValue:
        """Creates what is not there yet. The name tells key and attempt, so what is there is this attempt's own."""
        _, keeper = self._known()
        for manifest in self.manifests():
            made = self.cluster().create(manifest)
            self.log.info("%s %s: %s", manifest["kind"], keeper.job.name, "created" if made else "adopted")
        return {"kind": self.kind, "name": keeper.job.name}

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """LOST for an earlier attempt's job, and for one that is gone: it is then created anew, under this attempt's name."""
        step, keeper = self._known()
        if not isinstance(external_id, dict) or external_id["name"] != keeper.job.name:
            return "LOST"
        if self._result(step) is not None:
            return "COMPLETED"
        body = self.cluster().job(self.kind, keeper.job.name)
        return "LOST" if body is None else observe.seen(body, self._cluster_pods(), keeper.job.state).state

    def is_job_active(self, status: str) -> bool:
        """Whether there is something to wait for; a failed job is polled once more, so that its reason is told."""
        return status not in {"COMPLETED", "LOST"}

    def is_job_succeeded(self, status: str) -> bool:
        """Whether it ended well."""
        return status == "COMPLETED"

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> None:
        """Follows the job to its end; raises StepFailed with its code and reason."""
        step, keeper = self._known()
        while True:
            body, pods = self.cluster().job(self.kind, keeper.job.name), self._cluster_pods()
            if self._result(step) is not None:
                return
            if body is None:
                raise StepFailed("S201 the job is gone from the cluster, and left no result", "S201")
            found = observe.seen(body, pods, keeper.job.state)
            self._meter(pods)
            if found.state in {"COMPLETED", "FAILED"}:
                raise self._death(body, pods)
            self._follow(keeper, found)
            self._limits(keeper, found)
            time.sleep(self.poll_seconds)

    def get_job_result(self, external_id: JsonValue, context: Context) -> Any:
        """Nothing: the result is in the store."""
        return None

    def on_kill(self) -> None:
        """Deletes the job with its pods and closes the attempt, so that a later run starts another."""
        if self._keeper is not None and not self._keeper.job.over:
            self.cluster().delete(self.kind, self._keeper.job.name)
            self._end("killed", "the task was ended", "H101")

    def _follow(self, keeper: Keeper, found: observe.Seen) -> None:
        if found.state == "EVICTED":
            keeper.move("EVICTED", found.reason, code="S401")
            keeper.move("QUEUED", "waits to be admitted again")
        elif found.state == "QUEUED" and keeper.job.state == "ADMITTED":
            keeper.move("QUEUED", found.reason)
        elif not (keeper.job.state in WORKING and found.state in {"ADMITTED", "STARTING"}):
            keeper.move(found.state, found.reason)
        if keeper.job.state in WORKING:
            self._heed(keeper, keeper.look(self._progress()))

    def _heed(self, keeper: Keeper, advice: Advice) -> None:
        """Tells who hardly uses what is held, and ends a job by the rule: to go on smaller, or for good."""
        if advice.act == "notify":
            self.log.info("hardly uses what it holds: %s", advice.reason)
        if advice.act in {"downscale", "halt"}:
            self.cluster().delete(self.kind, keeper.job.name)
            step, _ = self._known()
            if advice.act == "downscale" and (fewer := local.smaller(step)) is not None:
                raise Downscaled(fewer, advice.reason)
            raise StepFailed(f"Q102 {advice.reason}", "Q102")

    def _limits(self, keeper: Keeper, found: observe.Seen) -> None:
        """Ends what holds GPUs for nothing: a gang of which a part runs, and a gang that stands still."""
        admitted = next((one.at for one in reversed(keeper.job.steps) if one.state == "ADMITTED"), None)
        late = observe.unready(found, keeper.job.declared.nodes, admitted, dt.datetime.now(dt.UTC), self.ready_seconds)
        still = keeper.stalled() if keeper.job.state in WORKING else None
        if late is None and still is None:
            return
        self.cluster().delete(self.kind, keeper.job.name)
        code, words = ("S101", late) if late else ("S202", f"no progress for {still:.0f} s; all ranks are ended")
        raise StepFailed(f"{code} {words}", code)

    def _death(self, body: dict[str, Any], pods: list[dict[str, Any]]) -> StepFailed:
        step, keeper = self._known()
        code, reason, events = observe.why(body, pods, self.cluster().events(keeper.job.name))
        failure = failure_of(step.result_uri)
        kind, said = (failure.kind, failure.reason) if failure else ("", "")
        found = diagnose(Evidence(exit=code, reason=reason, kind=kind, said=said, events=events, distributed=True))
        return StepFailed(f"{found.line}\nto do: {found.fix}", found.code)

    def _meter(self, pods: list[dict[str, Any]], code: str = "", *, final: bool = False) -> None:
        _, keeper = self._known()
        for one in observe.times(pods):
            keeper.started(one.uid, one.started, self._busy(keeper.job.name))
            if one.ended is not None and (final or one.evicted):
                keeper.ended(one.uid, one.ended, code="S401" if one.evicted else code)

    @staticmethod
    def _busy(name: str) -> sampling.Busy | None:
        """How busy the GPUs are, where a Prometheus tells."""
        place = platform()
        return (
            sampling.prometheus(place.prometheus, place.namespace, f"{name}-.*", httpx.Client())
            if place.prometheus
            else None
        )

    def _cluster_pods(self) -> list[dict[str, Any]]:
        _, keeper = self._known()
        return self.cluster().pods(keeper.job.name)

    def _progress(self) -> Progress | None:
        step, _ = self._known()
        try:
            return Progress.model_validate_json(read_bytes(progress_uri(step.result_uri)))
        except (FileNotFoundError, ValidationError):
            return None

    def _known(self) -> tuple[PlannedStep, Keeper]:
        if self._step is None or self._keeper is None:
            raise RuntimeError("the operator has not been executed")
        return self._step, self._keeper

    @staticmethod
    def _result(step: PlannedStep) -> BaseModel | None:
        try:
            return step.result_type.model_validate_json(read_bytes(step.result_uri))
        except (FileNotFoundError, ValidationError):
            return None
