"""The declaration of a training job: what runs, where, for whom and how long. A value; rendered by ``operators.jobs.render``."""

from __future__ import annotations

import datetime as dt
import re
from typing import Literal

from pydantic import Field, JsonValue, model_validator

from artifacts.secret import passwords_in
from training.contract import TorchJob as Shape

Hardware = Literal["cpu", "nvlink", "infiniband", "ethernet"]
Topology = Literal["any", "same-node", "nvlink", "same-rack"]
LONGEST = dt.timedelta(hours=24)  # decisions.md 4.9
IMAGE = re.compile(r"@sha256:[0-9a-f]{64}$")
OF_THE_LAUNCHER = frozenset({
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"),
    *(
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "CUDA_VISIBLE_DEVICES",
    ),
})
OF_THE_PROFILE = ("OMP_", "GLOO_", "NCCL_", "TORCH_", "CUDA_CACHE_")


class TorchJob(Shape, frozen=True, extra="forbid"):
    """A training as its owner declares it: the shape that the payload knows, and all that only the platform needs.

    ``args`` follow spec and result on the command line. ``hardware`` chooses the runtime profile (``operators.jobs.hardware``),
    ``interface`` the network device of a pod. ``options`` are the fit's own (strategy, precision and so on), by value.
    ``estimate_hours`` is the wall time to reserve budget for where no history says better.
    """

    framework: Literal["torch"] = "torch"
    version: str = Field(default="2.13.0", pattern=r"^\d+\.\d+\.\d+$")
    entry_point: str = Field(default="training.train", pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")
    args: tuple[str, ...] = ()
    model: str = ""
    owner: str = Field(default="unowned", min_length=1)
    tenant: str = Field(default="default", pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    image: str = ""
    hardware: Hardware = "cpu"
    interface: str = Field(default="eth0", min_length=1)
    gpu_topology: Topology = "any"
    queue: str = ""
    priority: str = ""
    deadline: dt.timedelta = Field(default=LONGEST, gt=dt.timedelta(0), le=LONGEST)
    max_restarts: int = Field(default=1, ge=0, le=3)
    min_processes_per_node: int = Field(default=1, gt=0)
    estimate_hours: float = Field(default=1.0, gt=0)
    environment: dict[str, str] = Field(default_factory=dict)
    stores: tuple[str, ...] = ()
    options: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """The part that is in a training's spec, and so in its key: who pays and where it queues changes no weight."""
        return Shape(**{name: getattr(self, name) for name in Shape.model_fields})

    @property
    def gpus(self) -> int:
        """GPUs of all nodes together."""
        return self.gpus_per_process * self.world_size

    @property
    def unit(self) -> Literal["gpu", "core"]:
        """What is metered: GPUs, and CPU cores where a job has none."""
        return "gpu" if self.gpus else "core"

    @property
    def units(self) -> int:
        """How many of its unit a job holds while it runs."""
        return self.gpus or self.cpus_per_process * self.world_size

    @property
    def units_per_node(self) -> int:
        """How many of its unit one pod holds."""
        return self.units // self.nodes

    @model_validator(mode="after")
    def _consistent(self) -> TorchJob:
        problems = [*_hardware(self), *_placement(self), *_process(self), *_environment(self)]
        if problems:
            raise ValueError("\n".join(problems))
        return self


def declared(shape: Shape) -> TorchJob:
    """A bare shape as a whole declaration: nobody's in particular, on the least that its GPUs can be connected by."""
    if isinstance(shape, TorchJob):
        return shape
    hardware: Hardware = "cpu" if not shape.gpus_per_process else "nvlink" if shape.nodes == 1 else "ethernet"
    return TorchJob(**shape.model_dump(), hardware=hardware)


def _hardware(job: TorchJob) -> list[str]:
    found = []
    if (job.hardware == "cpu") != (job.gpus_per_process == 0):
        fix = (
            "hardware=nvlink, infiniband or ethernet" if job.gpus_per_process else "gpus_per_process=1, or hardware=cpu"
        )
        found.append(f"hardware={job.hardware} with gpus_per_process={job.gpus_per_process}; use {fix}")
    if job.hardware == "nvlink" and job.nodes > 1 and job.gpu_topology != "nvlink":
        found.append(
            f"hardware=nvlink with nodes={job.nodes} and gpu_topology={job.gpu_topology}: NVLink ends at the node unless all are "
            "in one NVLink domain; use gpu_topology=nvlink, or hardware=infiniband"
        )
    return found


def _placement(job: TorchJob) -> list[str]:
    found = []
    if job.gpu_topology != "any" and not job.gpus_per_process:
        found.append(f"gpu_topology={job.gpu_topology} with gpus_per_process=0; use gpu_topology=any")
    if job.gpu_topology != "any" and not job.queue:
        found.append(f"gpu_topology={job.gpu_topology} without a queue: Kueue places by topology; name a queue")
    if job.gpu_topology == "same-node" and job.nodes > 1:
        found.append(f"gpu_topology=same-node with nodes={job.nodes}; use nodes=1, or gpu_topology=same-rack")
    if job.priority and not job.queue:
        found.append(f"priority={job.priority} without a queue: priorities order a queue; name one")
    return found


def _process(job: TorchJob) -> list[str]:
    found = []
    if job.min_processes_per_node > job.processes_per_node:
        found.append(
            f"min_processes_per_node={job.min_processes_per_node} with processes_per_node={job.processes_per_node}; "
            f"use at most {job.processes_per_node}"
        )
    if job.options.get("strategy") == "fsdp" and job.world_size == 1:
        found.append("strategy=fsdp with world_size=1 has nobody to share with; use strategy=ddp, or more processes")
    if job.options.get("precision") == "fp16" and not job.gpus_per_process:
        found.append("precision=fp16 with gpus_per_process=0: processors have bf16; use precision=bf16 or fp32")
    if job.image and not IMAGE.search(job.image):
        found.append(f"image={job.image} has no digest; write it as name@sha256:<64 hex digits>")
    return found


def _environment(job: TorchJob) -> list[str]:
    taken = sorted(name for name in job.environment if name in OF_THE_LAUNCHER or name.startswith(OF_THE_PROFILE))
    found = [
        f"environment.{name}: torchrun or the hardware profile sets it; leave it out, or choose another hardware"
        for name in taken
    ]
    secret = passwords_in(dict(job.environment))
    return found + [
        f"environment.{name}: a URL with a password, and many read a job; use a declared store" for name in secret
    ]
