"""Starts the real tritonserver that the ``nvidia-pytriton`` wheel ships (Python backend only), on loopback.

The server runs from an environment of its own (numpy below 2, or output tensors arrive empty) and replaces this
process, so whoever supervises it supervises the server itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from artifacts.step import follow_parent

LIBRARY = "libpython3.11.so.1.0"
STUB = "triton_python_backend_stub"
LOOPBACK = "127.0.0.1"
EXIT_TIMEOUT_SECONDS = 3
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  where the Python backend maps its tensors
SYSTEM_LIBRARIES = (Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib/aarch64-linux-gnu"), Path("/usr/lib64"))


class NotInstalled(RuntimeError):
    """Something that the server needs is not on this machine; the message says what to install."""


@dataclass(frozen=True)
class Ports:
    """Where the server listens, all on loopback."""

    http: int
    grpc: int
    metrics: int


@dataclass(frozen=True)
class Installation:
    """The parts of a Triton environment."""

    venv: Path
    packages: Path
    library: Path

    @property
    def server(self) -> Path:
        """The folder of the server inside the wheel."""
        return self.packages / "pytriton" / "tritonserver"


def find(venv: Path) -> Installation:
    """The server in an environment; raises NotInstalled with what to do."""
    packages = venv / "lib" / "python3.11" / "site-packages"
    found = Installation(venv, packages, packages)
    if not (found.server / "bin" / "tritonserver").is_file():
        raise NotInstalled(
            f"{venv}: no tritonserver there; run `make setup`, or: uv venv --python 3.11 {venv} && "
            f"uv pip install --python {venv}/bin/python -r locks/triton.txt"
        )
    return Installation(venv, packages, _library_folder(venv))


def _library_folder(venv: Path) -> Path:
    """The folder of the shared libpython that the backend's stub links: the interpreter's own, or the system's."""
    asked = subprocess.run(  # noqa: S603  the environment's own interpreter
        [venv / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"],
        capture_output=True,
        text=True,
        check=False,
    )
    own = Path(asked.stdout.strip() or sysconfig.get_config_var("LIBDIR") or "/usr/lib")
    for folder in (own, *SYSTEM_LIBRARIES):
        if (folder / LIBRARY).exists():
            return folder
    raise NotInstalled(
        f"{LIBRARY} is neither in {own} nor in {', '.join(map(str, SYSTEM_LIBRARIES))}; install Debian's `libpython3.11`, "
        "or make the environment with a Python 3.11 that has a shared library (uv's has)"
    )


def command(found: Installation, repository: Path, ports: Ports) -> list[str]:
    """The server's command line: explicit mode, loopback only."""
    return [
        str(found.server / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        "--model-control-mode=explicit",
        f"--backend-directory={found.server / 'backends'}",
        f"--cache-directory={found.server / 'caches'}",
        f"--backend-config=python,shm-region-prefix-name={memory_prefix(ports)}",
        f"--exit-timeout-secs={EXIT_TIMEOUT_SECONDS}",
        f"--http-address={LOOPBACK}",
        f"--http-port={ports.http}",
        f"--grpc-address={LOOPBACK}",
        f"--grpc-port={ports.grpc}",
        f"--metrics-address={LOOPBACK}",
        f"--metrics-port={ports.metrics}",
        "--allow-gpu-metrics=false",
    ]


def environment(found: Installation, inherited: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: the stub finds its packages through the ``python`` that is first on PATH."""
    return {
        **inherited,
        "PATH": f"{found.venv / 'bin'}:{inherited.get('PATH', '')}",
        "LD_LIBRARY_PATH": f"{found.library}:{found.packages / 'nvidia_pytriton.libs'}",
    }


def memory_prefix(ports: Ports) -> str:
    """The prefix of the server's files in shared memory; a killed server leaves them behind."""
    return f"perennial_triton_{ports.grpc}_"


def prepare(found: Installation, repository: Path, ports: Ports) -> None:
    """Puts the stub beside its backend, makes the repository, and removes what a killed server left in memory."""
    target = found.server / "backends" / "python" / STUB
    if not target.exists():
        temporary = target.with_name(f".{STUB}.{os.getpid()}")
        shutil.copy2(found.server / "python_backend_stubs" / "3.11" / STUB, temporary)
        temporary.replace(target)
    repository.mkdir(parents=True, exist_ok=True)
    for port in (ports.http, ports.grpc, ports.metrics):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError as error:
                raise NotInstalled(f"{LOOPBACK}:{port} is taken ({error}); stop what listens there") from error
    free_memory(ports)


def free_memory(ports: Ports) -> None:
    """Removes what a server that has ended left in shared memory (a killed stub leaves 1 MiB and more)."""
    for left in SHARED_MEMORY.glob(f"{memory_prefix(ports)}*"):
        left.unlink(missing_ok=True)


def main(arguments: list[str]) -> NoReturn:
    """Becomes the server, or says in one line what is missing (exit code 1)."""
    parser = argparse.ArgumentParser(prog="python -m serving.embedded", description=__doc__)
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--repository", type=Path, required=True)
    for name in ("http", "grpc", "metrics"):
        parser.add_argument(f"--{name}-port", type=int, required=True)
    given = parser.parse_args(arguments)
    ports = Ports(given.http_port, given.grpc_port, given.metrics_port)
    try:
        found = find(given.venv.absolute())
        prepare(found, given.repository.absolute(), ports)
    except NotInstalled as error:
        sys.exit(str(error))
    follow_parent()
    words = command(found, given.repository.absolute(), ports)
    os.execve(words[0], words, environment(found, os.environ))  # noqa: S606  becomes the server


if __name__ == "__main__":
    main(sys.argv[1:])
