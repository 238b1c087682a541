"""What a window of some rows can show, and how many rows would show a margin. Pure.

One-sided 5 %, power 80 %: (1.645 + 0.842) standard errors. For the share of rows on which two models disagree this gives
the table of decisions.md 5: 4 % and a margin of 1 percentage point need 2,474 rows.
"""

from __future__ import annotations

import math

from training.contract import GatePolicy
from training.measures import Gain


def detectable(gain: Gain, policy: GatePolicy) -> float:
    """The smallest loss that the window would have shown."""
    return (policy.significance_z + policy.power_z) * gain.standard_error


def rows_needed(rows: int, gain: Gain, margin: float, policy: GatePolicy) -> int:
    """Rows with which the window could show the margin: the standard error falls with the root of the rows."""
    return math.ceil(rows * (detectable(gain, policy) / margin) ** 2)
