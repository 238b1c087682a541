"""The supervisor with real processes: whatever ends the stack, nothing of it is left after 6 seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from artifacts.settings import ROOT
from operators.stack import Taken, claim, proportional_memory, running, stop
from tests.make.operators import alive
from tests.make.toy_step import wait_for

LIMIT_SECONDS = 6.0

# A stack as nasty as the real one: the command hangs on SIGTERM as honcho does, one child ignores SIGTERM, one has a
# session of its own, and one of them has a child in yet another session whose parent has already gone.
NASTY = """
import os, signal, subprocess, sys, time
folder = sys.argv[1]
def note(name, pid):
    with open(f"{folder}/{name}.new", "w") as file: file.write(str(pid))
    os.rename(f"{folder}/{name}.new", f"{folder}/{name}.pid")
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(300)"
one = subprocess.Popen([sys.executable, "-S", "-c", deaf], stdout=subprocess.PIPE)
one.stdout.readline()
note("deaf", one.pid)
note("session", subprocess.Popen(["sleep", "300"], start_new_session=True).pid)
orphan = "import subprocess, os; print(subprocess.Popen(['sleep', '300'], start_new_session=True, stdout=subprocess.DEVNULL).pid)"
note("orphan", int(subprocess.run([sys.executable, "-S", "-c", orphan], stdout=subprocess.PIPE, start_new_session=True).stdout))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
note("command", os.getpid())
time.sleep(300)
"""
PARTS = ("deaf", "session", "orphan", "command")


def start(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    words = command or (sys.executable, "-S", "-c", textwrap.dedent(NASTY), str(folder))
    return subprocess.Popen(
        [sys.executable, "-m", "operators.stack", "--pid-file", str(folder / "stack.pid"), *words],
        cwd=ROOT,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def nasty(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    stack = start(tmp_path)
    try:
        wait_for(lambda: all((tmp_path / f"{part}.pid").exists() for part in PARTS))
        yield stack, [int((tmp_path / f"{part}.pid").read_text()) for part in PARTS]
    finally:
        stack.terminate()
        stack.communicate(timeout=20)


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, "down"])
def test_every_way_to_end_the_stack_ends_all_of_it(
    tmp_path: Path, nasty: tuple[subprocess.Popen[bytes], list[int]], way: signal.Signals | str
) -> None:
    stack, pids = nasty
    assert all(alive(pid) for pid in pids)
    assert running(tmp_path / "stack.pid") == stack.pid
    began = time.monotonic()
    if isinstance(way, signal.Signals):
        stack.send_signal(way)
    else:
        assert stop(tmp_path / "stack.pid") is True
        assert not alive(stack.pid)  # not only its pid file: the process itself has left
    assert stack.wait(20) == 130
    assert not [pid for pid in pids if alive(pid)]
    assert time.monotonic() - began < LIMIT_SECONDS
    assert running(tmp_path / "stack.pid") is None
    assert stop(tmp_path / "stack.pid") is False


def test_the_end_of_the_command_is_the_end_of_the_stack(tmp_path: Path) -> None:
    leaves = "import subprocess; print(subprocess.Popen(['sleep', '300'], start_new_session=True).pid, flush=True); raise SystemExit(3)"
    stack = subprocess.run(
        [sys.executable, "-m", "operators.stack", sys.executable, "-S", "-c", leaves],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    assert stack.returncode == 3
    assert not alive(int(stack.stdout))


def test_an_orphan_that_ends_while_the_stack_runs_leaves_no_zombie(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    waits = f"import subprocess; print(subprocess.Popen(['cat', '{tmp_path}/go'], stdout=subprocess.DEVNULL).pid)"
    leaves = f"""
import os, subprocess, sys, time
pid = subprocess.run([sys.executable, "-S", "-c", {waits!r}], stdout=subprocess.PIPE).stdout.decode()
open("{tmp_path}/orphan.new", "w").write(pid)
os.rename("{tmp_path}/orphan.new", "{tmp_path}/orphan")
time.sleep(300)
"""
    stack = start(tmp_path, sys.executable, "-S", "-c", leaves)
    try:
        wait_for((tmp_path / "orphan").exists)
        orphan = int((tmp_path / "orphan").read_text())
        wait_for(lambda: psutil.Process(orphan).ppid() == stack.pid)
        with (tmp_path / "go").open("w") as go:
            go.write("\n")
        wait_for(lambda: not psutil.pid_exists(orphan))
    finally:
        stack.terminate()
        stack.communicate(timeout=20)


def test_even_a_killed_supervisor_ends_its_command(tmp_path: Path) -> None:
    stack = start(
        tmp_path,
        sys.executable,
        "-S",
        "-c",
        f"import os, time; open(r'{tmp_path}/c', 'w').write(str(os.getpid())); time.sleep(300)",
    )
    wait_for(lambda: (tmp_path / "c").exists() and (tmp_path / "c").read_text())
    stack.kill()
    stack.communicate(timeout=10)
    wait_for(lambda: not alive(int((tmp_path / "c").read_text())))
    assert running(tmp_path / "stack.pid") is None


def test_a_second_stack_is_refused_and_leaves_the_first_alone(
    tmp_path: Path, nasty: tuple[subprocess.Popen[bytes], list[int]]
) -> None:
    stack, pids = nasty
    second = start(tmp_path, "true")
    _, said = second.communicate(timeout=20)
    assert second.returncode == 73
    assert f"already (pid {stack.pid}".encode() in said
    assert all(alive(pid) for pid in pids)
    with pytest.raises(Taken, match="--stop"):
        claim(tmp_path / "stack.pid")
    assert running(tmp_path / "stack.pid") == stack.pid


def test_a_pid_file_that_a_dead_stack_left_blocks_nobody(tmp_path: Path) -> None:
    path = tmp_path / "stack.pid"
    path.write_text("1\n")
    assert running(path) is None
    assert stop(path) is False
    with claim(path):
        assert path.read_text() == f"{os.getpid()}\n"
    assert running(path) is None


def test_memory_is_counted_once_over_the_whole_tree() -> None:
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "x = bytearray(b'1') * 40_000_000; print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        alone, whole = proportional_memory(child.pid), proportional_memory(os.getpid())
        assert 40_000_000 < alone < 80_000_000
        assert whole > alone + 10_000_000
    finally:
        child.communicate(b"\n", timeout=10)
    assert proportional_memory(child.pid) == 0
