"""Starts the ranks of a training as processes of their own, with torchrun or without it, and waits for how they end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from artifacts.refs import file_uri
from artifacts.step import Failure
from training.contract import FitRef, TrainSpec

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--local-addr", "127.0.0.1")
ENVIRONMENT = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PERENNIAL_FOLLOW_PARENT": "1"}
DEADLINE_SECONDS = 250
MODULE = "training.train"


def door(spec: TrainSpec, folder: Path, module: str = MODULE) -> list[str]:
    """The words of the step door, with the spec written below ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(spec.model_dump_json())
    return ["-m", module, file_uri(folder / "spec.json"), file_uri(folder / "result.json")]


def launch(spec: TrainSpec, folder: Path, processes: int = 2) -> subprocess.Popen[bytes]:
    """Torchrun, as a job starts it."""
    command = [sys.executable, *TORCHRUN, f"--nproc-per-node={processes}", *door(spec, folder)]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True)


def ranks(
    spec: TrainSpec, folder: Path, world: int = 2, only: Sequence[int] | None = None, module: str = MODULE
) -> list[subprocess.Popen[bytes]]:
    """The ranks alone, without an agent that ends all when one fails; ``only`` leaves some out."""
    words = door(spec, folder, module)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    started = []
    for rank in range(world) if only is None else only:
        own = {**ENVIRONMENT, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        with (folder / f"log.{rank}").open("wb") as log:
            started.append(subprocess.Popen([sys.executable, *words], env=own, stdout=log, stderr=log))
    return started


def result(running: subprocess.Popen[bytes] | Sequence[subprocess.Popen[bytes]], folder: Path) -> FitRef:
    """Waits for the end, which must be a good one."""
    codes = ends(running)
    assert set(codes) == {0}, "\n".join(path.read_text() for path in sorted(folder.glob("log*")))
    return FitRef.model_validate_json((folder / "result.json").read_bytes())


def ends(running: subprocess.Popen[bytes] | Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Waits for the exit codes; kills what has not ended in time."""
    processes = [running] if isinstance(running, subprocess.Popen) else list(running)
    until = time.monotonic() + DEADLINE_SECONDS
    try:
        return [process.wait(max(0.1, until - time.monotonic())) for process in processes]
    finally:
        kill(*processes)


def failure(folder: Path) -> Failure:
    """What the ranks have said."""
    return Failure.model_validate_json((folder / "failure.json").read_bytes())


def kill(*processes: subprocess.Popen[bytes]) -> None:
    """SIGKILL to processes and all below them, at once: nobody is left to save or to say anything."""
    for process in processes:
        if process.poll() is None:
            root = psutil.Process(process.pid)
            for one in [root, *root.children(recursive=True)]:
                one.send_signal(signal.SIGKILL)
        process.wait()


def until(true: Callable[[], bool], running: Sequence[subprocess.Popen[bytes]]) -> None:
    """Waits for something that processes do while they run."""
    pause, begun = threading.Event(), time.monotonic()
    while not true():
        assert all(process.poll() is None for process in running), "one ended before"
        assert time.monotonic() - begun < DEADLINE_SECONDS
        pause.wait(0.005)


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints that are whole, oldest first."""
    return sorted(path.parent for path in folder.glob("*/manifest.json"))
