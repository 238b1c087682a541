"""How a gate says what it found. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

from training.contract import Verdict

Figures: TypeAlias = dict[str, float | int | str | None]


def verdict(
    gate: str,
    problems: Sequence[str],
    good: str,
    figures: Figures,
    *,
    status: Literal["fail", "underpowered"] = "fail",
) -> Verdict:
    """A pass with ``good`` as its reason, or ``status`` with every problem; figures that JSON cannot hold become text."""
    shown = {name: _plain(value) for name, value in figures.items()}
    if problems:
        return Verdict(gate=gate, status=status, reason="; ".join(problems), figures=shown)
    return Verdict(gate=gate, status="pass", reason=good, figures=shown)


def _plain(value: float | int | str | None) -> float | int | str | None:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
