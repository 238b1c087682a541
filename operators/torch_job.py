"""Renders a TorchJob into the launch command of its processes and the resources of its pods. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from artifacts.refs import Uri
from training.contract import TorchJob as Shape

PORT = 29_400  # torchrun's own default
RENDEZVOUS_SECONDS = 900  # decisions.md 4.9: rendezvous 15 min
ONE_MACHINE = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3,heartbeat_timeout=5"
NETWORK = "last_call_timeout=5,keep_alive_interval=2,keep_alive_max_attempt=5,heartbeat_timeout=10"
"""How soon a lost node is noticed: interval x attempts. The defaults are 5 s x 3 with a last call of 30 s: 44 s in all.

On one machine 6 s from a killed node to the next step were measured with the first; a real network gets more patience.
"""


def local_command(
    job: Shape, python: str, module: str, spec_uri: Uri, result_uri: Uri, *, args: Sequence[str] = ()
) -> tuple[str, ...]:
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
        *("-m", module, spec_uri, result_uri, *args),
    )


def pod_command(
    job: Shape, module: str, spec_uri: Uri, result_uri: Uri, *, args: Sequence[str] = ()
) -> tuple[str, ...]:
    """Torchrun in the one pod of a job on one node; ``python`` is the image's own.

    Raises ValueError for several nodes: those are an Indexed Job or a TrainJob (``operators.jobs.render``).
    """
    if job.nodes != 1:
        raise ValueError(f"nodes={job.nodes} do not fit into one pod; use nodes=1 and more GPUs, or the job operator")
    return local_command(job, "python", module, spec_uri, result_uri, args=args)


def node_command(name: str, job: Shape, restarts: int, words: Sequence[str]) -> tuple[str, ...]:
    """Torchrun in each pod of an Indexed Job: the agents meet at pod 0, which the headless Service ``name`` resolves."""
    return (
        *("python", "-m", "torch.distributed.run"),
        f"--nnodes={job.nodes}",
        f"--nproc-per-node={job.processes_per_node}",
        "--rdzv-backend=c10d",
        f"--rdzv-id={name}",
        f"--rdzv-endpoint={name}-0.{name}:{PORT}",
        f"--rdzv-conf=join_timeout={RENDEZVOUS_SECONDS},{NETWORK}",
        f"--max-restarts={restarts}",
        *("-m", *words),
    )


def trainer_command(restarts: int, words: Sequence[str]) -> tuple[str, ...]:
    """Torchrun in each pod of a TrainJob: its runtime sets nodes, processes and address as ``PET_*`` variables."""
    return (*("python", "-m", "torch.distributed.run"), f"--max-restarts={restarts}", *("-m", *words))


def pod_resources(job: Shape) -> dict[str, dict[str, str]]:
    """Kubernetes requests and limits of the pod of one node: memory and GPUs are hard, CPU may borrow."""
    processes = job.processes_per_node
    memory = {"memory": f"{job.memory_mib * processes}Mi"}
    gpus = {"nvidia.com/gpu": str(job.gpus_per_process * processes)} if job.gpus_per_process else {}
    return {"requests": {"cpu": str(job.cpus_per_process * processes), **memory, **gpus}, "limits": {**memory, **gpus}}
