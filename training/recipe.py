"""What every recipe in ``training/recipes`` is made of, and how its versions get their key and their two specs. Pure and light."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from artifacts.refs import Digest, Uri, key_digest
from feature_repo.contract import DatasetRef
from training.contract import Columns, FitOptions, Network, SplitPolicy, TorchJob, TrainSpec, Windows
from training.measures import Task


class Recipe(BaseModel, frozen=True, extra="forbid"):
    """All that shapes the weights of a model, but for its data and its code."""

    model: str
    columns: Columns
    task: Task
    network: Network
    split: SplitPolicy
    seed: int
    options: FitOptions = FitOptions()

    def training_key(
        self,
        dataset: DatasetRef,
        code: Digest,
        *,
        job: TorchJob = TorchJob(),  # noqa: B008  a frozen value
        salt: str = "",
    ) -> Digest:
        """The identity of a version: both of its fits share it. ``salt`` is the decision id of a forced retrain.

        The world size is part of it, because the order of floating-point sums follows it; pods and memory are not, nor
        when a fit saves or gives up.
        """
        parts = {
            "model": self.model,
            "dataset": dataset.key,
            "code": code,
            "columns": self.columns,
            "split": self.split,
            "network": self.network,
            "seed": self.seed,
            "options": self.options.shaping(),
            "world_size": job.world_size,
            "salt": salt,
        }
        return key_digest(parts)

    def train_spec(
        self,
        dataset: DatasetRef,
        training_key: Digest,
        fit: Literal["evaluation", "final"],
        output: Uri,
        *,
        epochs: int | None = None,
        job: TorchJob = TorchJob(),  # noqa: B008  a frozen value
    ) -> TrainSpec:
        """The spec of one fit; ``epochs`` is what the evaluation fit found, and goes with ``fit='final'`` only."""
        return TrainSpec(
            model=self.model,
            training_key=training_key,
            dataset=dataset,
            columns=self.columns,
            windows=Windows.cut(dataset.first, dataset.partition, self.split),
            fit=fit,
            epochs=epochs,
            network=self.network,
            job=job,
            options=self.options,
            seed=self.seed,
            task=self.task,
            output=output,
        )
