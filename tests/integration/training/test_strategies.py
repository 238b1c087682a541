"""One model, many ways to train it: all learn the same, within what their arithmetic can promise.

Tolerances are relative. Another order of float32 sums moves a loss by some 1e-7 a step (1e-4 over a fit); bf16 keeps 8 bits
of a product's factors, fp16 11 (3e-3 and 3e-4).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from artifacts import store
from artifacts.refs import file_uri
from artifacts.step import EXIT_TRY_AGAIN
from tests.make import training as make
from tests.make.ranks import checkpoints, kill, ranks, result, until
from training.contract import CheckpointPolicy, FitOptions, FitRef
from training.train import train

pytestmark = pytest.mark.torch

DROPOUT = make.NETWORK.model_copy(update={"dropout": 0.2})
LONG = make.NETWORK.model_copy(update={"max_epochs": 30, "patience": 30})
LEARNS = make.NETWORK.model_copy(update={"hidden": (32,), "learning_rate": 5e-3, "max_epochs": 6, "patience": 6})
OFTEN = CheckpointPolicy(longest_seconds=0)


def _alone(folder: Path, name: str, per_day: int = 41, **changes: object) -> FitRef:
    ref = train(make.train_spec(make.dataset(folder, per_day=per_day), folder / name, **changes))
    assert ref is not None
    return ref


def _weights(ref: FitRef) -> bytes:
    return store.read_ref(ref).file("weights.pt").read_bytes()


@pytest.mark.parametrize(("strategy", "accumulation"), [("fsdp", 1), ("fsdp", 2), ("ddp", 2)])
def test_two_ranks_learn_what_one_process_learns(tmp_path: Path, strategy: str, accumulation: int) -> None:
    """With whole models and one piece it is tried in ``test_train_ranks``."""
    dataset = make.dataset(tmp_path, per_day=41)
    options = FitOptions.model_validate({"strategy": strategy, "accumulation": accumulation})
    spec = make.train_spec(dataset, tmp_path / "parts", processes=2, options=options)
    running = ranks(spec, tmp_path / "a")
    alone = train(make.train_spec(dataset, tmp_path / "alone"))
    parts = result(running, tmp_path / "a")
    assert alone is not None
    assert (parts.rows, parts.epochs) == (alone.rows, alone.epochs)
    assert parts.loss_first == pytest.approx(alone.loss_first, rel=1e-6)
    assert parts.loss_last == pytest.approx(alone.loss_last, rel=1e-4)
    assert parts.grad_norm_max == pytest.approx(alone.grad_norm_max, rel=1e-3)


def test_a_fit_in_parts_goes_on_to_the_same_bytes_and_also_as_one_whole_process(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path, per_day=41)
    options = FitOptions(strategy="fsdp", checkpoint=OFTEN)
    spec = make.train_spec(dataset, tmp_path / "moved", processes=2, network=LONG, options=options)
    running = ranks(spec, tmp_path / "a")
    until(lambda: len(checkpoints(tmp_path / "moved.checkpoints")) >= 2, running)
    kill(*running)
    kept = shutil.copytree(tmp_path / "moved.checkpoints", tmp_path / "again.checkpoints")
    assert len(checkpoints(kept)) >= 2
    again = spec.model_copy(update={"output": file_uri(tmp_path / "again")})
    unbroken = spec.model_copy(update={"output": file_uri(tmp_path / "unbroken")})
    resumed = result(ranks(again, tmp_path / "b"), tmp_path / "b")
    assert store.read_ref(resumed).manifest.facts["resumed"] is True
    assert resumed.digest == result(ranks(unbroken, tmp_path / "c"), tmp_path / "c").digest

    whole = train(make.train_spec(dataset, tmp_path / "whole", network=LONG))
    moved = train(make.train_spec(dataset, tmp_path / "moved", network=LONG))
    assert moved is not None
    assert whole is not None
    assert store.read_ref(moved).manifest.facts["resumed"] is True
    assert moved.epochs == whole.epochs
    assert moved.loss_last == pytest.approx(whole.loss_last, rel=1e-3)


def test_pieces_and_recomputing_change_how_much_is_kept_not_what_is_learnt(tmp_path: Path) -> None:
    plain = _alone(tmp_path, "plain", network=DROPOUT)
    recomputed = _alone(tmp_path, "recomputed", network=DROPOUT, options=FitOptions(activation_checkpointing=True))
    assert _weights(recomputed) == _weights(plain)
    one = _alone(tmp_path, "one")
    pieces = _alone(tmp_path, "pieces", options=FitOptions(accumulation=4))
    assert pieces.loss_last == pytest.approx(one.loss_last, rel=1e-4)
    assert pieces.grad_norm_max == pytest.approx(one.grad_norm_max, rel=1e-3)


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 3e-3), ("fp16", 3e-4)])
def test_half_precision_learns_nearly_the_same(tmp_path: Path, precision: str, tolerance: float) -> None:
    exact = _alone(tmp_path, "exact", 120, network=LEARNS)
    half = _alone(tmp_path, "half", 120, network=LEARNS, options=FitOptions.model_validate({"precision": precision}))
    assert half.loss_last != exact.loss_last
    assert half.loss_last == pytest.approx(exact.loss_last, rel=tolerance)
    assert half.loss_last < 0.75 * half.loss_first


def test_a_compiled_fit_learns_the_same(tmp_path: Path) -> None:
    exact = _alone(tmp_path, "exact")
    compiled = _alone(tmp_path, "compiled", options=FitOptions(compile=True))
    assert compiled.loss_last == pytest.approx(exact.loss_last, rel=1e-4)


def test_an_fp16_fit_goes_on_with_its_scale(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path, per_day=41)
    options = FitOptions(precision="fp16", checkpoint=OFTEN)
    spec = make.train_spec(dataset, tmp_path / "stopped", network=LONG, options=options)
    running = ranks(spec, tmp_path / "a", world=1)
    until(lambda: len(checkpoints(tmp_path / "stopped.checkpoints")) >= 2, running)
    running[0].terminate()
    assert [process.wait() for process in running] == [EXIT_TRY_AGAIN]
    resumed = train(spec)
    whole = train(make.train_spec(dataset, tmp_path / "whole", network=LONG, options=options))
    assert resumed is not None
    assert whole is not None
    assert resumed.digest == whole.digest
