"""What people have met with pods under Airflow, played against the real operator over HTTP; pods really run their command."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTimeout

from artifacts.settings import ROOT
from operators import pod_manager
from operators.payload import load
from operators.payload_pod import PodLost, PodUnseen
from operators.process import StepFailed
from tests.integration.cluster.conftest import Stand
from tests.make.kubernetes import Refusal
from tests.make.operators import Lines, runs
from tests.make.pod_tasks import RUN, context, outcomes
from tests.make.toy_step import ToyRef, wait_for

LOG = "/log"


def word(xcom: dict[str, str]) -> str:
    return load(xcom, ToyRef).word


@pytest.mark.covers("field-reports 1")
def test_a_log_stream_that_was_rotated_away_holds_nothing(stand: Stand) -> None:
    stand.cluster.fate = ["rotated"]
    assert word(stand.task().execute(context())) == "work"


@pytest.mark.covers("field-reports 2")
@pytest.mark.parametrize("code", [0, 500])
def test_a_log_that_breaks_off_fails_nothing(stand: Stand, code: int) -> None:
    stand.cluster.refuse = [Refusal("GET", LOG, code, times=1000)]
    assert word(stand.task().execute(context())) == "work"
    assert any(path.endswith(LOG) for _, _, path in stand.cluster.calls)


@pytest.mark.covers("field-reports 3")
def test_a_pod_that_is_collected_as_soon_as_it_ends_has_succeeded(stand: Stand) -> None:
    stand.cluster.fate = ["collected"]
    assert word(stand.task().execute(context())) == "work"
    assert len(stand.cluster.created) == 1


@pytest.mark.covers("field-reports 4")
def test_why_a_step_failed_is_in_the_store_also_when_no_log_can_be_read(stand: Stand) -> None:
    stand.cluster.refuse = [Refusal("GET", LOG, 500, times=1000)]
    with pytest.raises(AirflowFailException, match="origin: null in 3 rows"):
        stand.task("bad data").execute(context())


@pytest.mark.covers("field-reports 4")
def test_each_line_is_copied_once_however_often_the_log_is_read(stand: Stand) -> None:
    operator = stand.task("bad data")  # a failed pod is kept
    with pytest.raises(AirflowFailException):
        operator.execute(context())
    manager = pod_manager.StateManager(operator.client)
    manager._log = log = Lines()
    for _ in range(3):
        manager.copy_log(operator.pod, "base")
    assert log.lines.count("[base] flights.csv: dest: null") == 1
    assert len(log.lines) == 2


@pytest.mark.covers("field-reports 5")
def test_a_pod_whose_init_container_hangs_is_given_up_in_time_and_deleted(stand: Stand) -> None:
    stand.cluster.fate = ["waiting_init"]
    with pytest.raises(StepFailed, match="did not start: Pod took too long to start"):
        stand.task(startup_timeout_seconds=1).execute(context())
    assert stand.cluster.pods == {}


@pytest.mark.parametrize(
    ("fate", "says"),
    [
        ("unschedulable", r"too long to be scheduled.*last event: FailedScheduling.*Insufficient nvidia\.com/gpu"),
        ("no_image", r"Image cannot be pulled.*ErrImagePull.*last event: Failed.*manifest unknown"),
    ],
)
def test_a_pod_that_cannot_start_says_why_and_leaves_nothing(stand: Stand, fate: str, says: str) -> None:
    stand.cluster.fate = [fate]
    with pytest.raises(StepFailed, match=says):
        stand.task(schedule_timeout_seconds=1).execute(context())
    assert stand.cluster.pods == {}
    assert word(stand.task().execute(context(2))) == "work"


@pytest.mark.covers("field-reports 7")
@pytest.mark.parametrize("code", [0, 500])
def test_a_create_whose_answer_is_lost_makes_one_pod(stand: Stand, code: int) -> None:
    stand.cluster.refuse = [Refusal("POST", "/pods", code, after=True)]
    assert word(stand.task().execute(context())) == "work"
    assert len(stand.cluster.created) == 1


@pytest.mark.covers("field-reports 10")
def test_a_pod_that_vanished_is_replaced_within_the_same_try(stand: Stand) -> None:
    stand.cluster.fate = ["gone"]
    assert word(stand.task().execute(context())) == "work"
    assert outcomes(stand.ledger) == ["failed", "done"]


@pytest.mark.covers("field-reports 11")
def test_the_steps_own_error_comes_first_also_when_a_sidecar_stays(stand: Stand) -> None:
    stand.cluster.fate = ["sidecar"]
    with pytest.raises(AirflowFailException, match="origin: null in 3 rows"):
        stand.task("bad data").execute(context())


@pytest.mark.covers("field-reports 12")
def test_a_clean_up_that_is_refused_takes_no_result_away(stand: Stand) -> None:
    stand.cluster.refuse = [Refusal("DELETE", "", 403, times=1000), Refusal("PATCH", "", 403, times=1000)]
    assert word(stand.task().execute(context())) == "work"


@pytest.mark.covers("field-reports 13", "field-reports 15")
def test_a_sidecar_that_stays_is_not_waited_for(stand: Stand) -> None:
    stand.cluster.fate = ["sidecar"]
    assert word(stand.task().execute(context())) == "work"
    (pod,) = stand.cluster.created
    assert [one["name"] for one in pod["spec"]["containers"]] == ["base"]  # and none of ours


@pytest.mark.covers("field-reports 16")
@pytest.mark.parametrize("fate", ["evicted", "evicted_at_once"])
def test_an_evicted_pod_is_said_to_be_evicted_and_replaced_three_times(stand: Stand, fate: str) -> None:
    stand.cluster.fate = [fate] * 4
    with pytest.raises(PodLost, match=r"was taken away: Evicted: The node was low on resource: memory"):
        stand.task("die").execute(context())
    assert outcomes(stand.ledger) == ["failed"] * 4


@pytest.mark.covers("field-reports 18", "field-reports 19")
def test_a_training_outlives_the_signal_to_its_worker_and_not_the_end_of_its_task(stand: Stand) -> None:
    gate = stand.folder / "gate"
    first = stand.task(gate=str(gate))
    thread = threading.Thread(target=first.execute, args=(context(),))
    thread.start()
    wait_for(lambda: runs(stand.folder) == 1)
    first.on_kill()
    assert outcomes(stand.ledger) == [None]
    assert len(stand.cluster.pods) == 1
    first._task = context(state="failed")["ti"]
    first._killed = False
    first.on_kill()
    assert outcomes(stand.ledger) == ["killed"]
    assert stand.cluster.pods == {}
    gate.touch()
    thread.join()


@pytest.mark.covers("field-reports 18")
def test_a_task_that_took_too_long_ends_its_pod(stand: Stand) -> None:
    operator = stand.task("bad data")
    with pytest.raises(AirflowFailException):
        operator.execute(context())

    @contextmanager
    def limit() -> Iterator[None]:
        try:
            yield
        except AirflowTaskTimeout:
            operator.on_kill()  # as Airflow's runner does
            raise

    with pytest.raises(AirflowTaskTimeout), limit():
        raise AirflowTaskTimeout("too long")
    assert stand.cluster.pods == {}


@pytest.mark.covers("field-reports 19", "field-reports 21")
def test_the_next_try_attaches_to_the_pod_of_a_worker_that_was_killed(stand: Stand) -> None:
    gate = stand.folder / "gate"
    words = (sys.executable, "-m", "tests.make.pod_tasks", str(stand.folder), str(stand.config), str(gate))
    worker = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: runs(stand.folder) == 1)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    assert outcomes(stand.ledger) == [None]
    found: list[str] = []
    again = threading.Thread(target=lambda: found.append(word(stand.task(gate=str(gate)).execute(context(2)))))
    again.start()
    wait_for(lambda: sum(method == "POST" for _, method, _ in stand.cluster.calls) == 2)  # the second is told "mine"
    gate.touch()
    again.join()
    assert found == ["work"]
    assert (runs(stand.folder), len(stand.cluster.created), outcomes(stand.ledger)) == (1, 1, ["done"])


@pytest.mark.covers("field-reports 20")
def test_pods_with_the_same_labels_confuse_nobody(stand: Stand) -> None:
    labels = {"dag_id": "toy", "task_id": "train", "run_id": RUN, "kubernetes_pod_operator": "True", "try_number": "1"}
    for name in ("stray-1", "stray-2"):
        stand.cluster.pods[name] = {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Running"}}
    assert word(stand.task().execute(context())) == "work"
    assert set(stand.cluster.pods) == {"stray-1", "stray-2"}


@pytest.mark.covers("field-reports 20")
def test_a_cluster_that_stops_answering_leaves_the_attempt_open_and_is_asked_again(stand: Stand) -> None:
    gate = stand.folder / "gate"
    away = Refusal("GET", "-a1", 503, times=0)
    stand.cluster.refuse = [away]
    failed: list[BaseException] = []

    def first() -> None:
        with pytest.raises(PodUnseen) as caught:
            stand.task(gate=str(gate)).execute(context())
        failed.append(caught.value)

    thread = threading.Thread(target=first)
    thread.start()
    wait_for(lambda: runs(stand.folder) == 1)
    away.times = 1000
    thread.join()
    away.times = 0
    assert (len(failed), outcomes(stand.ledger)) == (1, [None])
    gate.touch()
    assert word(stand.task(gate=str(gate)).execute(context(2))) == "work"
    assert (runs(stand.folder), outcomes(stand.ledger)) == (1, ["done"])


@pytest.mark.covers("field-reports 22", "field-reports 23")
@pytest.mark.parametrize(("does", "code"), [("die", 137), ("exit 0", 0)])
def test_memory_that_ran_out_is_said_with_the_limit(stand: Stand, does: str, code: int) -> None:
    stand.cluster.fate = ["oom"]
    with pytest.raises(StepFailed, match=rf"OOMKilled \(exit {code}\); its memory limit was 4Gi, raise it"):
        stand.task(does).execute(context())


@pytest.mark.parametrize("code", [0, 429, 500, 503])
def test_a_burst_of_refusals_is_waited_out(stand: Stand, code: int) -> None:
    stand.cluster.refuse = [Refusal("GET", "-a1", code, times=3), Refusal("POST", "/pods", code, times=2)]
    assert word(stand.task().execute(context())) == "work"
    assert len(stand.cluster.created) == 1


def test_a_token_that_is_not_taken_is_said(stand: Stand) -> None:
    stand.config.write_text(stand.config.read_text().replace("a-token-of-the-test", "another"))
    with pytest.raises(PodUnseen, match=r"could not be created: \(401\)"):
        stand.task().execute(context())


def test_a_name_that_is_another_works_is_not_adopted(stand: Stand) -> None:
    operator = stand.task("bad data")
    with pytest.raises(AirflowFailException):
        operator.execute(context())
    stand.cluster.pods[operator.name]["metadata"]["labels"][pod_manager.KEY_LABEL] = "other"
    with pytest.raises(RuntimeError, match="is not this work's; delete it"):
        operator.pod_manager.create_pod(operator.pod_request_obj)


def test_no_object_is_asked_for_more_than_once_a_second_while_a_pod_runs(stand: Stand) -> None:
    gate = stand.folder / "gate"
    thread = threading.Thread(target=stand.task(gate=str(gate)).execute, args=(context(),))
    thread.start()

    def seen() -> list[float]:
        return [at for at, method, path in stand.cluster.calls if method == "GET" and path.endswith("-a1")]

    wait_for(lambda: runs(stand.folder) == 1)
    before = len(seen())
    wait_for(lambda: len(seen()) >= before + 6)
    times = seen()[before + 1 :]
    gate.touch()
    thread.join()
    assert all(later - earlier > 0.95 for earlier, later in itertools.pairwise(times))


def test_what_a_pod_is_of_stands_in_full_on_it(stand: Stand) -> None:
    stand.task().execute(context())
    (pod,) = stand.cluster.created
    marks = {name.partition("/")[2]: value for name, value in pod["metadata"]["annotations"].items()}
    assert (marks["dag"], marks["task"], marks["run"], marks["attempt"]) == ("toy", "train", RUN, "1")
