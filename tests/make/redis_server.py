"""A real redis-server for tests: on a free loopback port, nothing on disk but its log, gone with the test."""

from __future__ import annotations

import ctypes
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis, RedisError

START_SECONDS = 20
PR_SET_PDEATHSIG = 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_with_parent() -> None:
    """In the child: the kernel ends it when the test run is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@dataclass
class RedisServer:
    """A redis-server that can be stopped and started again on the same port; it keeps nothing on disk."""

    folder: Path
    password: str = ""
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> Redis:
        return Redis(port=self.port, password=self.password or None, socket_timeout=5)

    def start(self) -> None:
        binary = shutil.which("redis-server")
        assert binary, "redis-server is not installed; run .ci/test-servers (Debian: apt-get install redis-server)"
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        words += ["--dir", str(self.folder), *(["--requirepass", self.password] if self.password else [])]
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [binary, *words],
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent,  # noqa: PLW1509  one system call
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.client().ping()
            except RedisError:
                assert self.process.poll() is None, (self.folder / "redis.log").read_text()
                assert time.monotonic() < deadline, f"redis-server did not answer within {START_SECONDS} s"
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def redis_server(folder: Path, password: str = "") -> Iterator[RedisServer]:
    server = RedisServer(folder, password)
    server.start()
    try:
        yield server
    finally:
        server.stop()
