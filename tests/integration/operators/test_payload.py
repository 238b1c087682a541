"""Both payload operators, executed: the process operator as it is, the pod operator against a small Kubernetes API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, XComArg
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from artifacts.refs import Ref, file_uri, sha256
from artifacts.store import write_bytes
from operators import payload as seam
from operators.jobs import accounts
from operators.jobs.contract import TorchJob
from operators.jobs.history import History
from operators.ledger import Ledger
from operators.payload import PayloadProcessOperator, Skip, StepCall, load, payload
from operators.process import StepFailed
from operators.settings import Platform
from operators.steps import PlannedStep, plan
from tests.make import operators as make
from tests.make.jobs import torch_job
from tests.make.kubernetes import Cluster, cluster
from tests.make.operators import IMAGE, runs, toy_call
from tests.make.toy_step import ToyRef, ToySpec


def context(task: str = "train", run: str = "manual__1", attempt: int = 1) -> Any:
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(
        dag_id="toy",
        task_id=task,
        run_id=run,
        map_index=-1,
        try_number=attempt,
        pushed=pushed,
        xcom_push=lambda key, value: pushed.update({key: value}),
    )
    return {"ti": ti, "run_id": run, "dag": SimpleNamespace(dag_id="toy")}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform in a folder of its own, and a migrated ledger."""
    made = Platform(state=tmp_path / "var", store=file_uri(tmp_path / "store"), features_image=IMAGE)
    book = make.ledger(tmp_path)
    monkeypatch.setattr(seam, "platform", lambda: made)
    monkeypatch.setattr(seam, "ledger", lambda: book)
    return made


def test_a_task_runs_its_step_and_passes_a_reference_on(tmp_path: Path, place: Platform) -> None:
    task = payload(task_id="train", call=toy_call(tmp_path), inputs={"day": "2013-08-31"})
    assert type(task) is PayloadProcessOperator
    xcom = task.execute(context())
    assert load(xcom, ToyRef).word == "work"
    assert len(json.dumps(xcom)) < 1024
    assert task.execute(context(run="manual__2")) == xcom
    assert runs(tmp_path) == 1


@pytest.mark.parametrize(
    ("answer", "says"), [(Skip("all days are built"), "all days are built"), (None, "nothing to do")]
)
def test_nothing_to_do_skips_the_task(place: Platform, answer: Skip | None, says: str) -> None:
    task = payload(task_id="train", call=StepCall("a.b", "features", lambda: answer, Ref))
    with pytest.raises(AirflowSkipException, match=says):
        task.execute(context())


def test_a_spec_that_is_not_valid_fails_the_task_for_good_and_says_which_field(place: Platform) -> None:
    task = payload(
        task_id="train", call=StepCall("a.b", "features", lambda: ToySpec(counter="c", output="nowhere"), ToyRef)
    )
    with pytest.raises(AirflowFailException, match=r"a\.b: output: 'nowhere' is no absolute URI"):
        task.execute(context())


def test_refused_data_fails_for_good_and_a_dead_server_is_tried_again(tmp_path: Path, place: Platform) -> None:
    with pytest.raises(AirflowFailException, match="origin: null in 3 rows"):
        payload(task_id="train", call=toy_call(tmp_path, "bad data")).execute(context())
    with pytest.raises(StepFailed, match="does not answer"):
        payload(task_id="train", call=toy_call(tmp_path, "try again")).execute(context())


def test_inputs_are_templated_and_make_the_task_wait_for_their_source(tmp_path: Path, place: Platform) -> None:
    with DAG("toy", schedule=None):
        first = payload(task_id="first", call=toy_call(tmp_path))
        second = payload(
            task_id="second", call=toy_call(tmp_path), inputs={"made": XComArg(first), "run": "{{ run_id }}"}
        )
    assert second.upstream_task_ids == {"first"}
    assert "inputs" in type(second).template_fields


@pytest.fixture
def pods(
    tmp_path: Path, place: Platform, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Cluster, Callable[..., BaseOperator]]]:
    """A cluster, and a maker of pod tasks on it."""
    from operators import payload_pod

    in_pods = place.model_copy(update={"runner": "pod"})
    monkeypatch.setattr(seam, "platform", lambda: in_pods)
    monkeypatch.setattr(payload_pod, "platform", lambda: in_pods)
    monkeypatch.setattr(payload_pod, "ledger", seam.ledger)
    monkeypatch.setattr(payload_pod, "TWIN_POLL_SECONDS", 0.1)
    with cluster(tmp_path) as (made, config):

        def task(does: str = "work", job: TorchJob | None = None) -> BaseOperator:
            found = payload(
                task_id="train",
                call=toy_call(tmp_path, does, job=job),
                config_file=str(config),
                startup_check_interval_seconds=1,
            )
            assert isinstance(found, payload_pod.PayloadPodOperator)
            return found

        yield made, task


def key_of(folder: Path, place: Platform, does: str = "work") -> PlannedStep:
    step = plan(toy_call(folder, does), {}, place.store)
    assert isinstance(step, PlannedStep)
    return step


def book() -> Ledger:
    return seam.ledger()


def test_a_pod_task_runs_once_and_reads_its_result_from_the_store(
    tmp_path: Path, place: Platform, pods: tuple[Cluster, Callable[..., BaseOperator]]
) -> None:
    made, task = pods
    xcom = task().execute(context())
    assert load(xcom, ToyRef).word == "work"
    (pod,) = made.created
    step = key_of(tmp_path, place)
    assert pod["metadata"]["name"].endswith(f"{step.key[7:19]}-a1")
    assert pod["metadata"]["labels"]["perennial/key"] == step.key[7:19]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["containers"][0]["image"] == IMAGE
    assert [one["name"] for one in pod["spec"]["containers"]] == ["base"]
    assert made.pods == {}  # a pod that succeeded is cleaned up
    assert task().execute(context(run="manual__2")) == xcom
    assert len(made.created) == 1
    assert [one.outcome for one in book().attempts(step.key)] == ["done"]


def test_a_failed_pod_says_why_is_kept_and_the_next_attempt_has_another_name(
    tmp_path: Path, place: Platform, pods: tuple[Cluster, Callable[..., BaseOperator]]
) -> None:
    made, task = pods
    with pytest.raises(StepFailed, match=r"killed by SIGKILL.*OOMKilled \(exit 137\)"):
        task("die once").execute(context())
    assert load(task("die once").execute(context(attempt=2)), ToyRef).word == "die once"
    first, second = (pod["metadata"]["name"] for pod in made.created)
    assert (first[-3:], second[-3:]) == ("-a1", "-a2")
    assert set(made.pods) == {first}
    with pytest.raises(AirflowFailException, match="origin: null in 3 rows"):
        task("bad data").execute(context())


def test_a_lost_worker_finds_its_pods_result_again(
    tmp_path: Path, place: Platform, pods: tuple[Cluster, Callable[..., BaseOperator]]
) -> None:
    made, task = pods
    step = key_of(tmp_path, place)
    words = {"dag": "toy", "task": "train", "run": "manual__1", "map_index": "-1"}
    assert book().begin_attempt(step.key, words) == 1  # the first worker got this far
    assert load(task().execute(context(attempt=2)), ToyRef).word == "work"
    assert [pod["metadata"]["name"][-3:] for pod in made.created] == ["-a1"]
    assert book().begin_attempt(step.key, words) == 2  # and another one, whose pod ended well while nobody looked
    assert load(task().execute(context(attempt=3)), ToyRef).word == "work"
    assert len(made.created) == 1
    assert [one.outcome for one in book().attempts(step.key)] == ["done", "done"]


def test_a_result_in_the_store_is_success_whatever_happened_to_the_pod(
    tmp_path: Path, place: Platform, pods: tuple[Cluster, Callable[..., BaseOperator]]
) -> None:
    _, task = pods
    operator = task("die")
    ref = ToyRef(uri=file_uri(tmp_path / "made"), digest=sha256(b"x"), word="die")
    begin = operator._begin

    def begun(step: PlannedStep, words: dict[str, str]) -> int:
        attempt = begin(step, words)
        write_bytes(step.result_uri, ref.model_dump_json().encode())  # the step answered, then its node went away
        return attempt

    operator._begin = begun
    assert load(operator.execute(context()), ToyRef) == ref


@pytest.mark.torch
def test_a_job_of_one_node_is_one_pod_with_states_and_a_bill(
    tmp_path: Path, place: Platform, pods: tuple[Cluster, Callable[..., BaseOperator]]
) -> None:
    made, task = pods
    task(job=torch_job(processes_per_node=1)).execute(context())
    (pod,) = made.created
    assert pod["spec"]["containers"][0]["command"][:3] == ["python", "-m", "torch.distributed.run"]
    (job,) = History(book()).jobs()
    assert (job.name, job.state) == (pod["metadata"]["name"], "COMPLETED")
    (bill,) = accounts.usages(book())
    assert (bill.uid, bill.job, bill.units, bill.code) == (pod["metadata"]["uid"], job.name, 1, "")
    with pytest.raises(AirflowFailException, match="origin: null"):
        task("bad data", job=torch_job(processes_per_node=1)).execute(context())
    newest = History(book()).jobs(newest=1)[0]
    assert (newest.state, newest.code) == ("FAILED", "C101")
