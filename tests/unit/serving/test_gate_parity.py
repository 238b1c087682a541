"""G7: limits by precision, every batch size, and no pass for what was not measured."""

from __future__ import annotations

import math
from typing import Any

import pytest

from serving.engine_contract import ParityPolicy
from serving.gate_parity import MetricLoss, ParityFigures, parity

PARITY = ParityPolicy()
NAN = math.nan
FREE = MetricLoss(deciding_rise=0.0, auc_loss=0.0)


def figures(batch: int, **changes: Any) -> ParityFigures:
    fields: dict[str, Any] = {
        "batch": batch,
        "rows": 256,
        "edge_rows": 32,
        "max_absolute": 1e-6,
        "max_relative": 1e-5,
        "not_finite": 0,
        "worst_row": 3,
        "worst_found": 0.5,
        "worst_wanted": 0.5,
        "spread": 1e-7,
        "cosine": 1.0,
        "agreement": 1.0,
    }
    return ParityFigures.model_validate({**fields, **changes})


def all_batches(**changes: Any) -> list[ParityFigures]:
    return [figures(batch, **(changes if batch == 7 else {})) for batch in (1, 2, 7, 1024)]


def test_parity_passes_within_both_limits() -> None:
    assert parity(all_batches(max_absolute=1e-4, max_relative=1e-3), 1024, PARITY).status == "pass"


@pytest.mark.parametrize(
    "changes",
    [
        {"max_absolute": 1.01e-4},
        {"max_relative": 1.01e-3},
        {"max_absolute": NAN},
        {"max_relative": math.inf},
        {"not_finite": 1},
        {"rows": 255},
        {"edge_rows": 31},
        {"spread": 1.01e-4},
        {"spread": NAN},
    ],
)
def test_parity_fails_when_one_batch_size_is_off_and_shows_the_row(changes: dict[str, float]) -> None:
    verdict = parity(all_batches(**changes), 1024, PARITY)
    assert verdict.status == "fail"
    assert "batch 7" in verdict.reason
    assert verdict.model_dump_json()


@pytest.mark.parametrize("left_out", [1, 2, 7, 1024])
def test_parity_fails_when_a_batch_size_was_not_compared(left_out: int) -> None:
    found = [at for at in all_batches() if at.batch != left_out]
    assert parity(found, 1024, PARITY).status == "fail"
    assert parity([], 1024, PARITY).status == "fail"


def test_the_worst_row_is_shown_whatever_the_verdict() -> None:
    found = [*all_batches()[:3], figures(1024, max_absolute=5e-5, worst_row=41, worst_found=0.25)]
    shown = parity(found, 1024, PARITY).figures
    assert (shown["worst_row"], shown["worst_found"], shown["worst_wanted"]) == (41, 0.25, 0.5)


@pytest.mark.covers("field-reports 97")
@pytest.mark.parametrize(
    ("precision", "changes", "loss", "words"),
    [
        ("int8", {"max_absolute": 0.05}, FREE, None),
        ("int8", {}, None, "was not measured"),
        ("int8", {}, MetricLoss(deciding_rise=0.0051, auc_loss=0.0), "the deciding loss rises"),
        ("int8", {}, MetricLoss(deciding_rise=NAN, auc_loss=0.0), "the deciding loss rises"),
        ("int8", {}, MetricLoss(deciding_rise=0.0, auc_loss=0.0021), "AUC falls"),
        ("int8", {}, MetricLoss(deciding_rise=0.0), None),  # a regression has no AUC
        ("int8", {"spread": 2e-4}, FREE, "depends on its batch"),
        ("int8", {"not_finite": 1}, FREE, "not finite"),
        ("fp16", {"max_absolute": 0.001}, FREE, None),
        ("fp16", {"cosine": 0.9989}, FREE, "cosine"),
        ("fp16", {"cosine": NAN}, FREE, "cosine"),
        ("fp16", {"agreement": 0.994}, FREE, "agreement"),
        ("fp16", {}, MetricLoss(deciding_rise=0.0011), "the deciding loss rises"),
        ("fp16", {}, None, "was not measured"),
    ],
)
def test_fewer_bits_are_held_to_their_own_limits(
    precision: Any, changes: dict[str, float], loss: MetricLoss | None, words: str | None
) -> None:
    verdict = parity(all_batches(**changes), 1024, PARITY, precision, loss)
    assert verdict.status == ("fail" if words else "pass")
    assert words is None or words in verdict.reason
