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
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from artifacts.refs import Digest, key_digest
from artifacts.step import DataFault, TryAgain, step
from artifacts.store import publish
from training import checkpoint
from training.contract import FitRef, Network, TrainSpec
from training.data import Encoded, Material, batch, constant_answer, epoch_order, shard, steps_per_epoch
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
from training.learner import Learner, Step, learner, whole
from training.mapped import shared_material
from training.measures import DECIDING, Task
from training.pace import Orders, Pace, stoppable, watching
from training.report import curve_svg


@dataclass
class State:
    """How far a fit is; with the tensors of the learner and of the best epoch it is all that a checkpoint holds.

    ``summed`` is each rank's training loss of the running epoch: added up over ranks only where the epoch ends, so that
    when a fit saves changes no bit of what it reports.
    """

    step: int = 0
    summed: list[float] = field(default_factory=list)
    grad_norm_max: float = 0.0
    curve: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0
    best_loss: float | None = None
    scaler: dict[str, Any] = field(default_factory=dict)


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

    def pieces(self, chosen: npt.NDArray[np.int64], count: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Some rows in ``count`` pieces that differ by one row at most; a short batch may leave empty ones."""
        return [self[torch.from_numpy(part).to(self.label.device)] for part in np.array_split(chosen, count)]


def train(spec: TrainSpec) -> FitRef | None:  # noqa: C901, PLR0915  the loop reads top to bottom (house style 26)
    """Fits and publishes; returns the reference on rank 0 and None on the others."""
    started = time.monotonic()
    with stoppable() as asked, joined(spec.job, spec.options) as ranks, watching(ranks, spec.options) as watch:
        # set up: every rank reads the same rows and begins with the same weights
        ranks.say(0.0, "reading the training set")
        found = shared_material(spec, ranks)
        torch.manual_seed(spec.seed)
        network: Any = build_network(spec.model, found.signature, spec.network, found.mean, found.std)
        network.start_at(constant_answer(found.train.label, spec.task))
        ranks.require_same({
            "the number of rows": len(found.train),
            "the sum of the first weights": weight_sum(network),
        })
        model = learner(network, spec.network, spec.task, spec.options, ranks)
        rows = Tensors.of(found.train, ranks.device)
        epochs = spec.epochs or spec.network.max_epochs
        steps = steps_per_epoch(len(found.train), spec.network.global_batch)
        where, key = checkpoint.folder(spec.output), work_key(spec)

        # resume: from the newest whole checkpoint, as rank 0 sees it
        state, best = State(), model.weights()
        resumed = checkpoint.agreed(ranks, where, key)
        if resumed:
            tensors = model.state(best)
            checkpoint.load(resumed, tensors)
            model.take(tensors)
            state, best = State(**resumed.progress), tensors["best"]
            model.scaler.load_state_dict(state.scaler)
        else:
            state.curve.append(measured(0, network, found, ranks, spec))
        pace = Pace(ranks, spec.options.checkpoint, state.step, steps * epochs, asked)

        for epoch in range(state.step // steps, epochs):
            if ranks.agreed(decision=stale(state, spec)):
                break
            network.train()
            order = epoch_order(len(found.train), spec.seed, epoch)
            loss_sum = own_sum(state.summed, ranks)
            for place in range(state.step % steps, steps):
                # step: each rank's summed loss is scaled so that the ranks' average is the mean over a full batch
                watch.say(state.step, "learning")
                chosen = batch(order, place, spec.network.global_batch)
                model.set_rate(learning_rate(state.step, steps, spec.network))
                done = learn(spec, ranks, model, rows, chosen, state.step)
                if not done.overflowed:
                    require_finite("gradient norm", done.norm, f"step {state.step}", spec)
                    state.grad_norm_max = max(state.grad_norm_max, done.norm)
                loss_sum += done.loss
                state.step += 1
                pace.rows += len(chosen)

                # look up: all ranks save, or save and stop, or none does; the last step of an epoch is measured first
                if place + 1 < steps:
                    orders = pace.look(state.step)
                    if orders.save:
                        state.summed = ranks.each(loss_sum)
                        save(ranks, spec, model, state, best)
                    leave_if(orders, state.step, steps * epochs)

            # measure: the losses are reduced before anyone compares them
            watch.say(state.step, "measuring")
            train_loss = ranks.total(loss_sum)[0] / len(found.train)
            state.curve.append(measured(epoch + 1, network, found, ranks, spec, train=train_loss))
            state.summed = []
            judged = state.curve[-1]["validation"]
            if judged is None or state.best_loss is None or judged < state.best_loss:
                state.best_epoch, state.best_loss = epoch + 1, judged
                best = model.weights()
            orders = pace.look(state.step, now=True)
            if orders.save:
                save(ranks, spec, model, state, best)
            leave_if(orders, state.step, steps * epochs)

        # leave: one rank writes, once
        weights = whole(best)
        ref = ranks.once(published, spec, found, state, weights, facts_of(resumed, ranks), time.monotonic() - started)
        ranks.once(checkpoint.clear, where)
        return ref


def learn(spec: TrainSpec, ranks: Ranks, model: Learner, rows: Tensors, chosen: npt.NDArray[np.int64], at: int) -> Step:
    """One step, number ``at``, on the rows of one global batch."""
    pieces = rows.pieces(shard(chosen, ranks.rank, ranks.world), spec.options.accumulation)
    torch.manual_seed(step_seed(spec.seed, at, ranks.rank))
    return model.step(pieces, ranks.world / spec.network.global_batch)


def work_key(spec: TrainSpec) -> Digest:
    """What a checkpoint must belong to: everything that shapes the weights, but for how many processes share the work.

    A fit may go on with fewer nodes than it began with, or with parts of a model that was whole.
    """
    work = spec.model_dump(mode="json", exclude={"output", "job", "options"})
    return key_digest({**work, "precision": spec.options.precision})


def weight_sum(network: torch.nn.Module) -> float:
    """The sum of all weights and buffers; equal networks have equal sums."""
    return sum(float(value.double().sum()) for value in network.state_dict().values())


def own_sum(summed: list[float], ranks: Ranks) -> Tensor:
    """This rank's training loss of the running epoch so far; with another number of ranks than saved it, rank 0 has all."""
    same = len(summed) == ranks.world
    own = summed[ranks.rank] if same else math.fsum(summed) * ranks.leads
    return torch.tensor(own, dtype=torch.float64, device=ranks.device)


def save(ranks: Ranks, spec: TrainSpec, model: Learner, state: State, best: dict[str, Tensor]) -> None:
    """One checkpoint: by rank 0 where it holds everything, by all ranks where each holds its part."""
    where, key, keep = checkpoint.folder(spec.output), work_key(spec), spec.options.checkpoint.keep
    state.scaler = model.scaler.state_dict()
    if spec.options.strategy == "fsdp":
        checkpoint.save_parts(ranks, where, key, state.step, model.state(best), asdict(state), keep)
    elif ranks.leads:
        checkpoint.save(where, key, state.step, model.state(best), asdict(state), keep)


def leave_if(orders: Orders, step: int, steps: int) -> None:
    """Raises TryAgain on every rank when one of them was told to stop; what was learnt has just been saved."""
    if orders.stop:
        raise TryAgain(f"told to stop (SIGTERM) at step {step} of {steps}; it is saved, run it again to go on")


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


def require_finite(what: str, value: float, at: str, spec: TrainSpec) -> None:
    """Raises DataFault when a figure is no number; it is the same on every rank, so all stop together."""
    if not math.isfinite(value):
        raise DataFault([
            f"training: the {what} is {value} at {at}; lower network.learning_rate (it is {spec.network.learning_rate}) "
            f"or look for broken values in {spec.dataset.uri}"
        ])


def measured(
    epoch: int, network: Any, found: Material, ranks: Ranks, spec: TrainSpec, train: float | None = None
) -> dict[str, float | int | None]:
    """One point of the learning curve; the training loss is computed only where it is not known yet."""
    held = found.validation
    losses = {
        "train": mean_loss(network, found.train, ranks, spec.task) if train is None else train,
        "validation": None if held is None else mean_loss(network, held, ranks, spec.task),
    }
    for name, loss in losses.items():
        require_finite(f"{name} loss", 0.0 if loss is None else loss, f"the end of epoch {epoch}", spec)
    return {"epoch": epoch, **losses}


def mean_loss(network: Any, rows: Encoded, ranks: Ranks, task: Task) -> float:
    """Mean deciding loss over some rows, each rank scoring its share; the same number on every rank."""
    own = slice(ranks.rank, None, ranks.world)
    numeric, categorical, label = (
        torch.from_numpy(array[own]).to(ranks.device) for array in (rows.numeric, rows.categorical, rows.label)
    )
    network.eval()
    with torch.no_grad():
        score = forward_in_batches(network, numeric, categorical, -(-len(rows) // ranks.world))[:, 0].double()
        measure = functional.binary_cross_entropy if task == "classification" else functional.l1_loss
        loss = measure(score, label.double(), reduction="sum")
    return ranks.total(loss)[0] / len(rows)


def facts_of(resumed: checkpoint.Checkpoint | None, ranks: Ranks) -> dict[str, Any]:
    """What readers may want to know of how it ran; no part of the digest."""
    skipped = list(resumed.skipped) if resumed else []  # only rank 0 knows, and only rank 0 publishes
    return {"world_size": ranks.world, "resumed": resumed is not None, "checkpoints_skipped": skipped}


def published(
    spec: TrainSpec, found: Material, state: State, weights: dict[str, Tensor], facts: dict[str, Any], seconds: float
) -> FitRef:
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
        (draft.path / WEIGHTS_FILE).write_bytes(weights_bytes(weights))
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
