"""The network of ``next_hour_temperature``: the temperature now, and what it learns to add. Shapes: B rows, N numbers, M words."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from training.contract import Network, Signature
from training.tabular import TabularNetwork

NOW = "weather__temp"


class TemperatureNetwork(TabularNetwork):
    """``forward(numeric, categorical)`` gives degrees Fahrenheit [B, 1]; ``logits`` the same numbers, [B].

    A regression of the temperature itself would spend its rows on learning that a warm hour follows a warm one, and a summer
    lies outside of what a winter has shown; the change of an hour does not.
    """

    def __init__(self, signature: Signature, network: Network, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(signature, network, mean, std)
        self.now = signature.numeric.index(NOW)

    def start_at(self, constant: float) -> None:  # noqa: ARG002  of every model; here a better start is at hand
        """Makes the untrained network answer "as warm as now"."""
        self.constant(0.0)

    def logits(self, numeric_BN: Tensor, categorical_BM: Tensor) -> Tensor:
        """The answer, [B]. A temperature that is null counts as the mean of the training rows, one beyond it as the limit."""
        now_B = self.mean_N[self.now] + self.std_N[self.now] * self.normal(numeric_BN)[:, self.now]
        return now_B + self.output(numeric_BN, categorical_BM)

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """Degrees Fahrenheit, [B, 1]."""
        return self.logits(numeric, categorical).unsqueeze(1)


def build(signature: Signature, network: Network, mean: Sequence[float], std: Sequence[float]) -> TemperatureNetwork:
    """What every module of ``training/models`` offers: an untrained network for a signature."""
    return TemperatureNetwork(signature, network, mean, std)
