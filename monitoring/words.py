"""What a finding says to a person: 'origin departure delay mean 3 h: mean 9.1 -> 31.0 minutes'. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

UNITS = {"delay": "minutes", "minutes": "minutes", "seconds": "seconds", "miles": "miles", "bytes": "bytes"}
SMALL = 1.0


def title(feature: str) -> str:
    """A column's name as words: underscores become spaces, '3h' becomes '3 h'; the unit is not repeated."""
    words = " ".join(part for part in re.split(r"_+", feature) if part)
    return re.sub(r"\b(\d+)([a-z]+)\b", r"\1 \2", words)


def unit(feature: str) -> str:
    """The unit that a column's name states, or nothing."""
    return next((UNITS[part] for part in reversed(re.split(r"_+", feature)) if part in UNITS), "")


def number(value: float) -> str:
    """A figure with as many digits as a reader needs."""
    if value == 0:
        return "0"
    return f"{value:.3f}" if abs(value) < SMALL else f"{value:,.1f}"


def percent(share: float) -> str:
    """A share as percent."""
    return f"{100 * share:.1f} %"


Pair = tuple[float | None, float | None]


def moved_mean(feature: str, mean: Pair, median: Pair = (None, None)) -> str:
    """How mean and median (before, after) of a numeric feature moved; a few extreme rows move the mean alone."""
    if mean[0] is None or mean[1] is None:
        return f"{title(feature)}: no mean can be given, one side has no values"
    share = "share" in re.split(r"_+", feature)
    written = percent if share else number
    words = f"{title(feature)}: mean {written(mean[0])} -> {written(mean[1])}"
    if median[0] is not None and median[1] is not None:
        words += f", median {written(median[0])} -> {written(median[1])}"
    return words if share else f"{words} {unit(feature)}".rstrip()


def moved_category(feature: str, before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Which category's share moved most."""
    names = sorted({*before, *after})
    if not names:
        return f"{title(feature)}: no values on either side"
    most = max(names, key=lambda name: abs(after.get(name, 0.0) - before.get(name, 0.0)))
    return f"{title(feature)}: '{most}' {percent(before.get(most, 0.0))} -> {percent(after.get(most, 0.0))}"


def moved_nulls(feature: str, before: float, after: float) -> str:
    """How the share of nulls moved."""
    return f"{title(feature)}: null share {percent(before)} -> {percent(after)}"


def new_categories(feature: str, names: tuple[str, ...], mass: float) -> str:
    """Which categories the reference does not know."""
    shown = ", ".join(f"'{name}'" for name in names[:3]) + (" and others" if len(names) > 3 else "")  # noqa: PLR2004  three fit a line
    return f"{title(feature)}: {percent(mass)} of requests have a category that the reference lacks ({shown})"
