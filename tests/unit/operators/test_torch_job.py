from __future__ import annotations

import pytest

from operators import torch_job
from training.contract import TorchJob

URIS = ("training.train", "s3://b/spec.json", "s3://b/result.json")


def test_the_local_command_is_torchrun_on_loopback() -> None:
    assert torch_job.local_command(TorchJob(processes_per_node=2), "/venv/bin/python", *URIS) == (
        "/venv/bin/python",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nnodes=1",
        "--nproc-per-node=2",
        "--local-addr=127.0.0.1",
        "-m",
        *URIS,
    )


def test_several_nodes_are_refused_where_they_cannot_run() -> None:
    job = TorchJob(nodes=2)
    with pytest.raises(ValueError, match="use nodes=1, or runner=pod"):
        torch_job.local_command(job, "python", *URIS)
    with pytest.raises(ValueError, match="not rendered yet"):
        torch_job.pod_command(job, *URIS)


def test_a_pod_uses_the_python_of_its_image_and_its_own_interface() -> None:
    job = TorchJob(processes_per_node=4, cpus_per_process=3)
    assert torch_job.pod_command(job, *URIS)[0] == "python"
    assert torch_job.environment(job) == {"OMP_NUM_THREADS": "3"}
    assert torch_job.local_environment(job) == {"OMP_NUM_THREADS": "3", "GLOO_SOCKET_IFNAME": "lo"}


def test_the_pod_asks_for_all_processes_together() -> None:
    job = TorchJob(processes_per_node=4, gpus_per_process=1, cpus_per_process=3, memory_mib=2048)
    assert torch_job.pod_resources(job) == {
        "requests": {"cpu": "12", "memory": "8192Mi", "nvidia.com/gpu": "4"},
        "limits": {"memory": "8192Mi", "nvidia.com/gpu": "4"},
    }
    assert "nvidia.com/gpu" not in torch_job.pod_resources(TorchJob())["limits"]
