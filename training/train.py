"""Fits one network on one training set, on all ranks that the launcher started; goes on from its own checkpoint.

Launch with ``python -m torch.distributed.run ... -m training.train <spec> <result>``, or without it where
``job.world_size`` is 1. All randomness is a function of (seed, epoch, step, rank), so a fit that was killed and
resumed ends with the same bytes as one that was not.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from artifacts.refs import Digest, key_digest
from artifacts.step import DataFault, step
from artifacts.store import publish
from training import checkpoint
from training.contract import FitRef, Network, TrainSpec
from training.data import Encoded, Material, batch, constant_answer, epoch_order, material, shard, steps_per_epoch
from training.distributed import Ranks, joined, leave
from training.fit import (
    CURVE_FILE,
    FIT_FILE,
    WEIGHTS_FILE,
    Epoch,
    FitRecord,
    build_network,
    forward_in_batches,
    weights_bytes,
)
from training.measures import DECIDING, Task
from training.report import curve_svg

CHECKPOINTS_PER_RUN = 20  # one for every 5 % of a run (decisions.md 4.10)
READING_SHARE = 0.05  # of the progress bar


@dataclass
class State:
    """How far a fit is; with the weights and the optimiser it is all that a checkpoint holds."""

    step: int = 0
    running: float = 0.0
    grad_norm_max: float = 0.0
    curve: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0
    best_loss: float = math.inf
    best_weights: dict[str, Tensor] = field(default_factory=dict)


class Objective(nn.Module):
    """The summed deciding loss of some rows: what is differentiated, in one forward call, as the gradient exchange wants.

    A classifier's ``logits`` are log odds; a regression's are its answers themselves.
    """

    def __init__(self, network: nn.Module, task: Task) -> None:
        super().__init__()
        self.network = network
        self.loss = functional.binary_cross_entropy_with_logits if task == "classification" else functional.l1_loss

    def forward(self, numeric: Tensor, categorical: Tensor, label: Tensor) -> Tensor:
        """A scalar."""
        return self.loss(self.network.logits(numeric, categorical), label, reduction="sum")


@dataclass(frozen=True)
class Tensors:
    """Encoded rows on the training device."""

    numeric: Tensor
    categorical: Tensor
    label: Tensor

    @classmethod
    def of(cls, rows: Encoded, device: torch.device) -> Tensors:
        """Moves rows to a device."""
        arrays = (rows.numeric, rows.categorical, rows.label)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))

    def __getitem__(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.numeric[index], self.categorical[index], self.label[index]


def train(spec: TrainSpec) -> FitRef | None:  # noqa: PLR0915  the loop reads top to bottom (house style 26)
    """Fits and publishes; returns the reference on rank 0 and None on the others."""
    started = time.monotonic()
    with joined(spec.job) as ranks:
        # set up: every rank reads the same rows and begins with the same weights
        ranks.say(0.0, "reading the training set")
        found = material(spec)
        torch.manual_seed(spec.seed)
        network: Any = build_network(spec.model, found.signature, spec.network, found.mean, found.std)
        network.start_at(constant_answer(found.train.label, spec.task))
        objective = ranks.wrap(Objective(network.to(ranks.device), spec.task))
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=spec.network.learning_rate, weight_decay=spec.network.weight_decay
        )
        rows = Tensors.of(found.train, ranks.device)
        epochs = spec.epochs or spec.network.max_epochs
        steps = steps_per_epoch(len(found.train), spec.network.global_batch)
        save_every = max(1, steps * epochs // CHECKPOINTS_PER_RUN)
        where, key = checkpoint.folder(spec.output), work_key(spec)

        # restore: rank 0 reads, so that all go on from the same step even if one of them sees another folder
        state = State()
        resumed = ranks.once(checkpoint.newest, where, key)
        content = ranks.shared(resumed.content if resumed else None)
        if content:
            saved = checkpoint.state_of(content)
            network.load_state_dict(saved["network"])
            optimizer.load_state_dict(saved["optimizer"])
            state = State(**saved["progress"])
        else:
            state.curve.append(measured(0, network, found, ranks, spec.task))
        begun, seen = time.monotonic(), 0

        for epoch in range(state.step // steps, epochs):
            if ranks.agreed(decision=stale(state, spec)):
                break
            network.train()
            order = epoch_order(len(found.train), spec.seed, epoch)
            loss_sum = torch.zeros((), dtype=torch.float64, device=ranks.device)
            for place in range(state.step % steps, steps):
                # step: each rank's summed loss is scaled so that the ranks' average is the mean over a full batch
                chosen = batch(order, place, spec.network.global_batch)
                torch.manual_seed(step_seed(spec.seed, state.step, ranks.rank))
                set_learning_rate(optimizer, learning_rate(state.step, steps, spec.network))
                loss = objective(*rows[torch.from_numpy(shard(chosen, ranks.rank, ranks.world)).to(ranks.device)])
                optimizer.zero_grad(set_to_none=True)
                (loss * (ranks.world / spec.network.global_batch)).backward()
                norm = float(nn.utils.clip_grad_norm_(network.parameters(), spec.network.gradient_clip))
                require_finite(norm, state.step, spec)
                optimizer.step()
                loss_sum += loss.detach()
                state.step += 1
                state.grad_norm_max = max(state.grad_norm_max, norm)
                seen += len(chosen)
                ranks.say(*pace(state.step, steps * epochs, seen, time.monotonic() - begun))

                # save: the sum so far is reduced and forgotten here, resumed or not, so both add in the same order
                if state.step % save_every == 0 and place + 1 < steps:
                    state.running += ranks.total(loss_sum)[0]
                    loss_sum.zero_()
                    ranks.once(checkpoint.save, where, key, state.step, snapshot(network, optimizer, state))

            # measure: the validation loss is reduced before anyone compares it
            state.running += ranks.total(loss_sum)[0]
            state.curve.append(
                measured(epoch + 1, network, found, ranks, spec.task, train=state.running / len(found.train))
            )
            state.running = 0.0
            judged = state.curve[-1]["validation"]
            if judged is None or judged < state.best_loss:
                state.best_epoch, state.best_loss = epoch + 1, judged or math.inf
                state.best_weights = {name: value.clone() for name, value in network.state_dict().items()}
            ranks.once(checkpoint.save, where, key, state.step, snapshot(network, optimizer, state))

        # leave: one rank writes, once
        ref = ranks.once(published, spec, found, state, facts_of(resumed, ranks), time.monotonic() - started)
        ranks.once(checkpoint.clear, where)
        return ref


def work_key(spec: TrainSpec) -> Digest:
    """What a checkpoint must belong to: everything that shapes the weights."""
    return key_digest(spec.model_dump(mode="json", exclude={"output"}))


def stale(state: State, spec: TrainSpec) -> bool:
    """Whether the evaluation fit has gone on for ``patience`` epochs without a better validation loss."""
    done = len(state.curve) - 1
    return spec.fit == "evaluation" and done - state.best_epoch >= max(1, spec.network.patience)


def step_seed(seed: int, at: int, rank: int) -> int:
    """The seed of one step's dropout on one rank; nothing random is carried from step to step."""
    return int(np.random.SeedSequence((seed, at, rank)).generate_state(1)[0])


def learning_rate(at: int, steps: int, network: Network) -> float:
    """Linear warm-up, then a cosine to zero at ``max_epochs``: both fits of a version follow the same curve."""
    total = steps * network.max_epochs
    warm = max(1, round(total * network.warmup_share))
    if at < warm:
        return network.learning_rate * (at + 1) / warm
    return network.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, (at - warm) / max(1, total - warm))))


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The same rate for every parameter."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def require_finite(norm: float, at: int, spec: TrainSpec) -> None:
    """Raises DataFault when the gradient is no number; it is the same on every rank, so all stop together."""
    if not math.isfinite(norm):
        raise DataFault([
            f"training: the gradient norm is {norm} at step {at}; lower network.learning_rate "
            f"(it is {spec.network.learning_rate}) or look for broken values in {spec.dataset.uri}"
        ])


def measured(
    epoch: int, network: Any, found: Material, ranks: Ranks, task: Task, train: float | None = None
) -> dict[str, float | int | None]:
    """One point of the learning curve; the training loss is computed only where it is not known yet."""
    return {
        "epoch": epoch,
        "train": mean_loss(network, found.train, ranks, task) if train is None else train,
        "validation": None if found.validation is None else mean_loss(network, found.validation, ranks, task),
    }


def mean_loss(network: Any, rows: Encoded, ranks: Ranks, task: Task) -> float:
    """Mean deciding loss over some rows, each rank scoring its share; the same number on every rank."""
    own = slice(ranks.rank, None, ranks.world)
    numeric, categorical, label = (
        torch.from_numpy(array[own]).to(ranks.device) for array in (rows.numeric, rows.categorical, rows.label)
    )
    network.eval()
    with torch.inference_mode():
        score = forward_in_batches(network, numeric, categorical)[:, 0].double()
        measure = functional.binary_cross_entropy if task == "classification" else functional.l1_loss
        loss = measure(score, label.double(), reduction="sum")
    return ranks.total(loss)[0] / len(rows)


def pace(done_steps: int, all_steps: int, rows: int, seconds: float) -> tuple[float, str]:
    """Fraction and words for the progress bar, with the rate in rows per second."""
    fraction = READING_SHARE + (1 - READING_SHARE) * done_steps / all_steps
    return fraction, f"step {done_steps} of {all_steps}, {rows / max(seconds, 1e-9):,.0f} rows/s"


def snapshot(network: nn.Module, optimizer: torch.optim.Optimizer, state: State) -> dict[str, Any]:
    """What a checkpoint holds."""
    return {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "progress": asdict(state)}


def facts_of(resumed: checkpoint.Checkpoint | None, ranks: Ranks) -> dict[str, Any]:
    """What readers may want to know of how it ran; no part of the digest."""
    skipped = list(resumed.skipped) if resumed else []
    return {"world_size": ranks.world, "resumed": resumed is not None, "checkpoints_skipped": skipped}


def published(spec: TrainSpec, found: Material, state: State, facts: dict[str, Any], seconds: float) -> FitRef:
    """Publishes the weights of the best epoch (of the last one, for the final fit) and their record."""
    curve = tuple(Epoch.model_validate(point) for point in state.curve)
    record = FitRecord(
        model=spec.model,
        signature=found.signature,
        mean=found.mean,
        std=found.std,
        epochs=state.best_epoch,
        curve=curve,
        seed=spec.seed,
        world_size=spec.job.world_size,
        network=spec.network,
        base_rate=constant_answer(found.train.label, spec.task),
    )
    with publish(spec.output, f"{spec.fit}-fit") as draft:
        (draft.path / WEIGHTS_FILE).write_bytes(weights_bytes(state.best_weights))
        (draft.path / FIT_FILE).write_text(record.model_dump_json(indent=1))
        (draft.path / CURVE_FILE).write_text(
            curve_svg([(p.epoch, p.train, p.validation) for p in curve], DECIDING[spec.task].title)
        )
        draft.facts = {"training_key": spec.training_key, "epochs": record.epochs, **facts}
    assert draft.manifest is not None  # noqa: S101  publish sets it
    return FitRef(
        uri=spec.output,
        digest=draft.manifest.digest,
        training_key=spec.training_key,
        model=spec.model,
        fit=spec.fit,
        dataset=spec.dataset,
        columns=spec.columns,
        network=spec.network,
        seed=spec.seed,
        epochs=record.epochs,
        rows=len(found.train),
        train_last=found.train_last,
        seen_last=found.seen_last,
        loss_first=curve[0].train,
        loss_last=curve[record.epochs].train,
        grad_norm_max=state.grad_norm_max,
        base_rate=record.base_rate,
        seconds=seconds,
        task=spec.task,
    )


if __name__ == "__main__":
    leave(step(train, TrainSpec))
