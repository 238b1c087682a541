from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pydantic import ValidationError

from artifacts.step import explain
from operators.jobs.contract import TorchJob, declared
from tests.make.jobs import gpu_job, torch_job
from training.contract import TorchJob as Shape


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gpus_per_process": 1}, "hardware=cpu with gpus_per_process=1; use hardware=nvlink, infiniband or ethernet"),
        ({"hardware": "nvlink"}, "hardware=nvlink with gpus_per_process=0; use gpus_per_process=1, or hardware=cpu"),
        ({"gpu_topology": "same-rack", "queue": "q"}, "gpu_topology=same-rack with gpus_per_process=0"),
        ({"priority": "daily"}, "priority=daily without a queue"),
        ({"min_processes_per_node": 3}, "min_processes_per_node=3 with processes_per_node=2; use at most 2"),
        ({"options": {"strategy": "fsdp"}, "processes_per_node": 1}, "strategy=fsdp with world_size=1"),
        ({"options": {"precision": "fp16"}}, "precision=fp16 with gpus_per_process=0"),
        ({"image": "training:latest"}, "image=training:latest has no digest"),
        ({"environment": {"RANK": "0"}}, "environment.RANK: torchrun or the hardware profile sets it"),
        ({"environment": {"NCCL_DEBUG": "INFO"}}, "environment.NCCL_DEBUG"),
        ({"deadline": dt.timedelta(hours=25)}, "deadline"),
        ({"tenant": "Flights Team"}, "tenant"),
    ],
)
def test_what_does_not_fit_together_is_said_in_the_jobs_own_terms(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        torch_job(**changes)
    assert says in "\n".join(explain(caught.value, "recipe"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gpu_topology": "same-node"}, "gpu_topology=same-node with nodes=2; use nodes=1, or gpu_topology=same-rack"),
        ({"queue": "", "priority": ""}, "gpu_topology=same-rack without a queue: Kueue places by topology"),
        ({"hardware": "nvlink"}, "hardware=nvlink with nodes=2 and gpu_topology=same-rack"),
    ],
)
def test_placement_is_checked_against_nodes_and_queue(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        gpu_job(**changes)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        torch_job(priority="daily", image="training:latest", environment={"RANK": "0"})
    text = str(caught.value)
    assert all(word in text for word in ("priority=daily", "image=training:latest", "environment.RANK"))


def test_a_password_in_the_environment_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"a URL with a password"):
        torch_job(environment={"LAKE": "postgresql://me:secret@db/lake"})


def test_only_the_shape_is_in_a_trainings_key() -> None:
    one, other = torch_job(), torch_job(tenant="others", owner="them", deadline=dt.timedelta(hours=1))
    assert type(one.shape) is Shape
    assert one.shape == other.shape


def test_what_is_metered_is_gpus_and_cores_where_there_are_none() -> None:
    assert (gpu_job().unit, gpu_job().units, gpu_job().units_per_node) == ("gpu", 16, 8)
    job = torch_job(processes_per_node=2, cpus_per_process=3)
    assert (job.unit, job.units) == ("core", 6)


def test_a_bare_shape_becomes_a_job_that_holds() -> None:
    assert declared(Shape(gpus_per_process=1)).hardware == "nvlink"
    assert declared(Shape(nodes=2, gpus_per_process=1)).hardware == "ethernet"
    assert declared(torch_job()) == torch_job()


def test_a_job_survives_json() -> None:
    assert TorchJob.model_validate_json(gpu_job().model_dump_json()) == gpu_job()
