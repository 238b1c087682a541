"""Training with real processes: ranks agree, a killed fit resumes to the same bytes, broken checkpoints are skipped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from artifacts import store
from artifacts.refs import file_uri, local_path, sha256
from artifacts.step import EXIT_BAD_DATA, DataFault, failure_of, step
from tests.make import training as make
from training import checkpoint
from training.contract import FitRef, TrainSpec
from training.train import train

pytestmark = pytest.mark.torch

LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--local-addr", "127.0.0.1"]
ENVIRONMENT = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PERENNIAL_FOLLOW_PARENT": "1"}
LONG = make.NETWORK.model_copy(update={"max_epochs": 30, "patience": 30, "dropout": 0.2})
DEADLINE_SECONDS = 250


def _launch(spec: TrainSpec, folder: Path, processes: int = 2) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(spec.model_dump_json())
    door = ["-m", "training.train", file_uri(folder / "spec.json"), file_uri(folder / "result.json")]
    command = [sys.executable, *LAUNCH, f"--nproc-per-node={processes}", *door]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True)


def _result(running: subprocess.Popen[bytes], folder: Path) -> FitRef:
    try:
        code = running.wait(DEADLINE_SECONDS)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    assert code == 0, (folder / "log").read_text()
    return FitRef.model_validate_json((folder / "result.json").read_bytes())


def _kill_after_checkpoints(running: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    pause, begun = threading.Event(), time.monotonic()
    try:
        while len(list(folder.glob("*.pt"))) < count:
            assert running.poll() is None, "it ended before it could be killed"
            assert time.monotonic() - begun < DEADLINE_SECONDS
            pause.wait(0.005)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def test_a_killed_fit_resumes_past_a_broken_checkpoint_to_the_same_bytes(tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path)
    whole_spec = make.train_spec(dataset, tmp_path / "whole", processes=2, network=LONG)
    whole = _result(_launch(whole_spec, tmp_path / "a"), tmp_path / "a")
    assert whole.loss_last < whole.loss_first
    assert not list((tmp_path / "whole.checkpoints").glob("*"))

    spec = make.train_spec(dataset, tmp_path / "killed", processes=2, network=LONG)
    folder = tmp_path / "killed.checkpoints"
    _kill_after_checkpoints(_launch(spec, tmp_path / "b"), folder, count=2)
    assert store.manifest(spec.output) is None
    newest = max(folder.glob("*.pt"))
    newest.write_bytes(newest.read_bytes()[:-1])

    resumed = _result(_launch(spec, tmp_path / "b"), tmp_path / "b")
    facts = store.read_ref(resumed).manifest.facts
    assert facts["resumed"] is True
    assert [newest.name in words for words in facts["checkpoints_skipped"]] == [True]  # type: ignore[union-attr,operator]
    assert resumed.digest == whole.digest
    assert resumed.epochs == whole.epochs


def test_two_ranks_and_one_process_learn_the_same(tmp_path: Path) -> None:
    """Equal up to the order of float32 sums: dropout is off, and each batch holds the same rows."""
    dataset = make.dataset(tmp_path, per_day=41)
    together = make.train_spec(dataset, tmp_path / "two", processes=2)
    running = _launch(together, tmp_path / "a")
    alone = train(make.train_spec(dataset, tmp_path / "one"))
    two = _result(running, tmp_path / "a")
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


def test_a_gradient_that_is_no_number_stops_the_fit(tmp_path: Path) -> None:
    network = make.NETWORK.model_copy(update={"learning_rate": 1e30})
    spec = make.train_spec(make.dataset(tmp_path), tmp_path / "fit", network=network)
    with pytest.raises(DataFault, match=r"lower network\.learning_rate"):
        train(spec)


def test_checkpoints_keep_three_and_fall_back_to_the_newest_whole_one_of_the_same_work(tmp_path: Path) -> None:
    where, key = file_uri(tmp_path / "fit.checkpoints"), sha256(b"work")
    assert checkpoint.newest(where, key) is None
    for at in (9, 10, 11, 100):
        checkpoint.save(where, key, at, {"at": at})
    checkpoint.save(where, sha256(b"other work"), 101, {"at": 101})
    folder = local_path(where)
    assert folder is not None
    names = sorted(path.name for path in folder.glob("*.pt"))
    assert [int(name.partition("-")[0]) for name in names] == [11, 100, 101]
    (folder / names[1]).write_bytes(b"not a checkpoint")
    found = checkpoint.newest(where, key)
    assert found is not None
    assert checkpoint.state_of(found.content) == {"at": 11}
    assert [words.split(": ")[0] for words in found.skipped] == [names[2], names[1]]
    checkpoint.clear(where)
    assert not folder.exists()
