"""What an evaluation has found, as ``evaluation.json`` and as a page. Pure: values in, text out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from training import report, tables
from training.contract import EvaluateSpec
from training.importance import shares
from training.measures import DECIDING, GUARD, Gain, Measured, Slice, Task
from training.scoring import (
    Floats,
    at_threshold,
    base_rate_threshold,
    calibration_bins,
    pr_points,
    roc_points,
)

BASE_RATE, BOOSTING, CANDIDATE, CHAMPION, FINAL = "base rate", "boosting", "candidate", "champion", "final"
PERSISTENCE = "persistence"
DRAWN = (CANDIDATE, BOOSTING, CHAMPION)

Figures = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """Everything that was measured. Labels and answers float64 [B]; ``curve`` is (epoch, training, validation loss)."""

    spec: EvaluateSpec
    label: Floats
    answers: Mapping[str, Floats]
    scores: Mapping[str, Measured]
    gain: Gain | None
    guard_gain: Gain | None
    slices: tuple[Slice, ...]
    increases: Mapping[str, tuple[float, float]]
    boosting_shares: Mapping[str, float]
    curve: tuple[tuple[int, float, float | None], ...] = field(default=())

    @property
    def task(self) -> Task:
        """Classification or regression."""
        return self.spec.candidate.task

    @property
    def gains(self) -> dict[str, Gain]:
        """The gains over the champion by the field of their figure; empty for a first model."""
        pairs = ((DECIDING, self.gain), (GUARD, self.guard_gain))
        return {table[self.task].field: gain for table, gain in pairs if gain is not None}

    @property
    def drawn(self) -> dict[str, Floats]:
        """The answers that plots show."""
        return {name: self.answers[name] for name in DRAWN if name in self.answers}


def naive(spec: EvaluateSpec) -> str:
    """What the answer that knows nothing of the model is called."""
    return PERSISTENCE if spec.persistence else BASE_RATE


def figures_of(found: Found) -> Figures:
    """The content of evaluation.json. ``importance`` holds each feature's share: drift is weighed by it."""
    spec, label = found.spec, found.label
    figures: Figures = {
        "model": spec.model,
        "task": found.task,
        "metrics": {"deciding": DECIDING[found.task].field, "guard": GUARD[found.task].field},
        "training_key": spec.candidate.training_key,
        "dataset": spec.dataset.digest,
        "windows": spec.windows.model_dump(mode="json"),
        "rows": len(label),
        "scores": {name: one.model_dump() for name, one in found.scores.items()},
        "gains": {name: {**gain.model_dump(), "p_value": gain.p_value} for name, gain in found.gains.items()},
        "bootstrap": {"draws": spec.bootstrap_draws, "seed": spec.seed, "unit": "row", "paired": True},
        "slices": [one.model_dump() for one in found.slices],
        "reliability": {
            name: [
                {"mean": mean, "share": share, "rows": rows} for mean, share, rows in calibration_bins(answer, label)
            ]
            for name, answer in found.answers.items()
        },
        "boosting": spec.boosting.model_dump(),
        "importance": shares({name: mean for name, (mean, _) in found.increases.items()}),
        "permutation": {
            name: {"increase": mean, "standard_error": error} for name, (mean, error) in found.increases.items()
        },
        "boosting_importance": dict(found.boosting_shares),
        "curve": [{"epoch": epoch, "train": train, "validation": held} for epoch, train, held in found.curve],
    }
    if found.task == "classification":
        figures["positives"] = int(label.sum())
        figures["thresholds"] = {name: thresholds(spec, answer, label) for name, answer in found.drawn.items()}
    if spec.champion:
        figures["champion_key"] = spec.champion.training_key
        difference = np.abs(found.answers[CANDIDATE] - found.answers[CHAMPION])
        figures["mean_absolute_difference"] = float(difference.mean())
    return figures


def thresholds(spec: EvaluateSpec, answer: Floats, label: Floats) -> list[Figures]:
    """Precision and recall at the declared thresholds, and at the one that flags as many rows as there are positives."""
    return [
        {"why": why, **at_threshold(answer, label, threshold)}
        for why, threshold in (
            *(("declared", one) for one in spec.thresholds),
            ("base rate", base_rate_threshold(answer, label)),
        )
    ]


def html(found: Found) -> str:
    """The content of evaluation.html."""
    spec, label = found.spec, found.label
    first, last = spec.windows.test_first, spec.windows.test_last
    kind = f"{label.mean():.1%} positive" if found.task == "classification" else f"mean label {label.mean():.4g}"
    facts = (
        f"Test window {days(first, last)}, {len(label):,} rows, {kind}. Training key {spec.candidate.training_key}. "
        "The final fit has seen this window; its row is a sanity bound, not evidence."
    )
    sections = {"Scores": tables.scores_table(found.scores)}
    if found.gains:
        sections["Candidate against champion"] = (
            f"{tables.gains_table(found.gains)}<p class='note'>Positive: the candidate is better. Paired bootstrap, "
            f"{spec.bootstrap_draws:,} draws of rows, 95 % interval.</p>"
        )
    else:
        sections["Candidate against champion"] = (
            "<p class='note'>First model: there is no champion to compare with.</p>"
        )
    sections["Plots"] = f'<div class="plots">{"".join(_plots(found))}</div>'
    if found.task == "classification":
        at = {name: thresholds(spec, answer, label) for name, answer in found.drawn.items()}
        sections["At thresholds"] = tables.thresholds_table(at)
    if found.slices:
        sections["Slices"] = tables.slices_table(found.slices, DECIDING[found.task].title, GUARD[found.task].title)
    title = DECIDING[found.task].title
    sections["What the model looks at"] = (
        f"<p class='note'>How much {title} rises on {min(spec.importance_rows, len(label)):,} rows of the window when one "
        "column is shuffled. Its shares weigh the drift checks.</p>"
        + tables.increases_table(found.increases, shares({name: mean for name, (mean, _) in found.increases.items()}))
    )
    sections["What boosting looks at"] = tables.bars_table(found.boosting_shares)
    return report.page(f"Evaluation of {spec.model}", facts, sections)


def _plots(found: Found) -> list[str]:
    label = found.label
    bins = {
        name: [(mean, share) for mean, share, _ in calibration_bins(answer, label)]
        for name, answer in found.drawn.items()
    }
    plots = [report.reliability_svg(bins, found.task)]
    if found.task == "classification":
        plots.append(report.roc_svg({name: roc_points(answer, label) for name, answer in found.drawn.items()}))
        curves = {name: pr_points(answer, label) for name, answer in found.drawn.items()}
        plots.append(report.pr_svg(curves, float(label.mean())))
    if found.curve:
        plots.append(report.curve_svg(found.curve, DECIDING[found.task].title))
    return plots


def days(first: dt.date, last: dt.date) -> str:
    """A span of days in words."""
    return f"{first} to {last} ({(last - first).days + 1} days)"
