"""What a finding says to a person: 'origin departure delay last 3 h: mean 9.1 -> 31.0 minutes'. Pure.

Units come from the catalogue of views; a column that no view has (the request's own) takes the unit that its name ends in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from feature_repo.catalogue import VIEWS, feature_column

UNITS: Mapping[str, str] = {
    feature_column(view.name, feature.name): feature.unit for view in VIEWS.values() for feature in view.features
}
SHARE = "share"
NAMED = frozenset({"minutes", "seconds", "miles", "bytes"})
SMALL = 1.0


def title(feature: str) -> str:
    """A column's name as words: 'origin__departure_delay_mean_3h' is 'origin departure delay last 3 h'."""
    words = " ".join(part for part in re.split(r"_+", feature) if part)
    words = re.sub(r"\b(?:mean )?(?:last )?(\d+)([a-z]+)$", r"last \1 \2", words)
    return re.sub(r"\b(\d+)([a-z]+)\b", r"\1 \2", words)


def unit(feature: str) -> str:
    """The unit of a column, or nothing."""
    if feature in UNITS:
        return UNITS[feature]
    last = feature.rsplit("_", 1)[-1]
    return last if last in NAMED or last == SHARE else ""


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
    measured = unit(feature)
    written = percent if measured == SHARE else number
    words = f"{title(feature)}: mean {written(mean[0])} -> {written(mean[1])}"
    if median[0] is not None and median[1] is not None:
        words += f", median {written(median[0])} -> {written(median[1])}"
    return words if measured == SHARE else f"{words} {measured}".rstrip()


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
