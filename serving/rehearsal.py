"""Loads a version in a throw-away server before the live one sees it: a load that fails there leaks nothing here.

The server is the live one's program with the same configuration, on free ports and in a repository of its own; it is ended
with everything that it started.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from artifacts.refs import file_uri
from artifacts.settings import ROOT
from artifacts.step import TryAgain, progress
from serving.contract import StageRef, StageSpec, TritonServer
from serving.embedded import EXIT_TIMEOUT_SECONDS, LOOPBACK, Ports, free_memory
from serving.triton import connect, stage

START_SECONDS = 30
POLL_SECONDS = 0.05
MEBIBYTE = 1 << 20


def stage_rehearsed(spec: StageSpec) -> StageRef:
    """``stage``, after the same in a throw-away server where ``spec.rehearsal`` names its environment.

    G8's figures then say how much memory the version takes. DataFault when the throw-away server refuses it.
    """
    if spec.rehearsal is None:
        return stage(spec)
    memory = rehearse(spec, spec.rehearsal)
    found = stage(spec)
    if found.servable is None:
        return found
    servable = found.servable.model_copy(update={"figures": {**found.servable.figures, **memory}})
    return found.model_copy(update={"servable": servable})


def rehearse(spec: StageSpec, venv: Path) -> dict[str, float | int | str | None]:
    """Stages in a throw-away server; its memory in MiB before and after."""
    progress(0.05, "starting a throw-away server")
    with throw_away(venv) as (server, process):
        before = memory_mib(process.pid)
        stage(spec.model_copy(update={"triton": server}))
        return {"memory_before_mib": round(before, 1), "memory_after_mib": round(memory_mib(process.pid), 1)}


@contextmanager
def throw_away(venv: Path) -> Iterator[tuple[TritonServer, subprocess.Popen[bytes]]]:
    """A server that answers, on free ports; gone at the end. TryAgain with its last words when it does not start."""
    ports = free_ports()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [sys.executable, "-m", "serving.embedded", f"--venv={venv}", f"--repository={folder / 'repository'}"]
        words += [f"--{port}-port={number}" for port, number in vars(ports).items()]
        environment = {**os.environ, "PERENNIAL_FOLLOW_PARENT": "1"}
        with (folder / "server.log").open("wb") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, cwd=ROOT, env=environment)  # noqa: S603  our own
        server = TritonServer(
            grpc=f"{LOOPBACK}:{ports.grpc}",
            http=f"{LOOPBACK}:{ports.http}",
            repository=file_uri(folder / "repository"),
        )
        try:
            _wait(server, process, folder / "server.log")
            yield server, process
        finally:
            _end(process)
            free_memory(ports)


def free_ports() -> Ports:
    """Three ports on loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(3)]
    try:
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return Ports(*(each.getsockname()[1] for each in sockets))
    finally:
        for each in sockets:
            each.close()


def _wait(server: TritonServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    with connect(server, 1) as client:
        while True:
            try:
                client.states()
            except TryAgain as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise TryAgain(
                        f"the throw-away server did not start: {log.read_text(errors='replace').strip()[-500:]}"
                    ) from error
                time.sleep(POLL_SECONDS)
            else:
                return


def _end(process: subprocess.Popen[bytes]) -> None:
    children = _tree(process.pid)[1:]
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(2 * EXIT_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(children, EXIT_TIMEOUT_SECONDS)


def _tree(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def memory_mib(pid: int) -> float:
    """Proportional memory of a process and all below it."""
    found = 0
    for process in _tree(pid):
        try:
            found += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return found / MEBIBYTE
