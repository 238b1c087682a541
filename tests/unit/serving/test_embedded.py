"""The embedded server's command line and what it says when something is missing."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from serving.embedded import Installation, NotInstalled, Ports, command, environment, find, main, prepare

PORTS = Ports(http=18000, grpc=18001, metrics=18002)


def installed(folder: Path) -> Installation:
    found = Installation(folder, folder / "site-packages", folder / "lib")
    for part in ("bin", "backends/python", "python_backend_stubs/3.11"):
        (found.server / part).mkdir(parents=True)
    (found.server / "python_backend_stubs/3.11/triton_python_backend_stub").write_text("stub")
    return found


@pytest.mark.covers("field-reports 103")
def test_the_server_listens_on_loopback_only_and_loads_nothing_by_itself(tmp_path: Path) -> None:
    words = command(installed(tmp_path), tmp_path / "repository", PORTS)
    assert "--model-control-mode=explicit" in words
    assert [word for word in words if "-address=" in word] == [
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
    ]


def test_the_stub_finds_its_python_first_on_the_path(tmp_path: Path) -> None:
    found = environment(installed(tmp_path), {"PATH": "/usr/bin", "KEPT": "1"})
    assert found["PATH"] == f"{tmp_path / 'bin'}:/usr/bin"
    assert found["LD_LIBRARY_PATH"].startswith(str(tmp_path / "lib"))
    assert found["KEPT"] == "1"


def test_a_missing_environment_is_one_line_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled, match=r"locks/triton\.txt"):
        find(tmp_path / "absent")
    words = ["--venv", str(tmp_path / "absent"), "--repository", str(tmp_path / "repository")]
    with pytest.raises(SystemExit) as caught:
        main([*words, "--http-port", "18000", "--grpc-port", "18001", "--metrics-port", "18002"])
    assert "\n" not in str(caught.value.code)
    assert "make setup" in str(caught.value.code)


def test_preparing_twice_is_the_same_as_once_and_a_taken_port_is_named(tmp_path: Path) -> None:
    found = installed(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(NotInstalled, match=f"127.0.0.1:{taken.getsockname()[1]} is taken"):
            prepare(found, tmp_path / "repository", Ports(taken.getsockname()[1], 0, 0))
    for _ in range(2):
        prepare(found, tmp_path / "repository", Ports(0, 0, 0))
    assert (found.server / "backends/python/triton_python_backend_stub").read_text() == "stub"
    assert (tmp_path / "repository").is_dir()
