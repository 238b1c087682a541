"""Ranks: joining the group, sums over it, and one answer for all; the training loop asks nobody else about ranks."""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from artifacts.step import DataFault, TryAgain, progress
from training.contract import TorchJob

COLLECTIVE_TIMEOUT = dt.timedelta(minutes=5)  # field reports 84, 86: the defaults block a group for up to 90 minutes
LOST_PEER_WORDS = ("connection closed by peer", "connection reset by peer", "timed out", "broken pipe")

KEPT: list[object] = []
"""What must live as long as the process: the handles of collectives, and the wrapper that holds the group.

A gloo thread that drops the last handle of a collective on a Python tensor takes the interpreter lock; when the group is
destroyed at that moment, its destructor holds the lock and joins the thread: a deadlock, after all work is done (seen with
torch 2.13.0; pytorch/pytorch#56297). So nothing here is ever freed, and ``leave`` ends the process without destructors.
"""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Ranks:
    """This process's place in the group."""

    rank: int
    world: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this is the one rank that writes."""
        return self.rank == 0

    def total(self, *values: float | Tensor) -> list[float]:
        """The sums of some numbers over all ranks, in float64; the same on every rank."""
        numbers = torch.tensor([float(value) for value in values], dtype=torch.float64, device=self.device)
        self._finish(dist.all_reduce(numbers, async_op=True))
        return numbers.tolist()

    def agreed(self, *, decision: bool) -> bool:
        """Rank 0's decision, on every rank: decisions are taken once (field report 89)."""
        return self.total(float(decision and self.leads))[0] > 0

    def shared(self, content: bytes | None) -> bytes | None:
        """Rank 0's bytes, on every rank; None where it has none."""
        length = int(self.total(float(len(content)) if self.leads and content is not None else 0.0)[0])
        if not length:
            return None
        source = bytearray(content) if self.leads and content is not None else bytearray(length)
        carried = torch.frombuffer(source, dtype=torch.uint8).to(self.device)
        self._finish(dist.broadcast(carried, src=0, async_op=True))
        return carried.cpu().numpy().tobytes()

    def _finish(self, work: dist.Work) -> None:
        """Waits, and keeps the handle (see ``KEPT``)."""
        work.wait()
        KEPT.append(work)

    def wrap(self, network: nn.Module) -> DistributedDataParallel:
        """The network with its gradients averaged over the ranks; small networks fit one bucket, hence one all-reduce."""
        devices = [self.device] if self.device.type == "cuda" else None
        wrapped = DistributedDataParallel(
            network, device_ids=devices, forward_sync_buffers=False, gradient_as_bucket_view=True
        )
        KEPT.append(wrapped)
        return wrapped

    def once(self, work: Callable[..., Result], *arguments: Any) -> Result | None:
        """Runs something on rank 0 alone; the others get None and do not wait."""
        return work(*arguments) if self.leads else None

    def say(self, fraction: float, doing: str) -> None:
        """Progress, from one rank only."""
        if self.leads:
            progress(fraction, doing)


@contextmanager
def joined(job: TorchJob) -> Iterator[Ranks]:
    """Joins the group that the launcher made, or a group of one; leaves it at the end.

    Raises DataFault when the launcher started another number of processes than the spec says, and TryAgain when a
    peer is lost while the block runs.
    """
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world != job.world_size:
        raise DataFault([
            f"spec: job.world_size={job.world_size}, but {world} process(es) were started; launch `python -m "
            f"torch.distributed.run --nnodes={job.nodes} --nproc-per-node={job.processes_per_node} -m training.train`"
        ])
    if job.nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # else gloo binds to the host name's address
    torch.set_num_threads(job.cpus_per_process)
    device = torch.device("cpu")
    if job.gpus_per_process:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic matrix products
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(mode=True)
    meeting = {"init_method": "env://"} if "MASTER_ADDR" in os.environ else {"store": dist.HashStore()}
    ranks = Ranks(rank, world, device)
    try:
        dist.init_process_group(
            "nccl" if job.gpus_per_process else "gloo",
            rank=rank,
            world_size=world,
            timeout=COLLECTIVE_TIMEOUT,
            **meeting,
        )
        yield ranks
    except RuntimeError as error:
        if any(word in str(error).lower() for word in LOST_PEER_WORDS):
            raise TryAgain(f"rank {rank} of {world} lost a peer: {error}") from error
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def leave(code: int) -> NoReturn:
    """Ends the process with an exit code and without destructors, one of which may never return (see ``KEPT``)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
