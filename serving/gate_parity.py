"""G7: whether an engine is the model that torch trained, from figures alone. Pure.

A check that could not run is a failure, and a figure that is not finite never passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from serving.engine_contract import ParityPolicy, Precision
from serving.gate import shown
from training.contract import Verdict

PARITY = "G7 export parity"


class ParityFigures(BaseModel, frozen=True, extra="forbid"):
    """The distance between engine and torch at one batch size, with its worst row."""

    batch: int
    rows: int = Field(description="Real rows.")
    edge_rows: int
    max_absolute: float = Field(description="In units of the largest answer where that exceeds 1.")
    max_relative: float
    not_finite: int
    worst_row: int
    worst_found: float
    worst_wanted: float
    spread: float = Field(description="Largest absolute difference of a row's answer to that in the smallest batch.")
    cosine: float
    agreement: float = Field(description="Share of rows on the same side of the median answer.")


class MetricLoss(BaseModel, frozen=True, extra="forbid"):
    """What an engine costs in quality on labelled rows, against the same model in fp32."""

    deciding_rise: float = Field(description="Relative rise of the deciding loss.")
    auc_loss: float | None = Field(default=None, description="None in a regression.")


def parity(
    found: Sequence[ParityFigures],
    max_batch: int,
    policy: ParityPolicy,
    precision: Precision = "fp32",
    loss: MetricLoss | None = None,
) -> Verdict:
    """G7: at every batch size finite, the same for any neighbours, and as close as the precision asks.

    fp32 is held to absolute and relative limits, fp16 to cosine, agreement and metric loss, int8 to metric loss.
    """
    problems = _incomplete(found, max_batch, policy)
    for at in found:
        if off := _off(at, policy, precision):
            problems.append(
                f"batch {at.batch}: {off}; worst row {at.worst_row}: engine {at.worst_found:.7g}, "
                f"torch {at.worst_wanted:.7g}"
            )
    if precision != "fp32":
        problems += _costly(loss, policy, precision)
    figures: dict[str, float | int | str | None] = {
        "precision": precision,
        "rows": min((at.rows for at in found), default=0),
        "edge_rows": min((at.edge_rows for at in found), default=0),
        "max_absolute": max((shown(at.max_absolute) for at in found), default=None),
        "max_relative": max((shown(at.max_relative) for at in found), default=None),
        "spread": max((shown(at.spread) for at in found), default=None),
        "batches": ", ".join(str(at.batch) for at in found),
    }
    if found:
        worst = max(found, key=lambda at: shown(at.max_absolute))
        figures |= {"worst_row": worst.worst_row, "worst_found": shown(worst.worst_found)}
        figures |= {"worst_wanted": worst.worst_wanted}
    if problems:
        return Verdict(gate=PARITY, status="fail", reason="; ".join(problems), figures=figures)
    reason = f"engine and torch agree to {figures['max_absolute']:.3g} at batches {figures['batches']}"
    return Verdict(gate=PARITY, status="pass", reason=reason, figures=figures)


def _incomplete(found: Sequence[ParityFigures], max_batch: int, policy: ParityPolicy) -> list[str]:
    problems = []
    if missing := {*policy.batches, max_batch} - {figures.batch for figures in found}:
        problems.append(f"batch sizes {sorted(missing)} were not compared")
    for at in found:
        if at.rows < policy.minimum_rows:
            problems.append(f"batch {at.batch}: {at.rows} rows, {policy.minimum_rows} are needed")
        if at.edge_rows < policy.minimum_edge_rows:
            problems.append(f"batch {at.batch}: {at.edge_rows} edge rows, {policy.minimum_edge_rows} are needed")
    return problems


def _off(at: ParityFigures, policy: ParityPolicy, precision: Precision) -> str:
    """What is wrong at one batch size, or nothing."""
    problems = [f"{at.not_finite} answers not finite"] if at.not_finite else []
    if not at.spread <= policy.max_spread:
        problems.append(f"an answer depends on its batch by {at.spread:.3g} (limit {policy.max_spread:g})")
    if precision == "fp32" and not (at.max_absolute <= policy.max_absolute and at.max_relative <= policy.max_relative):
        problems.append(
            f"max absolute {at.max_absolute:.3g} (limit {policy.max_absolute:g}), max relative {at.max_relative:.3g} "
            f"(limit {policy.max_relative:g})"
        )
    if precision == "fp16" and not (at.cosine >= policy.minimum_cosine and at.agreement >= policy.minimum_agreement):
        problems.append(
            f"cosine {at.cosine:.5f} (at least {policy.minimum_cosine:g}), agreement {at.agreement:.4f} "
            f"(at least {policy.minimum_agreement:g})"
        )
    return ", ".join(problems)


def _costly(loss: MetricLoss | None, policy: ParityPolicy, precision: Precision) -> list[str]:
    if loss is None:
        return ["what it costs in quality was not measured"]
    problems = []
    if not loss.deciding_rise <= policy.metric_loss[precision]:
        problems.append(
            f"the deciding loss rises by {loss.deciding_rise:.3%}, more than {policy.metric_loss[precision]:.1%}"
        )
    if precision == "int8" and loss.auc_loss is not None and not loss.auc_loss <= policy.auc_loss:
        problems.append(f"AUC falls by {loss.auc_loss:.4f}, more than {policy.auc_loss:g}")
    return problems
