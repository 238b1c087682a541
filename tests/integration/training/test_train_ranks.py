"""Training with real processes: ranks agree, a killed fit resumes to the same bytes, broken checkpoints are skipped."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from artifacts import store
from artifacts.refs import file_uri, local_path, sha256
from artifacts.step import EXIT_BAD_DATA, EXIT_TRY_AGAIN, DataFault, failure_of, step
from tests.make import training as make
from tests.make.ranks import checkpoints, kill, launch, result, until
from training import checkpoint
from training.contract import CheckpointPolicy, FitOptions, TrainSpec
from training.train import train

pytestmark = pytest.mark.torch

LONG = make.NETWORK.model_copy(update={"max_epochs": 30, "patience": 30, "dropout": 0.2})
OFTEN = FitOptions(checkpoint=CheckpointPolicy(longest_seconds=0))


def test_a_killed_fit_resumes_past_a_broken_checkpoint_to_the_same_bytes(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path)
    whole_spec = make.train_spec(dataset, tmp_path / "whole", processes=2, network=LONG)
    whole = result(launch(whole_spec, tmp_path / "a"), tmp_path / "a")
    assert whole.loss_last < whole.loss_first
    assert not list((tmp_path / "whole.checkpoints").glob("*"))

    spec = make.train_spec(dataset, tmp_path / "killed", processes=2, network=LONG, options=OFTEN)
    folder = tmp_path / "killed.checkpoints"
    running = launch(spec, tmp_path / "b")
    until(lambda: len(checkpoints(folder)) >= 2, [running])
    kill(running)
    assert store.manifest(spec.output) is None
    newest = checkpoints(folder)[-1]
    tensors = next(newest.glob("*/__0_0.distcp"))
    tensors.write_bytes(tensors.read_bytes()[:-1])

    resumed = result(launch(spec, tmp_path / "b"), tmp_path / "b")
    facts = store.read_ref(resumed).manifest.facts
    assert facts["resumed"] is True
    assert [newest.name in words for words in facts["checkpoints_skipped"]] == [True]  # type: ignore[union-attr,operator]
    assert resumed.digest == whole.digest
    assert resumed.epochs == whole.epochs


def test_two_ranks_and_one_process_learn_the_same(tmp_path: Path) -> None:
    """Equal up to the order of float32 sums: dropout is off, and each batch holds the same rows."""
    dataset = make.dataset(tmp_path, per_day=41)
    together = make.train_spec(dataset, tmp_path / "two", processes=2)
    running = launch(together, tmp_path / "a")
    alone = train(make.train_spec(dataset, tmp_path / "one"))
    two = result(running, tmp_path / "a")
    assert alone is not None
    assert (two.rows, two.epochs) == (alone.rows, alone.epochs)
    assert two.loss_first == pytest.approx(alone.loss_first, rel=1e-6)
    assert two.loss_last == pytest.approx(alone.loss_last, rel=1e-4)
    assert two.grad_norm_max == pytest.approx(alone.grad_norm_max, rel=1e-3)


def test_equal_work_gives_equal_bytes_and_the_final_fit_sees_all_days(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path)
    first, second = (train(make.train_spec(dataset, tmp_path / name)) for name in "ab")
    assert first is not None
    assert second is not None
    assert first.digest == second.digest
    final = train(make.train_spec(dataset, tmp_path / "c", fit="final", epochs=2))
    assert final is not None
    windows = make.windows(dataset)
    assert (first.train_last, first.seen_last) == (windows.train_last, windows.validation_last)
    assert (final.train_last, final.seen_last, final.epochs) == (windows.test_last, windows.test_last, 2)
    assert final.rows > first.rows


def test_another_number_of_processes_than_the_spec_says_is_refused(tmp_path: Path) -> None:
    spec = make.train_spec(make.dataset(tmp_path), tmp_path / "fit", processes=2)
    (tmp_path / "spec.json").write_text(spec.model_dump_json())
    result = file_uri(tmp_path / "result.json")
    assert step(train, TrainSpec, [file_uri(tmp_path / "spec.json"), result]) == EXIT_BAD_DATA
    failure = failure_of(result)
    assert failure is not None
    assert "job.world_size=2, but 1 process(es) were started" in failure.reason
    assert store.manifest(spec.output) is None


def test_a_full_disk_stops_the_fit_for_another_try_which_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make.train_spec(make.dataset(tmp_path), tmp_path / "fit", options=OFTEN)
    (tmp_path / "spec.json").write_text(spec.model_dump_json())
    words = [file_uri(tmp_path / "spec.json"), file_uri(tmp_path / "result.json")]
    write = checkpoint._write

    def full(tensors: object, path: Path, **how: bool) -> None:
        if int(path.parent.name) >= 5:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(tensors, path, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "_write", full)
    assert step(train, TrainSpec, words) == EXIT_TRY_AGAIN
    failure = failure_of(words[1])
    assert failure is not None
    assert failure.kind == "try_again"
    assert "free some space on this machine" in failure.reason
    assert [int(path.name) for path in checkpoints(tmp_path / "fit.checkpoints")] == [2, 3, 4]

    monkeypatch.undo()
    resumed = train(spec)
    assert resumed is not None
    assert store.read_ref(resumed).manifest.facts["resumed"] is True
    whole = train(spec.model_copy(update={"output": f"{spec.output}-whole"}))
    assert whole is not None
    assert resumed.digest == whole.digest


def test_a_gradient_that_is_no_number_stops_the_fit(tmp_path: Path) -> None:
    network = make.NETWORK.model_copy(update={"learning_rate": 1e30})
    spec = make.train_spec(make.dataset(tmp_path), tmp_path / "fit", network=network)
    with pytest.raises(DataFault, match=r"lower network\.learning_rate"):
        train(spec)


def test_checkpoints_keep_three_and_fall_back_to_the_newest_whole_one_of_the_same_work(tmp_path: Path) -> None:
    where, key = file_uri(tmp_path / "fit.checkpoints"), sha256(b"work")
    assert checkpoint.newest(where, key) is None
    for at in (9, 10, 11, 100):
        checkpoint.save(where, key, at, {"at": torch.tensor(at)}, {"step": at})
    checkpoint.save(where, sha256(b"other work"), 101, {"at": torch.tensor(101)}, {"step": 101})
    folder = local_path(where)
    assert folder is not None
    assert sorted(int(path.name) for path in folder.glob("*")) == [11, 100, 101]
    next(folder.glob("*100/*/progress.json")).write_text("{}")
    found = checkpoint.newest(where, key)
    assert found is not None
    assert found.progress == {"step": 11}
    assert [words.split(": ")[0].rpartition("/")[2] for words in found.skipped] == ["000000000101", "000000000100"]
    tensors = {"at": torch.tensor(0)}
    checkpoint.load(found, tensors)
    assert int(tensors["at"]) == 11
    checkpoint.clear(where)
    assert not folder.exists()
