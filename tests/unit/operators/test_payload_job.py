"""The job operator on a cluster at the client's level: create or adopt, queue, evict, gang, end, meter."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from artifacts.refs import sha256
from artifacts.step import Failure, failure_uri
from artifacts.store import write_bytes
from operators import ledger as ledger_module
from operators.jobs.accounts import open_meters, usages
from operators.jobs.history import History, Job
from operators.payload import payload_type
from operators.payload_job import PayloadJobOperator
from operators.process import StepFailed
from operators.settings import platform
from operators.steps import PlannedStep, plan
from tests.make import control
from tests.make.fake_cluster import FakeCluster, Look, pod
from tests.make.jobs import gpu_job
from tests.make.operators import IMAGE, toy_call
from tests.make.toy_step import ToyRef


class Store(dict):
    """The task's state store."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment that runs pods, with the toy step's image."""
    monkeypatch.setenv("PERENNIAL_RUNNER", "pod")
    monkeypatch.setenv("PERENNIAL_FEATURES_IMAGE", IMAGE)
    control.deployment(tmp_path, monkeypatch)
    return tmp_path


def operator(place: Path, cluster: FakeCluster, **arguments: Any) -> PayloadJobOperator:
    made = PayloadJobOperator(task_id="fit", call=toy_call(place, job=gpu_job()), poll_seconds=0, **arguments)
    made.cluster = lambda: cluster
    return made


def planned(place: Path) -> PlannedStep:
    found = plan(toy_call(place, job=gpu_job()), {}, platform().store)
    assert isinstance(found, PlannedStep)
    return found


def run(task: PayloadJobOperator, store: Store | None = None) -> Any:
    words = {"dag_id": "retrain__flight_delay", "task_id": "fit", "run_id": "scheduled__1", "map_index": -1}
    ti = SimpleNamespace(**words, try_number=1, stats_tags={})
    return PayloadJobOperator.execute.__wrapped__(
        task, {"ti": ti, "task_state_store": Store() if store is None else store}
    )


def succeed(place: Path) -> Any:
    step = planned(place)

    def write() -> None:
        result = ToyRef(uri="file:///made", digest=sha256(b"made"), word="work")
        write_bytes(step.result_uri, result.model_dump_json().encode())

    return write


def jobs() -> tuple[Job, ...]:
    return History(ledger_module.ledger()).jobs()


BOTH = (pod(0, start=0), pod(1, start=0))


@pytest.mark.covers("field-reports 92")
def test_a_queued_job_is_queued_and_costs_nothing_until_its_pods_run(place: Path) -> None:
    ended = (pod(0, 100, 400), pod(1, 100, 400))
    cluster = FakeCluster([
        Look(suspended=True),
        Look(suspended=True, condition="Suspended", words="no room"),
        Look(pods=(pod(0), pod(1))),
        Look(pods=(pod(0, 100), pod(1, 100))),
        Look(pods=ended, condition="Complete", then=succeed(place)),
    ])
    task = operator(place, cluster)
    assert run(task)["result"].endswith("result.json")
    (job,) = jobs()
    assert [step.state for step in job.steps] == [
        *("VALIDATED", "ADMITTED", "QUEUED", "ADMITTED", "STARTING", "PROCESSING", "STORING", "COMPLETED")
    ]
    assert job.steps[-1].made == sha256(b"made")
    assert [name.split()[0] for name in cluster.created] == ["Service", "Job"]
    bill = usages(ledger_module.ledger())
    assert [(one.uid, one.seconds, one.units, one.unit) for one in bill] == [
        ("pod-0", 300.0, 8, "gpu"),
        ("pod-1", 300.0, 8, "gpu"),
    ]
    assert open_meters(ledger_module.ledger()) == ()


@pytest.mark.covers("field-reports 40")
def test_a_job_whose_worker_was_lost_is_adopted_by_the_next_try(place: Path) -> None:
    def lose() -> None:
        raise ConnectionError("the worker's network is gone")

    cluster, store = FakeCluster([Look(pods=BOTH), Look(pods=BOTH, then=lose), Look(pods=BOTH)]), Store()
    with pytest.raises(ConnectionError):
        run(operator(place, cluster), store)
    assert cluster.deleted == []
    cluster.looks = [Look(pods=BOTH), Look(pods=(pod(0, 0, 60), pod(1, 0, 60)), then=succeed(place))]
    run(operator(place, cluster), store)
    assert len([name for name in cluster.created if name.startswith("Job")]) == 1
    (job,) = jobs()
    assert (job.attempt, job.state) == (1, "COMPLETED")
    assert sum(one.unit_seconds for one in usages(ledger_module.ledger())) == 2 * 8 * 60


def test_a_worker_lost_between_create_and_note_finds_its_job_by_name(place: Path) -> None:
    cluster = FakeCluster([Look(pods=BOTH, then=lambda: (_ for _ in ()).throw(ConnectionError()))])
    with pytest.raises(ConnectionError):
        run(operator(place, cluster))
    cluster.looks = [Look(pods=BOTH, then=succeed(place))]
    run(operator(place, cluster), Store())  # the note was lost with the worker
    assert len(cluster.created) == 2


def test_a_failed_attempt_gets_the_next_number_and_a_reason(place: Path) -> None:
    dead = (pod(0, 0, 30, code=137, why="OOMKilled"), pod(1, 0, 31, code=1))
    cluster = FakeCluster([Look(pods=BOTH), Look(pods=dead, condition="Failed", words="PodFailurePolicy")])
    store = Store()
    with pytest.raises(StepFailed, match=r"^C301 out of memory") as caught:
        run(operator(place, cluster), store)
    assert "to do: raise memory_mib" in str(caught.value)
    cluster.looks = [Look(pods=BOTH), Look(pods=(pod(2, 40, 50), pod(3, 40, 50)), then=succeed(place))]
    run(operator(place, cluster), store)
    newest, first = jobs()
    assert (first.state, first.code, newest.state) == ("FAILED", "C301", "COMPLETED")
    assert first.name.endswith("-a1")
    assert newest.name.endswith("-a2")


def test_an_eviction_is_no_failure_and_is_not_billed(place: Path) -> None:
    gone = (
        pod(0, 0, 30, code=143, disrupted="PreemptionByScheduler"),
        pod(1, 0, 30, code=143, disrupted="PreemptionByScheduler"),
    )
    back = (pod(2, 100, 200), pod(3, 100, 200))
    cluster = FakeCluster([
        Look(pods=BOTH),
        Look(pods=gone, suspended=True, condition="Suspended", words="Preempted"),
        Look(pods=(*gone, pod(2, 100), pod(3, 100))),
        Look(pods=(*gone, *back), then=succeed(place)),
    ])
    run(operator(place, cluster))
    (job,) = jobs()
    states = [step.state for step in job.steps]
    assert states[states.index("EVICTED") : states.index("EVICTED") + 3] == ["EVICTED", "QUEUED", "ADMITTED"]
    bill = usages(ledger_module.ledger())
    assert sum(one.unit_seconds for one in bill if one.billable) == 2 * 8 * 100
    assert sum(one.unit_seconds for one in bill if not one.billable) == 2 * 8 * 30


@pytest.mark.covers("field-reports 90")
def test_half_a_gang_gives_its_gpus_back(place: Path) -> None:
    cluster = FakeCluster([Look(pods=(pod(0, 0), pod(1)))])
    with pytest.raises(StepFailed, match=r"S101 pods not ready in time: 1 of 2 run"):
        run(operator(place, cluster, ready_seconds=-1))
    assert cluster.deleted == [cluster.created[1]]
    assert jobs()[0].code == "S101"


def test_a_result_in_the_store_is_success_whatever_the_cluster_says(place: Path) -> None:
    cluster = FakeCluster([Look(pods=BOTH), Look(gone=True, then=succeed(place))])
    run(operator(place, cluster))
    assert jobs()[0].state == "COMPLETED"


def test_a_job_that_is_gone_without_a_result_is_a_fault_of_the_platform(place: Path) -> None:
    cluster = FakeCluster([Look(pods=BOTH), Look(gone=True)])
    with pytest.raises(StepFailed, match="S201 the job is gone"):
        run(operator(place, cluster))


def test_refused_data_is_not_tried_again(place: Path) -> None:
    step = planned(place)

    def refuse() -> None:
        failure = Failure(kind="bad_data", reason="rows.parquet: digest differs")
        write_bytes(failure_uri(step.result_uri), failure.model_dump_json().encode())

    dead = (pod(0, 0, 30, code=65), pod(1, 0, 31, code=1))
    cluster = FakeCluster([Look(pods=BOTH), Look(pods=dead, condition="Failed", then=refuse)])
    with pytest.raises(AirflowFailException, match=r"^C101 .*rows.parquet: digest differs"):
        run(operator(place, cluster))


@pytest.mark.covers("field-reports 82")
def test_a_gang_that_stands_still_is_ended(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.jobs.keeper.STALL_SECONDS", -1.0)
    cluster = FakeCluster([Look(pods=BOTH)])
    with pytest.raises(StepFailed, match="S202 no progress"):
        run(operator(place, cluster))
    assert cluster.deleted == [cluster.created[1]]


def test_a_kill_deletes_the_job_and_closes_the_attempt(place: Path) -> None:
    task = operator(place, FakeCluster([]))

    def kill() -> None:
        task.on_kill()
        raise SystemExit

    cluster = FakeCluster([Look(pods=BOTH), Look(pods=BOTH, then=kill)])
    task.cluster = lambda: cluster
    with pytest.raises(SystemExit):
        run(task)
    assert (jobs()[0].state, jobs()[0].code) == ("HALTED", "H101")
    assert cluster.deleted == [cluster.created[1]]


def test_kubeflow_gets_a_train_job_of_the_same_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERENNIAL_TRAINING_API", "trainjob")
    platform.cache_clear()
    cluster = FakeCluster([Look(pods=BOTH, then=succeed(place))])
    run(operator(place, cluster))
    assert cluster.created == [f"TrainJob {jobs()[0].name}"]


def test_one_node_is_a_pod_and_several_are_a_job(place: Path) -> None:
    several, one = toy_call(place, job=gpu_job()), toy_call(place)
    assert payload_type(several) is PayloadJobOperator
    assert payload_type(one).__name__ == "PayloadPodOperator"


def test_a_gang_that_idles_goes_on_with_half_of_its_processes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 15)
    monkeypatch.setattr("operators.jobs.local.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    monkeypatch.setattr("operators.jobs.keeper.STALL_SECONDS", 1e9)
    cluster = FakeCluster([Look(pods=BOTH)])
    task = operator(place, cluster)
    task._busy = lambda _: lambda: (0.05, 0.1)
    finish = succeed(place)
    delete = cluster.delete

    def free(kind: str, name: str) -> None:
        delete(kind, name)
        cluster.looks = [Look(pods=(pod(2, 0), pod(3, 0))), Look(pods=(pod(2, 0, 9), pod(3, 0, 9)), then=finish)]

    monkeypatch.setattr(cluster, "delete", free)
    run(task)
    smaller, first = jobs()
    assert (first.state, first.code, smaller.state) == ("HALTED", "Q102", "COMPLETED")
    assert (first.declared.processes_per_node, smaller.declared.processes_per_node) == (8, 4)
    assert first.key == smaller.key
    body = cluster.objects["Job", smaller.name]
    assert "--nproc-per-node=4" in body["spec"]["template"]["spec"]["containers"][0]["command"]
