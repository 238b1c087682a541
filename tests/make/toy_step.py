"""A toy step for the operators' tests: ``python -m tests.make.toy_step <spec> <result>`` behaves as its spec tells it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from artifacts.refs import Ref, Uri
from artifacts.step import DataFault, TryAgain, progress, step
from artifacts.store import publish


def wait_for(happened: Any, seconds: float = 60.0) -> None:
    """Returns as soon as something has happened; raises TimeoutError when it has not in time."""
    until = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > until:
            raise TimeoutError("it did not happen")
        time.sleep(0.02)


class ToySpec(BaseModel, frozen=True, extra="forbid"):
    """What the toy does: a word, where it counts its runs, and where it publishes."""

    does: str = "work"
    counter: str
    gate: str = ""
    output: Uri


class ToyRef(Ref, frozen=True):
    """What the toy made."""

    word: str


def toy(spec: ToySpec) -> ToyRef:
    """Counts the run, then does as it is told."""
    with Path(spec.counter).open("a") as file:
        file.write(f"{os.getpid()}\n")
    first = len(Path(spec.counter).read_text().split()) == 1
    BEFORE.get(spec.does, lambda _: None)(spec)
    if spec.does == "die" or (spec.does == "die once" and first):
        os.kill(os.getpid(), signal.SIGKILL)
    if spec.gate:
        wait_for(Path(spec.gate).exists)
    with publish(spec.output, "toy") as draft:
        (draft.path / "word.txt").write_text(spec.does)
    if spec.does == "die after publish" and first:
        os.kill(os.getpid(), signal.SIGKILL)
    if draft.manifest is None:
        raise RuntimeError("nothing was published")
    sys.stdout.write(f"made {spec.does}\n")
    return ToyRef(uri=spec.output, digest=draft.manifest.digest, word=spec.does)


def _bad_data(_: ToySpec) -> None:
    raise DataFault(["flights.csv: origin: null in 3 rows; drop or fill them", "flights.csv: dest: null"])


def _try_again(_: ToySpec) -> None:
    raise TryAgain("the server does not answer")


def _error(_: ToySpec) -> None:
    raise ZeroDivisionError("a fault of the step's own")


def _leave_children(spec: ToySpec) -> None:
    for new_session in (True, False):
        child = subprocess.Popen(["sleep", "120"], start_new_session=new_session)
        with Path(f"{spec.counter}.children").open("a") as file:
            file.write(f"{child.pid}\n")


def _progress(spec: ToySpec) -> None:
    for part in range(1, 6):

        def told(part: int = part) -> bool:
            progress(part / 5, f"part {part}")  # the door writes it twice a second at most
            return Path(f"{spec.counter}.told-{part}").exists()

        wait_for(told)


def _hang(spec: ToySpec) -> None:
    if spec.does == "hang hard":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.write("hanging\n")
    sys.stdout.flush()
    while True:
        signal.pause()


BEFORE = {
    "bad data": _bad_data,
    "try again": _try_again,
    "error": _error,
    "exit 0": lambda _: os._exit(0),
    "exit 7": lambda _: os._exit(7),
    "leave children": _leave_children,
    "progress": _progress,
    "hang": _hang,
    "hang hard": _hang,
}


if __name__ == "__main__":
    sys.exit(step(toy, ToySpec))
