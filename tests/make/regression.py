"""A regression on the synthetic training set: its labels, and a network whose answer is its logit."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

from tests.make import training as make
from training.contract import Network, Signature
from training.models.flight_delay import DelayNetwork

MODEL = "toy_regression"


class Linear(DelayNetwork):
    """The delay network without a sigmoid."""

    def start_at(self, share: float) -> None:
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, share)

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        return self.logits(numeric, categorical).unsqueeze(1)


def install() -> None:
    """Makes ``training.models.toy_regression`` importable."""
    module = ModuleType(f"training.models.{MODEL}")

    def build(signature: Signature, network: Network, mean: Any, std: Any) -> Linear:
        return Linear(signature, network, mean, std)

    module.build = build  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module


def rows(seed: int = 7, **shape: int) -> dict[str, Any]:
    """Labels around 50 that follow one feature, with a null in a tenth of its cells."""
    columns = make.rows(seed=seed, **shape)
    signal = np.array([value or 0.0 for value in columns["origin__late_share_3h"]])
    noise = np.random.default_rng(seed + 100).normal(size=len(signal))
    columns["label"] = (50 + 2 * signal + noise).astype(np.float32)
    return columns
