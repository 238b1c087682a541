"""The network of ``flight_delay``: one probability out of a row's numbers and words. Shapes in names: B rows, N numbers, M words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.contract import Network, Signature
from training.tabular import TabularNetwork


class DelayNetwork(TabularNetwork):
    """``forward(numeric, categorical)`` gives the probability [B, 1]; ``logits`` the same before the sigmoid, [B]."""

    def start_at(self, share: float) -> None:
        """Makes the untrained network answer the base rate, so that no step is spent on finding it."""
        self.constant(float(torch.logit(torch.tensor(share, dtype=torch.float64))))

    def logits(self, numeric_BN: Tensor, categorical_BM: Tensor) -> Tensor:
        """Log odds of the positive label, [B]."""
        return self.output(numeric_BN, categorical_BM)

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """Probability of the positive label, [B, 1]."""
        return torch.sigmoid(self.logits(numeric, categorical)).unsqueeze(1)


def build(signature: Signature, network: Network, mean: Sequence[float], std: Sequence[float]) -> DelayNetwork:
    """What every module of ``training/models`` offers: an untrained network for a signature."""
    return DelayNetwork(signature, network, mean, std)
