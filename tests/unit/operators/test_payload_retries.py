"""Which ends of a task Airflow tries again, and when: what may be gone next time, at growing intervals; nothing else."""

from __future__ import annotations

import datetime as dt
import json
from types import SimpleNamespace

import httpx
import pytest
import sqlalchemy as sa
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import RetryAction

from artifacts.records import Conflict
from artifacts.settings import ROOT
from artifacts.step import EXIT_TRY_AGAIN, Failure
from artifacts.store import ArtifactCorrupt, ArtifactMissing
from operators.pages import load_dags
from operators.payload import DEFAULTS
from operators.process import StepRefused, verdict

POLICY = DEFAULTS["retry_policy"]
NO_RETRY = {"failed", "features_ready"}  # one only says that the run is red, the other waits by itself
NOON = dt.datetime(2013, 9, 1, 12, tzinfo=dt.UTC)


def decided(error: BaseException) -> RetryAction:
    return POLICY.evaluate(error, try_number=1, max_tries=3).action


@pytest.mark.parametrize(
    "error",
    [
        verdict(EXIT_TRY_AGAIN, "exit 75", Failure(kind="try_again", reason="Triton is away"), distributed=False),
        verdict(EXIT_TRY_AGAIN, "exit 75", None, distributed=False),
        verdict(-9, "exit -9", None, distributed=False),  # the step or its worker was killed
        verdict(-15, "exit -15", None, distributed=False),
        verdict(137, "OOMKilled (exit 137 on node-3)", None, distributed=False),
        verdict(1, "the pod could not be seen", None, distributed=False),
        verdict(1, "exit 1", Failure(kind="error", reason="NCCL"), distributed=True),
        ConnectionError("reset"),
        TimeoutError("late"),
        httpx.ConnectTimeout("late"),
        sa.exc.OperationalError("insert", {}, Exception("database is locked")),
        Conflict("record 'clock' is at version 3, not 2; read it again"),
        OSError(28, "No space left on device"),
    ],
    ids=str,
)
def test_what_may_be_gone_next_time_is_tried_again(error: BaseException) -> None:
    assert decided(error) is RetryAction.DEFAULT  # Airflow's own: as often and as late as the task says


@pytest.mark.parametrize(
    "error",
    [
        StepRefused("refused"),
        ArtifactCorrupt("differs"),
        ArtifactMissing("nothing there"),
        TypeError("code"),
        AttributeError("code"),
        KeyError("code"),
        AssertionError("code"),
        json.JSONDecodeError("no JSON", "{", 0),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_code_or_data_is_not(error: BaseException) -> None:
    assert decided(error) is RetryAction.FAIL


@pytest.mark.parametrize(("tried", "minutes"), [(1, 1), (2, 4), (3, 16), (9, 16)])
def test_each_retry_waits_longer_and_never_longer_than_the_last(tried: int, minutes: int) -> None:
    task = SimpleNamespace(**{
        name: DEFAULTS[name] for name in ("retry_delay", "retry_exponential_backoff", "max_retry_delay")
    })
    stand_in = SimpleNamespace(
        task=task,
        dag_id="d",
        task_id="t",
        logical_date=None,
        try_number=tried,
        end_date=NOON,
        retry_delay_override=None,
    )
    wait = TaskInstance.next_retry_datetime(stand_in) - NOON  # type: ignore[arg-type]
    assert dt.timedelta(minutes=minutes) <= wait <= dt.timedelta(minutes=min(2 * minutes, 16))  # with Airflow's jitter


def test_every_task_is_tried_again_like_this() -> None:
    """A worker that is killed, or whose heartbeat is lost, is judged by the scheduler alone, and by these numbers."""
    for dag in load_dags(ROOT / "dags").values():
        for task in dag.tasks:
            if task.task_id in NO_RETRY:
                assert task.retries == 0
                continue
            assert (task.retries, task.retry_policy) == (3, POLICY), f"{dag.dag_id}.{task.task_id}"
            assert task.retry_delay == DEFAULTS["retry_delay"]
            assert task.max_retry_delay == DEFAULTS["max_retry_delay"]
            assert task.retry_exponential_backoff == DEFAULTS["retry_exponential_backoff"]
