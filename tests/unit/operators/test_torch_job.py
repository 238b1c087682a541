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
    with pytest.raises(ValueError, match="do not fit into one pod"):
        torch_job.pod_command(job, *URIS)


def test_a_pod_uses_the_python_of_its_image() -> None:
    assert torch_job.pod_command(TorchJob(processes_per_node=4), *URIS)[0] == "python"


def test_each_pod_of_several_runs_one_agent() -> None:
    command = torch_job.node_command("fit-a1", TorchJob(nodes=2, processes_per_node=4), 1, URIS)
    assert command[:5] == ("python", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=4")
    assert "--rdzv-endpoint=fit-a1-0.fit-a1:29400" in command
    assert command[-4:] == ("-m", *URIS)
    assert torch_job.trainer_command(1, URIS)[3:] == ("--max-restarts=1", "-m", *URIS)


def test_the_pod_asks_for_all_processes_together() -> None:
    job = TorchJob(processes_per_node=4, gpus_per_process=1, cpus_per_process=3, memory_mib=2048)
    assert torch_job.pod_resources(job) == {
        "requests": {"cpu": "12", "memory": "8192Mi", "nvidia.com/gpu": "4"},
        "limits": {"memory": "8192Mi", "nvidia.com/gpu": "4"},
    }
    assert "nvidia.com/gpu" not in torch_job.pod_resources(TorchJob())["limits"]
