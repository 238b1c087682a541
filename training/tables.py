"""The tables of an evaluation's page, as self-contained HTML with bars. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from training.measures import Gain, Measured, Slice
from training.report import GRID, INK, PALETTE

BETTER, WORSE, QUIET = "#2b8a3e", "#c92a2a", "#9aa5b1"
BAR_WIDTH, BAR_HEIGHT = 300, 16
TITLES = {
    "log_loss": "log loss",
    "auc": "AUC",
    "pr_auc": "PR-AUC",
    "brier": "Brier",
    "ece": "ECE",
    "mae": "MAE",
    "rmse": "RMSE",
    "r2": "R2",
    "bias": "bias",
}


def table(head: Sequence[str], rows: Sequence[str]) -> str:
    """A table from column names and finished rows."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f'<div class="wide"><table><thead><tr>{names}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def row(*cells: str, bar: str | None = None) -> str:
    """One row; the first cell is escaped text, the others are written as they are."""
    first, *rest = cells
    inner = f"<td>{escape(first)}</td>" + "".join(f'<td class="word">{cell}</td>' for cell in rest)
    if bar is not None:
        inner += f'<td class="bar">{bar}</td>'
    return f"<tr>{inner}</tr>"


def scores_table(scores: Mapping[str, Measured]) -> str:
    """One row per scorer, one column per figure."""
    fields = list(next(iter(scores.values())).model_dump())
    rows = [row(name, *(f"{value:.4f}" for value in found.model_dump().values())) for name, found in scores.items()]
    return table(["scorer", *(TITLES[name] for name in fields)], rows)


def gains_table(gains: Mapping[str, Gain]) -> str:
    """One row per paired gain with its interval; positive means that the candidate is better."""
    reach = _reach(list(gains.values()))
    rows = [
        row(TITLES[name], f"{gain.mean:+.4f}", _interval(gain), _p(gain), bar=interval_bar(gain, reach))
        for name, gain in gains.items()
    ]
    return table(["gain over the champion", "mean", "95 % interval", "p", f"within ±{reach:.4f}"], rows)


def slices_table(slices: Sequence[Slice], deciding: str, guard: str) -> str:
    """One row per slice, largest first within its dimension; the bar is the gain over the champion, else over the base rate."""
    shown = {found.name: found.gain or found.gain_over_base for found in slices}
    against = "champion" if any(found.gain for found in slices) else "base rate"
    reach = _reach([gain for gain in shown.values() if gain])
    rows = []
    for found in sorted(slices, key=lambda one: (one.dimension, -one.rows, one.value)):
        gain = shown[found.name]
        rows.append(
            row(
                found.name + (" (new)" if found.known is False else ""),
                f"{found.rows:,}",
                f"{found.positives:,}",
                f"{found.label_mean:.3f}",
                f"{found.bias:+.3f}",
                f"{found.deciding:.4f}",
                "" if found.guard is None else f"{found.guard:.3f}",
                f"{gain.mean:+.4f}" if gain else "",
                _p(gain) if gain else "",
                bar=interval_bar(gain, reach) if gain else "",
            )
        )
    head = ["slice", "rows", "positives", "label mean", "bias", deciding, guard, f"gain over {against}", "p"]
    return table([*head, f"95 %, within ±{reach:.3f}"], rows)


def thresholds_table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Precision and recall per scorer and threshold."""
    rows = [
        row(
            f"{name}, {at['why']}",
            f"{at['threshold']:.4f}",
            f"{at['flagged']:,}",
            *("none" if at[field] is None else f"{at[field]:.3f}" for field in ("precision", "recall", "f1")),
        )
        for name, each in found.items()
        for at in each
    ]
    return table(["scorer", "threshold", "flagged", "precision", "recall", "F1"], rows)


def increases_table(found: Mapping[str, tuple[float, float]], shares: Mapping[str, float], shown: int = 15) -> str:
    """The features whose shuffling costs most, with the standard error of the cost."""
    largest = sorted(shares.items(), key=lambda entry: -entry[1])[:shown]
    top = max((share for _, share in largest), default=0.0) or 1.0
    rows = [
        row(name, f"{found[name][0]:+.5f}", f"{found[name][1]:.5f}", f"{share:.1%}", bar=share_bar(share / top))
        for name, share in largest
    ]
    return table(["feature", "increase", "standard error", "share", ""], rows)


def bars_table(shares: Mapping[str, float], shown: int = 15) -> str:
    """The largest shares as bars."""
    largest = sorted(shares.items(), key=lambda entry: -entry[1])[:shown]
    top = max((share for _, share in largest), default=0.0) or 1.0
    return table(
        ["feature", "share", ""], [row(name, f"{part:.1%}", bar=share_bar(part / top)) for name, part in largest]
    )


def share_bar(share: float) -> str:
    """A bar of a share of the full width."""
    return _svg(f'<rect width="{BAR_WIDTH * share:.1f}" height="{BAR_HEIGHT}" fill="{PALETTE[0]}"/>')


def interval_bar(gain: Gain, reach: float) -> str:
    """An interval on an axis of -reach to +reach: green clear of zero on the good side, red on the bad one."""

    def place(value: float) -> float:
        return BAR_WIDTH / 2 * (1 + max(-1.0, min(1.0, value / reach)))

    colour = BETTER if gain.lower > 0 else WORSE if gain.upper < 0 else QUIET
    low, high, middle = place(gain.lower), place(gain.upper), BAR_HEIGHT / 2
    return _svg(
        f'<line x1="{BAR_WIDTH / 2}" x2="{BAR_WIDTH / 2}" y1="0" y2="{BAR_HEIGHT}" stroke="{INK}" stroke-width="1"/>'
        f'<line x1="0" x2="{BAR_WIDTH}" y1="{middle}" y2="{middle}" stroke="{GRID}"/>'
        f'<rect x="{low:.1f}" y="{middle - 3}" width="{max(high - low, 1):.1f}" height="6" fill="{colour}" opacity="0.45"/>'
        f'<circle cx="{place(gain.mean):.1f}" cy="{middle}" r="4" fill="{colour}"/>'
    )


def _svg(content: str) -> str:
    return f'<svg viewBox="0 0 {BAR_WIDTH} {BAR_HEIGHT}" role="img" preserveAspectRatio="none">{content}</svg>'


def _reach(gains: Sequence[Gain]) -> float:
    """The widest bound of the intervals; of many, the widest tenth is cut off, so that the others can be read."""
    bounds = sorted(max(abs(gain.lower), abs(gain.upper)) for gain in gains)
    shown = bounds[: len(bounds) - len(bounds) // 10] or [0.0]
    return shown[-1] or 0.001


def _interval(gain: Gain) -> str:
    return f"{gain.lower:+.4f} to {gain.upper:+.4f}"


def _p(gain: Gain) -> str:
    return f"{gain.p_value:.3f}" if gain.p_value >= 0.0005 else "&lt; 0.001"  # noqa: PLR2004  what three places can show
