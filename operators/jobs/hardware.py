"""The runtime environment of a training by hardware: each variable with the reason why it is set. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from operators.jobs.contract import TorchJob, declared
from training.contract import TorchJob as Shape

Place = Literal["local", "pod"]
HEARTBEAT_SECONDS = 300  # decisions.md 4.9: NCCL heartbeat 5 min
CUDA_CACHE_BYTES = 4 * 1024**3


class Variable(BaseModel, frozen=True, extra="forbid"):
    """One variable of the environment, and why it has this value."""

    name: str
    value: str
    reason: str


def profile(job: Shape, place: Place) -> tuple[Variable, ...]:
    """What the processes of a job get on this hardware and in this place; ``environment`` of the job comes on top."""
    whole = declared(job)
    return (*_threads(whole), *_gloo(whole, place), *_rendezvous(whole), *_gpus(whole))


def environment(job: Shape, place: Place) -> dict[str, str]:
    """The profile and the job's own variables as a mapping."""
    return {variable.name: variable.value for variable in profile(job, place)} | declared(job).environment


def _threads(job: TorchJob) -> tuple[Variable, ...]:
    why = "torchrun sets 1 when nothing is set, and warns; more threads than CPUs per process make all of them wait"
    return (Variable(name="OMP_NUM_THREADS", value=str(job.cpus_per_process), reason=why),)


def _gloo(job: TorchJob, place: Place) -> tuple[Variable, ...]:
    name = "GLOO_SOCKET_IFNAME"
    if place == "local":
        why = "gloo picks the interface of the host's name; behind a VPN, or without a name, that is the wrong one"
        return (Variable(name=name, value="lo", reason=why),)
    if job.nodes > 1:
        why = "a pod may have several interfaces, and only the pod network leads to the other pods"
        return (Variable(name=name, value=job.interface, reason=why),)
    return ()


def _rendezvous(job: TorchJob) -> tuple[Variable, ...]:
    if job.nodes == 1:
        return ()
    why = "with a shared store the first agent does not announce its address again, and a node that is replaced waits 60 s and dies"
    return (Variable(name="TORCH_DISABLE_SHARE_RDZV_TCP_STORE", value="1", reason=why),)


def _gpus(job: TorchJob) -> tuple[Variable, ...]:
    if not job.gpus_per_process:
        return ()
    return (
        Variable(
            name="TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
            value=str(HEARTBEAT_SECONDS),
            reason="a rank that left a collective holds the others; by default they notice after half an hour",
        ),
        Variable(
            name="TORCH_NCCL_ASYNC_ERROR_HANDLING",
            value="1",
            reason="a collective that failed ends its process, so that torchrun ends the others",
        ),
        Variable(
            name="NCCL_DEBUG", value="WARN", reason="the first warning names the link that failed, and costs nothing"
        ),
        Variable(
            name="CUDA_CACHE_MAXSIZE",
            value=str(CUDA_CACHE_BYTES),
            reason="kernels that were compiled at run time for this card; those of a large model do not fit into the default",
        ),
        *_links(job),
    )


def _links(job: TorchJob) -> tuple[Variable, ...]:
    bootstrap = Variable(
        name="NCCL_SOCKET_IFNAME",
        value=job.interface,
        reason="NCCL exchanges addresses over this device; another one may lead nowhere",
    )
    return {
        "cpu": (),
        "nvlink": (
            Variable(
                name="NCCL_IB_DISABLE",
                value="1",
                reason="the GPUs talk over NVLink; looking for InfiniBand costs time, and half-configured cards hang",
            ),
            *((bootstrap,) if job.nodes > 1 else ()),
        ),
        "infiniband": (
            Variable(
                name="NCCL_IB_DISABLE",
                value="0",
                reason="without it a missing driver means silent TCP, ten times slower",
            ),
            Variable(
                name="NCCL_IB_TIMEOUT",
                value="22",
                reason="4.1 us x 2^22 = 17 s: a switch that re-routes is no failure, and is over within that time",
            ),
            bootstrap,
        ),
        "ethernet": (
            Variable(
                name="NCCL_IB_DISABLE",
                value="1",
                reason="there is no InfiniBand; NCCL would search for it at each start",
            ),
            bootstrap,
        ),
    }[job.hardware]
