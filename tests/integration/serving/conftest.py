"""One real tritonserver for the session, and one training set; both go away at the end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from artifacts.refs import file_uri
from artifacts.settings import ROOT
from feature_repo.contract import DatasetRef
from serving.contract import PackageRef, TritonServer
from serving.embedded import Ports, free_memory
from tests.make import serving as make_serving
from tests.make import training as make_training

VENV = Path(os.environ.get("PERENNIAL_TRITON_VENV", ROOT / ".venv-triton"))
START_SECONDS = 30


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [found.getsockname()[1] for found in sockets]
    finally:
        for found in sockets:
            found.close()


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("triton")
    http, grpc, metrics = free_ports(3)
    ports = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"]
    words = [
        sys.executable,
        "-m",
        "serving.embedded",
        f"--venv={VENV}",
        f"--repository={folder / 'repository'}",
        *ports,
    ]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            words, stdout=log, stderr=log, cwd=ROOT, env={**os.environ, "PERENNIAL_FOLLOW_PARENT": "1"}
        )
    try:
        wait_until_ready(process, http, folder / "server.log")
        yield TritonServer(
            grpc=f"127.0.0.1:{grpc}", http=f"127.0.0.1:{http}", repository=file_uri(folder / "repository")
        )
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        free_memory(Ports(http, grpc, metrics))
        shutil.rmtree(folder, ignore_errors=True)


def wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/v2/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.05)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> DatasetRef:
    return make_training.dataset(tmp_path_factory.mktemp("dataset"))


@pytest.fixture(scope="session")
def packaged(tmp_path_factory: pytest.TempPathFactory, dataset: DatasetRef) -> PackageRef:
    """A good version's package."""
    return make_serving.packaged(tmp_path_factory.mktemp("package"), dataset)
