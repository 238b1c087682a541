"""Renders a TorchJob into the command and environment of its processes. Pure."""

from __future__ import annotations

from artifacts.refs import Uri
from training.contract import TorchJob


def local_command(job: TorchJob, python: str, module: str, spec_uri: Uri, result_uri: Uri) -> tuple[str, ...]:
    """Torchrun on this machine: one agent, ``processes_per_node`` workers, rendezvous on a free loopback port.

    Raises ValueError for several nodes, which one machine cannot be.
    """
    if job.nodes != 1:
        raise ValueError(f"nodes={job.nodes} cannot run as local processes; use nodes=1, or runner=pod")
    return (
        python,
        *("-m", "torch.distributed.run"),
        "--standalone",
        "--nnodes=1",
        f"--nproc-per-node={job.processes_per_node}",
        "--local-addr=127.0.0.1",  # else the agent advertises the host's name, which a laptop often cannot resolve
        *("-m", module, spec_uri, result_uri),
    )


def pod_command(job: TorchJob, module: str, spec_uri: Uri, result_uri: Uri) -> tuple[str, ...]:
    """Torchrun in the one pod of a job on one node; ``python`` is the image's own.

    Raises ValueError for several nodes: those need an Indexed Job with a headless Service, which is not rendered yet.
    """
    if job.nodes != 1:
        raise ValueError(
            f"nodes={job.nodes}: trainings on several nodes are not rendered yet; use nodes=1 and more GPUs"
        )
    return local_command(job, "python", module, spec_uri, result_uri)


def environment(job: TorchJob) -> dict[str, str]:
    """What every process of a job gets, wherever it runs."""
    # torchrun sets 1 when nothing is set, and warns; more threads than CPUs per process make all of them wait.
    return {"OMP_NUM_THREADS": str(job.cpus_per_process)}


def local_environment(job: TorchJob) -> dict[str, str]:
    """What the processes of a job on this machine get."""
    # Gloo picks the interface of the host's name; on a machine behind a VPN or without a name that is the wrong one.
    return {**environment(job), "GLOO_SOCKET_IFNAME": "lo"}


def pod_resources(job: TorchJob) -> dict[str, dict[str, str]]:
    """Kubernetes requests and limits of the pod of one node: memory and GPUs are hard, CPU may borrow."""
    processes = job.processes_per_node
    memory = {"memory": f"{job.memory_mib * processes}Mi"}
    gpus = {"nvidia.com/gpu": str(job.gpus_per_process * processes)} if job.gpus_per_process else {}
    return {"requests": {"cpu": str(job.cpus_per_process * processes), **memory, **gpus}, "limits": {**memory, **gpus}}
