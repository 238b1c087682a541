"""Ranks: joining the group, sums over it, and one answer for all; the training loop asks nobody else about ranks."""

from __future__ import annotations

import datetime as dt
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from artifacts.step import DataFault, LostPeer, TryAgain, progress
from training.contract import FitOptions, TorchJob

COLLECTIVE_TIMEOUT = dt.timedelta(minutes=5)  # field reports 84, 86: the defaults block a group for up to 90 minutes
LOST_PEER_WORDS = ("connection closed by peer", "connection reset by peer", "timed out", "broken pipe")
NO_MEMORY_WORDS = ("out of memory", "can't allocate memory")
SLOW_SECONDS = 5.0
"""Ranks that come together in less need no words; starting a Python process with torch takes about 3 s."""

KEPT: list[object] = []
"""What must live as long as the process: the wrapper that holds the group."""

HANDLES: deque[object] = deque(maxlen=256)
"""The newest collectives, so that this thread is the one that drops them.

A gloo thread that drops the last handle of a collective on a Python tensor takes the interpreter lock; when the group is
destroyed at that moment, its destructor holds the lock and joins the thread: a deadlock, after all work is done (seen with
torch 2.13.0; pytorch/pytorch#56297). So a group of several is never destroyed either, and ``leave`` ends the process
without destructors.
"""

log = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Ranks:
    """This process's place in the group. ``local`` is its place on its machine."""

    rank: int
    world: int
    device: torch.device
    store: Any
    local: int = 0

    @property
    def leads(self) -> bool:
        """Whether this is the one rank that writes."""
        return self.rank == 0

    def total(self, *values: float | Tensor) -> list[float]:
        """The sums of some numbers over all ranks, in float64; the same on every rank."""
        numbers = torch.tensor([float(value) for value in values], dtype=torch.float64, device=self.device)
        self._finish(dist.all_reduce(numbers, async_op=True))
        return numbers.tolist()

    def meet(self) -> None:
        """Returns when every rank has come here."""
        self.total(0.0)  # a sum of nothing would wait for nobody

    def each(self, value: float | Tensor) -> list[float]:
        """One number of every rank, in the order of ranks; the same on every rank."""
        return self.total(*(float(value) if rank == self.rank else 0.0 for rank in range(self.world)))

    def require_same(self, figures: Mapping[str, float]) -> None:
        """Raises DataFault where ranks differ in what all must share; they would learn different things, or wait for ever."""
        for name, value in figures.items():
            found = self.each(value)
            if other := [rank for rank, one in enumerate(found) if one != found[0]]:
                raise DataFault([
                    f"ranks: {name} is {found[0]:.17g} on rank 0 and {found[other[0]]:.17g} on rank {other[0]}; give every "
                    "rank the same image and the same view of the store"
                ])

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
        """Waits, and keeps the handle (see ``HANDLES``)."""
        work.wait()
        HANDLES.append(work)

    def once(self, work: Callable[..., Result], *arguments: Any) -> Result | None:
        """Runs something on rank 0 alone; the others get None and do not wait. Never with a collective inside."""
        return work(*arguments) if self.leads else None

    def say(self, fraction: float, doing: str, eta_seconds: float | None = None) -> None:
        """Progress, from one rank only."""
        if self.leads:
            progress(fraction, doing, eta_seconds)


@contextmanager
def joined(job: TorchJob, options: FitOptions = FitOptions()) -> Iterator[Ranks]:  # noqa: B008  a frozen value
    """Joins the group that the launcher made, or a group of one; leaves it at the end.

    Raises DataFault when the launcher started another number of processes than the job allows or memory runs out, and
    TryAgain when some rank does not come or a peer is lost while the block runs.
    """
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world not in job.world_sizes:
        raise DataFault([
            f"spec: job.world_size={job.world_size}, but {world} process(es) were started; launch `python -m "
            f"torch.distributed.run --nnodes={job.nodes} --nproc-per-node={job.processes_per_node} -m training.train`"
        ])
    try:
        yield _join(job, options, rank, world)
    except (MemoryError, RuntimeError) as error:
        if (explained := _explained(error, rank, world)) is not None:
            raise explained from error
        raise
    finally:
        if world == 1 and dist.is_initialized():
            dist.destroy_process_group()


def _join(job: TorchJob, options: FitOptions, rank: int, world: int) -> Ranks:
    if job.nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # else gloo binds to the host name's address
    torch.set_num_threads(job.cpus_per_process)
    device, local = torch.device("cpu"), int(os.environ.get("LOCAL_RANK", "0"))
    if job.gpus_per_process:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic matrix products
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(mode=True)
    ranks = Ranks(rank, world, device, _meeting(options.preflight_seconds, rank, world), local)
    present(ranks, options.preflight_seconds)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if job.gpus_per_process else "gloo",
        rank=rank,
        world_size=world,
        timeout=COLLECTIVE_TIMEOUT,
        store=ranks.store,
    )
    answered(ranks)
    return ranks


def _meeting(seconds: float, rank: int, world: int) -> Any:
    """The store through which the ranks find one another."""
    if "MASTER_ADDR" not in os.environ:
        return dist.HashStore()
    limit = dt.timedelta(seconds=seconds)
    try:
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            return next(dist.rendezvous("env://", rank, world, timeout=limit))[0]
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        return dist.TCPStore(address, port, world, is_master=rank == 0, timeout=limit, wait_for_workers=False)
    except RuntimeError as error:  # the store's own errors are of this type
        raise TryAgain(f"preflight: rank {rank} of {world} found no store within {seconds:g} s: {error}") from error


def present(ranks: Ranks, seconds: float) -> None:
    """Waits until every rank has come, or raises TryAgain that names those which did not (field report 86)."""
    began, late = time.monotonic(), []
    ranks.store.set(f"present/{ranks.rank}", "yes")
    for rank in range(ranks.world):
        left = seconds - (time.monotonic() - began)
        try:
            ranks.store.wait([f"present/{rank}"], dt.timedelta(seconds=max(left, 0.001)))
        except RuntimeError:
            late.append(rank)
    if late:
        raise TryAgain(
            f"preflight: rank(s) {', '.join(map(str, late))} of {ranks.world} did not come within {seconds:g} s; look at "
            "their logs, or raise options.preflight_seconds"
        )
    if (waited := time.monotonic() - began) > SLOW_SECONDS:
        log.warning("preflight: rank %d waited %.1f s for the others", ranks.rank, waited)


def answered(ranks: Ranks) -> None:
    """One sum over all ranks, checked; raises TryAgain when it is wrong, and says which rank was slowest to it."""
    began = time.monotonic()
    if ranks.total(ranks.rank + 1)[0] != ranks.world * (ranks.world + 1) / 2:
        raise TryAgain("preflight: the ranks' sum is wrong; the network between them alters what it carries")
    waits = ranks.each(time.monotonic() - began)
    if max(waits) > SLOW_SECONDS:  # who waited least came last
        log.warning("preflight: rank %d was %.1f s later than the first", waits.index(min(waits)), max(waits))


def _explained(error: Exception, rank: int, world: int) -> Exception | None:
    """What an error of the group or of memory amounts to; None for others."""
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError) or any(words in str(error).lower() for words in NO_MEMORY_WORDS):
        return DataFault([
            f"memory: rank {rank} of {world} ran out of memory; raise options.accumulation, set "
            f"options.activation_checkpointing, lower network.global_batch or give it more ({said})"
        ])
    if not isinstance(error, TryAgain) and any(words in str(error).lower() for words in LOST_PEER_WORDS):
        return LostPeer(f"rank {rank} of {world} lost a peer: {error}")
    return None


def leave(code: int) -> NoReturn:
    """Ends the process with an exit code and without destructors, one of which may never return (see ``HANDLES``)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
