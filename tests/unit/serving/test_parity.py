"""The distance between an engine and the reference answers, with an engine of our own making."""

from __future__ import annotations

import numpy as np
import pytest

from serving.engine_contract import ParityPolicy
from serving.gate_parity import parity
from serving.parity import ParityRows, compare

POLICY = ParityPolicy()
ROWS = 300


def rows() -> ParityRows:
    numeric = np.linspace(0.1, 0.9, ROWS, dtype=np.float32).reshape(-1, 1)
    return ParityRows(numeric, np.zeros((ROWS, 1), dtype=np.int64), numeric[:, 0].copy(), ROWS - 32)


class Echo:
    """Answers its numeric input, but for a fault in requests of one batch size."""

    def __init__(self, batch: int = 0, fault: float = 0.0) -> None:
        self.batch, self.fault, self.seen = batch, fault, set[int]()

    def run(self, numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:  # noqa: ARG002  the interface
        self.seen.add(len(numeric))
        return numeric[:, 0] + (self.fault if len(numeric) == self.batch else 0.0)


def test_every_batch_size_is_asked_and_equal_answers_pass() -> None:
    engine = Echo()
    found = compare(engine, rows(), 1024, POLICY)
    assert [at.batch for at in found] == [1, 2, 7, 1024]
    assert {1, 2, 7, 1024} <= engine.seen, "the largest batch must be full"
    assert parity(found, 1024, POLICY).status == "pass"


@pytest.mark.parametrize("batch", [1, 2, 7, 1024])
@pytest.mark.parametrize("fault", [0.01, float("nan"), float("inf")])
def test_a_fault_at_one_batch_size_is_found(batch: int, fault: float) -> None:
    verdict = parity(compare(Echo(batch, fault), rows(), 1024, POLICY), 1024, POLICY)
    assert verdict.status == "fail"
    assert f"batch {batch}:" in verdict.reason
    assert verdict.model_dump_json()


def test_the_worst_row_is_the_one_that_differs() -> None:
    shifted = rows()
    shifted.score[41] += 0.02
    assert {at.worst_row for at in compare(Echo(), shifted, 64, POLICY)} == {41}


def test_too_few_rows_fail() -> None:
    few = rows()._replace(real=255)
    assert parity(compare(Echo(), few, 64, POLICY), 64, POLICY).status == "fail"


class Neighbourly:
    """Answers that lean on the mean of the batch, as dynamic int8 does with its scales."""

    def run(self, numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:  # noqa: ARG002  the interface
        return numeric[:, 0] + 1e-3 * numeric[:, 0].mean()


def test_an_answer_that_depends_on_its_neighbours_is_refused() -> None:
    verdict = parity(compare(Neighbourly(), rows(), 64, POLICY), 64, POLICY, "int8", None)
    assert "an answer depends on its batch" in verdict.reason


def test_a_regression_is_held_to_its_largest_answer() -> None:
    minutes = rows()._replace(numeric=rows().numeric * 300, score=rows().score * 300)
    assert parity(compare(Echo(7, 0.01), minutes, 64, POLICY), 64, POLICY).status == "pass", "3e-5 of the largest"
    assert parity(compare(Echo(7, 0.1), minutes, 64, POLICY), 64, POLICY).status == "fail"
