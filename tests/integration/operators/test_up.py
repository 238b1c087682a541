"""Bringing the stack up with real processes: two at once, ports that are lost, strangers that answer in its place."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from artifacts.settings import ROOT
from operators import stack, up
from operators.ports import pick
from tests.make.toy_step import wait_for

PARTS = ("airflow", "gateway", "triton_http", "triton_grpc")

# Answers every health question on all ports of the stack; while ``folder/lost`` counts down, it says that a port is taken.
PROGRAM = """
import os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
left = Path(os.environ["PERENNIAL_STATE"], "lost")
if left.exists() and int(left.read_text()):
    left.write_text(str(int(left.read_text()) - 1))
    sys.exit("[Errno 98] error while attempting to bind on address: address already in use")
if left.exists():
    left.unlink()
PARTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
BODY = ("{" + ",".join('"%s": {"status": "healthy"}' % part for part in PARTS) + "}").encode()
class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)
    def log_message(self, *_):
        pass
servers = [ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT_" + name])), Health) for name in sys.argv[1:]]
for server in servers[1:]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
servers[0].serve_forever()
"""
COMMAND = (sys.executable, "-S", "-c", PROGRAM, *(name.upper() for name in PARTS))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stack.stop(tmp_path / "stack.pid")


class Chooser:
    """Chooses ports as the real one does, and counts how often."""

    def __init__(self, state: Path) -> None:
        self.state, self.times = state, 0

    def __call__(self) -> dict[str, str]:
        self.times += 1
        ports = pick(PARTS, self.state / "ports.json", in_use=stack.running(self.state / "stack.pid") is not None)
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PERENNIAL_STATE": str(self.state),
            "PERENNIAL_AIRFLOW": f"http://127.0.0.1:{ports['airflow']}",
            "PERENNIAL_GATEWAY": f"http://127.0.0.1:{ports['gateway']}",
            "PERENNIAL_TRITON_HTTP": f"127.0.0.1:{ports['triton_http']}",
            **{f"PORT_{name.upper()}": str(port) for name, port in ports.items()},
        }


def test_ports_that_are_lost_while_it_starts_are_chosen_again(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state / "lost").write_text("2")
    choose = Chooser(state)
    up.bring_up(state, choose, COMMAND)
    assert choose.times == 3
    assert capsys.readouterr().out.count("choosing again") == 2
    up.bring_up(state, choose, COMMAND)  # it runs; nothing is started
    assert choose.times == 4


def test_it_does_not_choose_for_ever(state: Path) -> None:
    (state / "lost").write_text("99")
    choose = Chooser(state)
    with pytest.raises(SystemExit, match=r"the stack has ended; the last lines of .*stack\.log"):
        up.bring_up(state, choose, COMMAND)
    assert choose.times == up.PORT_TRIES


def test_a_stack_that_ends_for_another_reason_is_not_started_again(state: Path) -> None:
    choose = Chooser(state)
    with pytest.raises(SystemExit, match="the stack has ended"):
        up.bring_up(state, choose, (sys.executable, "-S", "-c", "raise SystemExit('no Java')"))
    assert choose.times == 1


def test_a_stranger_that_answers_is_not_taken_for_the_stack(state: Path) -> None:
    env = Chooser(state)()
    stranger = subprocess.Popen(COMMAND, env={**env, "PERENNIAL_STATE": str(state / "elsewhere")})
    try:
        wait_for(lambda: not up.waiting_for(env))
        assert up.strangers(None, env) == [f"{name} on port {env[f'PORT_{name.upper()}']}" for name in PARTS]
        assert up.strangers(os.getpid(), env) == []  # it is a child of ours
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize(
    ("module", "claimed", "says"),
    [
        ("operators.up", "up.pid", "up: the stack in {state} is being started already (pid {pid})"),
        ("operators.demo", "demo.pid", "demo: another demo plays in {state} (pid {pid})"),
    ],
)
def test_a_second_one_says_in_one_line_who_is_first(state: Path, module: str, claimed: str, says: str) -> None:
    with stack.claim(state / claimed):
        done = subprocess.run(
            [sys.executable, "-m", module],
            cwd=ROOT,
            env={**os.environ, "PERENNIAL_STATE": str(state)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(says.format(state=state, pid=os.getpid()))
    assert not (state / "mode.json").exists()


def test_whoever_only_asks_does_not_keep_a_stack_from_its_pid_file(tmp_path: Path) -> None:
    path = tmp_path / "stack.pid"
    path.touch()
    with path.open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        timer = threading.Timer(0.1, lambda: fcntl.flock(asking, fcntl.LOCK_UN))
        timer.start()
        with stack.claim(path):
            assert stack.running(path) == os.getpid()
        timer.join()
