"""Ranks that die, hang, never come or are told to stop: each ends with the right exit code and words, and goes on later."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from artifacts import store
from artifacts.step import EXIT_BAD_DATA, EXIT_TRY_AGAIN
from tests.make import training as make
from tests.make.ranks import checkpoints, ends, failure, kill, ranks, result, until
from training.contract import CheckpointPolicy, FitOptions, TrainSpec

pytestmark = pytest.mark.torch

LONG = make.NETWORK.model_copy(update={"max_epochs": 400, "patience": 400})
OFTEN = CheckpointPolicy(longest_seconds=0)


def _spec(folder: Path, network: object = LONG, **options: object) -> TrainSpec:
    chosen = FitOptions.model_validate({"checkpoint": OFTEN, **options})
    return make.train_spec(make.dataset(folder), folder / "fit", processes=2, network=network, options=chosen)


def _learning(folder: Path) -> bool:
    return len(checkpoints(folder / "fit.checkpoints")) >= 2


def test_one_rank_that_is_told_to_stop_makes_all_save_and_leave_and_the_fit_goes_on(tmp_path: Path) -> None:
    short = make.NETWORK.model_copy(update={"max_epochs": 40, "patience": 40})
    spec = _spec(tmp_path, short)
    running = ranks(spec, tmp_path / "a")
    until(lambda: _learning(tmp_path), running)
    running[1].send_signal(signal.SIGTERM)
    assert ends(running) == [EXIT_TRY_AGAIN, EXIT_TRY_AGAIN]
    said = failure(tmp_path / "a")
    assert said.kind == "try_again"
    assert "told to stop (SIGTERM) at step" in said.reason
    at = int(said.reason.partition("at step ")[2].split()[0])
    assert int(checkpoints(tmp_path / "fit.checkpoints")[-1].name) == at
    assert store.manifest(spec.output) is None

    resumed = result(ranks(spec, tmp_path / "b"), tmp_path / "b")
    whole = spec.model_copy(update={"output": f"{spec.output}-whole"})
    assert resumed.digest == result(ranks(whole, tmp_path / "c"), tmp_path / "c").digest


@pytest.mark.covers("field-reports 85")
def test_when_one_rank_is_killed_the_others_leave_at_once_and_say_so(tmp_path: Path) -> None:
    running = ranks(_spec(tmp_path), tmp_path / "a")
    until(lambda: _learning(tmp_path), running)
    kill(running[1])
    assert ends(running) == [EXIT_TRY_AGAIN, -signal.SIGKILL]
    assert "rank 0 of 2 lost a peer" in failure(tmp_path / "a").reason


@pytest.mark.covers("field-reports 82", "field-reports 84")
def test_a_rank_that_hangs_ends_the_fit_within_its_limit_and_is_named(tmp_path: Path) -> None:
    running = ranks(_spec(tmp_path, hang_seconds=4), tmp_path / "a")
    until(lambda: _learning(tmp_path), running)
    running[1].send_signal(signal.SIGSTOP)
    try:
        assert running[0].wait(60) == EXIT_TRY_AGAIN
    finally:
        kill(*running)
    said = failure(tmp_path / "a")
    assert said.kind == "try_again"
    assert said.reason.startswith("TryAgain: hang: no step for 4 s; rank 0 at step ")
    assert "no sign of life from rank(s) 1" in said.reason


@pytest.mark.covers("field-reports 86")
def test_a_rank_that_never_comes_is_named_within_the_limit(tmp_path: Path) -> None:
    running = ranks(_spec(tmp_path, preflight_seconds=2), tmp_path / "a", only=[0])
    assert ends(running) == [EXIT_TRY_AGAIN]
    assert "preflight: rank(s) 1 of 2 did not come within 2 s" in failure(tmp_path / "a").reason


def test_the_rank_that_had_the_error_is_the_one_that_is_heard(tmp_path: Path) -> None:
    """A gradient that is no number is an error of all ranks alike, and never overwritten by a peer that was lost."""
    running = ranks(_spec(tmp_path, make.NETWORK.model_copy(update={"learning_rate": 1e30})), tmp_path / "a")
    assert set(ends(running)) <= {EXIT_BAD_DATA, EXIT_TRY_AGAIN}
    said = failure(tmp_path / "a")
    assert said.kind == "bad_data"
    assert "lower network.learning_rate" in said.reason


@pytest.mark.covers("field-reports 89")
def test_ranks_that_differ_come_to_one_answer_or_say_what_differs(tmp_path: Path) -> None:
    assert ends(ranks(_spec(tmp_path), tmp_path / "a", module="tests.make.rank_checks")) == [EXIT_BAD_DATA] * 2
    assert "the number of rows is 100 on rank 0 and 101 on rank 1" in failure(tmp_path / "a").reason


def test_a_training_set_that_was_altered_is_refused(tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    rows = next((tmp_path / "dataset").glob("*/rows.parquet"))
    rows.write_bytes(rows.read_bytes()[:-100] + bytes(100))
    running = ranks(spec, tmp_path / "a")
    assert ends(running) == [EXIT_BAD_DATA, EXIT_TRY_AGAIN]
    said = failure(tmp_path / "a")
    assert said.kind == "bad_data"
    assert "file 'rows.parquet' is missing or differs from the manifest" in said.reason
