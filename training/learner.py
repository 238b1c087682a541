"""One optimiser step on this rank's share of a batch: strategy, precision, accumulation and clipping. The loop sees none of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from training.contract import FitOptions, Network
from training.distributed import KEPT, Ranks
from training.measures import Task

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
LEAST_SCALE = 1.0
"""A gradient scaler that had to go below this sees infinities that are not of fp16's making."""


class Objective(nn.Module):
    """The summed deciding loss of some rows: what is differentiated, in one forward call, as the gradient exchange wants.

    A classifier's ``logits`` are log odds; a regression's are its answers themselves. The loss itself is always fp32.
    """

    def __init__(self, network: nn.Module, task: Task, device: str, precision: str) -> None:
        super().__init__()
        self.network = network
        self.loss = functional.binary_cross_entropy_with_logits if task == "classification" else functional.l1_loss
        self.device, self.half = device, HALF.get(precision)

    def forward(self, numeric: Tensor, categorical: Tensor, label: Tensor) -> Tensor:
        """A scalar."""
        with torch.autocast(self.device, dtype=self.half) if self.half else nullcontext():
            logits = self.network.logits(numeric, categorical)
        return self.loss(logits.float(), label, reduction="sum")


class Step(NamedTuple):
    """This rank's summed loss, the norm of the ranks' mean gradient, and whether fp16 overflowed, so nothing was learnt."""

    loss: Tensor
    norm: float
    overflowed: bool


@dataclass
class Learner:
    """A network that learns step by step, the same on every rank."""

    network: Any
    objective: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    clip: float
    options: FitOptions

    def step(self, pieces: Sequence[tuple[Tensor, Tensor, Tensor]], scale: float) -> Step:
        """Learns from this rank's share, piece by piece; ``scale`` makes the ranks' mean of summed losses a mean over rows."""
        self.optimizer.zero_grad(set_to_none=True)
        summed: Tensor | None = None
        for place, piece in enumerate(pieces):
            with self._exchanging(last=place + 1 == len(pieces)):
                loss = self.objective(*piece)
                self.scaler.scale(loss * scale).backward()
            summed = loss.detach() if summed is None else summed + loss.detach()
        self.scaler.unscale_(self.optimizer)
        norm = self._clipped()
        overflowed = self.scaler.is_enabled() and self.scaler.get_scale() > LEAST_SCALE and not math.isfinite(norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        assert summed is not None  # noqa: S101  a share has at least one piece
        return Step(summed, norm, overflowed)

    @contextmanager
    def _exchanging(self, *, last: bool) -> Iterator[None]:
        """Gradients are exchanged with the last piece only."""
        if self.options.strategy == "fsdp":
            self.network.set_requires_gradient_sync(last)
            yield
            return
        with nullcontext() if last else self.objective.no_sync():
            yield

    def _clipped(self) -> float:
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
        return float(_joined(norm))

    def set_rate(self, rate: float) -> None:
        """The same learning rate for every parameter."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def state(self, best: Mapping[str, Tensor]) -> dict[str, Any]:
        """The tensors of a checkpoint by their names, the same for every strategy and world size; filled in place by a load."""
        from torch.distributed.checkpoint import state_dict as states  # noqa: PLC0415  0.7 s that not every rank needs

        return {
            "network": states.get_model_state_dict(self.network),
            "optimizer": states.get_optimizer_state_dict(self.network, self.optimizer),
            "best": dict(best),
        }

    def take(self, state: Mapping[str, Any]) -> None:
        """Goes on from a loaded state."""
        from torch.distributed.checkpoint import state_dict as states  # noqa: PLC0415  see above

        states.set_state_dict(
            self.network, self.optimizer, model_state_dict=state["network"], optim_state_dict=state["optimizer"]
        )

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights as this rank holds them."""
        return {name: value.detach().clone() for name, value in self.network.state_dict().items()}


def learner(network: Any, shape: Network, task: Task, options: FitOptions, ranks: Ranks) -> Learner:
    """Prepares a network that all ranks have built alike: placed, split or wrapped, and with its optimiser."""
    network.recompute = options.activation_checkpointing
    network.to(ranks.device)
    if options.strategy == "fsdp":
        _split(network, ranks)
    objective: Any = Objective(network, task, ranks.device.type, options.precision)
    if options.compile:
        objective.compile()
    if options.strategy == "ddp":
        objective = _wrapped(objective, ranks)
    optimizer = torch.optim.AdamW(network.parameters(), lr=shape.learning_rate, weight_decay=shape.weight_decay)
    scaler = torch.amp.GradScaler(ranks.device.type, enabled=options.precision == "fp16")
    return Learner(network, objective, optimizer, scaler, shape.gradient_clip, options)


def _wrapped(objective: nn.Module, ranks: Ranks) -> nn.Module:
    """With gradients averaged over the ranks; small networks fit one bucket, hence one all-reduce."""
    devices = [ranks.device] if ranks.device.type == "cuda" else None
    wrapped = nn.parallel.DistributedDataParallel(
        objective, device_ids=devices, forward_sync_buffers=False, gradient_as_bucket_view=True
    )
    KEPT.append(wrapped)
    return wrapped


def _split(network: Any, ranks: Ranks) -> None:
    """Each rank keeps its part of every layer; whole layers exist only while they work."""
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method  # noqa: PLC0415  only here

    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")  # nothing here writes into it
    mesh = dist.init_device_mesh(ranks.device.type, (ranks.world,), mesh_dim_names=("ranks",))
    for layer in network.layers():
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    register_fsdp_forward_method(network, "logits")
    KEPT.append(mesh)


def whole(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights with every part in place, on every rank; all ranks must ask for the same."""
    return {name: _joined(value) for name, value in weights.items()}


def _joined(value: Any) -> Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value
