from __future__ import annotations

import pytest

from operators.jobs import hardware
from operators.jobs.contract import TorchJob
from tests.make.jobs import gpu_job, torch_job
from training.contract import TorchJob as Shape

JOBS = (
    torch_job(),
    torch_job(nodes=2),
    gpu_job(),
    gpu_job(hardware="ethernet"),
    gpu_job(nodes=1, hardware="nvlink", gpu_topology="nvlink"),
)


def test_processors_on_one_machine_talk_over_loopback() -> None:
    assert hardware.environment(torch_job(cpus_per_process=3), "local") == {
        "OMP_NUM_THREADS": "3",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    assert hardware.environment(Shape(cpus_per_process=3), "pod") == {"OMP_NUM_THREADS": "3"}


def test_several_nodes_can_replace_one() -> None:
    found = hardware.environment(torch_job(nodes=2), "pod")
    assert found["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert found["GLOO_SOCKET_IFNAME"] == "eth0"


@pytest.mark.covers("field-reports 84")
def test_a_rank_that_left_a_collective_is_noticed_within_five_minutes() -> None:
    found = hardware.environment(gpu_job(), "pod")
    assert found["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == "300"
    assert found["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"
    assert gpu_job().max_restarts == 1


def test_infiniband_is_used_where_it_is_and_not_looked_for_where_it_is_not() -> None:
    switch = {job.hardware: hardware.environment(job, "pod").get("NCCL_IB_DISABLE") for job in JOBS}
    assert switch == {"cpu": None, "infiniband": "0", "ethernet": "1", "nvlink": "1"}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.hardware}-{job.nodes}")
@pytest.mark.parametrize("place", ["local", "pod"])
def test_every_variable_has_a_reason_and_one_value(job: TorchJob, place: hardware.Place) -> None:
    found = hardware.profile(job, place)
    assert all(len(variable.reason.split()) > 5 for variable in found)
    assert len({variable.name for variable in found}) == len(found)
    no_gpu = job.gpus_per_process == 0
    assert not (no_gpu and any(variable.name.startswith(("NCCL", "CUDA")) for variable in found))
