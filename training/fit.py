"""A fit on disk, ``weights.pt`` + ``fit.json`` + ``curve.svg``: written by train, opened by evaluate, export and others."""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel
from torch import Tensor, nn

from artifacts import store
from training.contract import FitRef, Network, Signature
from training.encoding import Values, encode

WEIGHTS_FILE = "weights.pt"
FIT_FILE = "fit.json"
CURVE_FILE = "curve.svg"
SCORING_BATCH = 8192


class Epoch(BaseModel, frozen=True, extra="forbid"):
    """One point of the learning curve: mean deciding losses; epoch 0 is the untrained network, ``validation`` the held days."""

    epoch: int
    train: float
    validation: float | None = None


class FitRecord(BaseModel, frozen=True, extra="forbid"):
    """The content of ``fit.json``. It holds no time of day and no duration: equal work gives equal bytes."""

    model: str
    signature: Signature
    mean: tuple[float, ...]
    std: tuple[float, ...]
    epochs: int
    curve: tuple[Epoch, ...]
    seed: int
    world_size: int
    network: Network
    base_rate: float


@dataclass(frozen=True)
class Fit:
    """A fit, ready to answer: the network is in eval mode on the CPU."""

    network: nn.Module
    record: FitRecord

    def scores(self, columns: Mapping[str, Values]) -> npt.NDArray[np.float64]:
        """Answers [B] for raw columns, encoded with this fit's own vocabularies."""
        numeric, categorical = encode(columns, self.record.signature)
        return self.answers(numeric, categorical).astype(np.float64)[:, 0]

    def answers(self, numeric: npt.NDArray[np.float32], categorical: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Answers float32 [B, 1] for encoded rows."""
        with torch.inference_mode():
            return forward_in_batches(self.network, torch.from_numpy(numeric), torch.from_numpy(categorical)).numpy()


def forward_in_batches(network: Any, numeric: Tensor, categorical: Tensor, rows: int = 0) -> Tensor:
    """The network's answers [B, 1], computed batch by batch so that memory stays small.

    There are batches for ``rows`` rows, if that is more, the last ones empty: ranks that share layers ask equally often.
    """
    starts = range(0, max(rows, len(numeric)), SCORING_BATCH)
    parts = [network(numeric[at : at + SCORING_BATCH], categorical[at : at + SCORING_BATCH]) for at in starts]
    return torch.cat(parts) if parts else numeric.new_zeros((0, 1))


def build_network(
    model: str, signature: Signature, network: Network, mean: Sequence[float], std: Sequence[float]
) -> nn.Module:
    """An untrained network of ``training/models/<model>.py``."""
    return importlib.import_module(f"training.models.{model}").build(signature, network, mean, std)


def weights_bytes(weights: Mapping[str, Tensor]) -> bytes:
    """A state dict as bytes that are equal for equal weights."""
    buffer = io.BytesIO()
    torch.save({name: weights[name].detach().cpu().contiguous() for name in sorted(weights)}, buffer)
    return buffer.getvalue()


def open_fit(ref: FitRef) -> Fit:
    """Opens a fit after checking its digest; its weights are loaded as plain tensors, never as code."""
    artifact = store.read_ref(ref)
    record = FitRecord.model_validate_json(artifact.file(FIT_FILE).read_bytes())
    network = build_network(record.model, record.signature, record.network, record.mean, record.std)
    network.load_state_dict(torch.load(artifact.file(WEIGHTS_FILE), map_location="cpu", weights_only=True))
    return Fit(network.eval(), record)
