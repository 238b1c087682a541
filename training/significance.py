"""Many tests at once without crying wolf. Pure; standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping


def holm(p_values: Mapping[str, float], alpha: float) -> frozenset[str]:
    """The names that are significant under Holm's step-down rule; NaN is never significant here, it counts as missing."""
    significant: set[str] = set()
    ordered = sorted((p, name) for name, p in p_values.items() if math.isfinite(p))
    for rank, (p, name) in enumerate(ordered):
        if p > alpha / (len(ordered) - rank):
            break
        significant.add(name)
    return frozenset(significant)
