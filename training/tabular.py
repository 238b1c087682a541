"""A network over a row's numbers and words: embeddings beside normalised numbers, one number out before any link.

Normalisation, imputation and the treatment of unknown codes lie inside the graph, so whoever asks sends raw values.
Shapes in names: B rows, N numeric inputs, M categorical inputs, E embedding width, F features of the first layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from training.contract import Network, Signature

CLAMP = 8.0
"""Normalised values are cut at this many standard deviations, so that one broken sensor cannot own the answer."""

BLOCK = 3
"""Modules of one hidden layer in ``body``: product, activation, dropout."""


class TabularNetwork(nn.Module):
    """``output(numeric, categorical)`` gives one number per row, [B]; models say what it means.

    With ``recompute`` set, what lies inside a hidden layer is worked out again for the gradient instead of kept.
    """

    recompute = False

    def __init__(self, signature: Signature, network: Network, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        sizes = [len(item.vocabulary) + 1 for item in signature.categorical]
        starts = [sum(sizes[:place]) for place in range(len(sizes))]
        self.register_buffer("mean_N", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std_N", torch.tensor(std, dtype=torch.float32))
        self.register_buffer("size_M", torch.tensor(sizes, dtype=torch.int64))
        self.register_buffer("start_M", torch.tensor(starts, dtype=torch.int64))
        self.embedding = nn.Embedding(sum(sizes), network.embedding)
        nn.init.normal_(self.embedding.weight, std=0.1)
        width = 2 * len(signature.numeric) + network.embedding * len(sizes)
        layers: list[nn.Module] = []
        for hidden in network.hidden:
            layers += [nn.Linear(width, hidden), nn.SiLU(), nn.Dropout(network.dropout)]
            width = hidden
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, 1)

    def layers(self) -> list[nn.Module]:
        """The modules that hold weights of their own: what is split over ranks, one at a time."""
        return [self.embedding, *(layer for layer in self.body if isinstance(layer, nn.Linear)), self.head]

    def constant(self, value: float) -> None:
        """Makes the untrained network say one number, whatever it is asked."""
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, value)

    def normal(self, numeric_BN: Tensor) -> Tensor:
        """Standard deviations from the mean, cut at ``CLAMP``; 0 for null, [B, N]."""
        normal_BN = torch.clamp((numeric_BN - self.mean_N) / self.std_N, -CLAMP, CLAMP)
        return torch.where(torch.isnan(numeric_BN), torch.zeros_like(normal_BN), normal_BN)

    def output(self, numeric_BN: Tensor, categorical_BM: Tensor) -> Tensor:
        """One number per row, [B]."""
        normal_BN, null_BN = self.normal(numeric_BN), torch.isnan(numeric_BN)
        known_BM = (categorical_BM >= 0) & (categorical_BM < self.size_M)
        code_BM = torch.where(known_BM, categorical_BM, torch.zeros_like(categorical_BM)) + self.start_M
        words_BF = self.embedding(code_BM).flatten(1)
        features_BF = torch.cat([normal_BN, null_BN.to(normal_BN.dtype), words_BF], dim=1)
        return self.head(self._hidden(features_BF)).squeeze(1)

    def _hidden(self, features_BF: Tensor) -> Tensor:
        if not (self.recompute and self.training):
            return self.body(features_BF)
        for at in range(0, len(self.body), BLOCK):
            features_BF = checkpoint(self.body[at : at + BLOCK], features_BF, use_reentrant=False)
        return features_BF
