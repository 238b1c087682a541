"""Builders for the operators' tests: ledgers, planned toy steps, runners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel

from artifacts.records import connect
from artifacts.refs import Digest, Uri, file_uri, sha256
from operators.ledger import Ledger, migrate
from operators.process import ProcessRunner
from operators.steps import PlannedStep, Skip, StepCall, plan
from tests.make.toy_step import ToyRef, ToySpec

MODULE = "tests.make.toy_step"
CODE: Digest = sha256(b"the code of the toy step")
IMAGE = f"registry.example/perennial-training@{sha256(b'an image')}"


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, event: str, *args: Any) -> None:
        """Keeps one line."""
        self.lines.append(event % args)


class Telling(Lines):
    """A log that lets the toy's ``progress`` go on once each part has been told."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def info(self, event: str, *args: Any) -> None:
        """Keeps one line, and answers the toy when it is one of progress."""
        super().info(event, *args)
        if "% part " in self.lines[-1]:
            (self._folder / f"runs.told-{self.lines[-1].split('part ')[1][0]}").touch()


def toy_call(folder: Path, does: str = "work", gate: str = "", output: Uri | None = None, **call: Any) -> StepCall:
    """A call of the toy step that publishes below ``folder``, or at ``output``."""

    def spec(**_: Any) -> BaseModel | Skip | None:
        return ToySpec(does=does, counter=str(folder / "runs"), gate=gate, output=output or file_uri(folder / "made"))

    return StepCall(MODULE, "features", spec, ToyRef, **call)


def toy_step(folder: Path, does: str = "work", gate: str = "", store: Uri | None = None, **call: Any) -> PlannedStep:
    """The toy step, planned in a store of the folder or in ``store``."""
    found = plan(toy_call(folder, does, gate, **call), {}, store or file_uri(folder / "store"), CODE)
    if isinstance(found, Skip):
        raise TypeError(found.reason)
    return found


def ledger(folder: Path) -> Ledger:
    """A migrated ledger in a folder."""
    engine = connect(f"sqlite:///{folder / 'perennial.db'}")
    migrate(engine)
    return Ledger(engine)


def runner(folder: Path, does: str = "work", **arguments: Any) -> ProcessRunner:
    """A runner of the toy step, with a log that keeps its lines and a short grace."""
    defaults = {
        "log": Lines(),
        "grace_seconds": 1.0,
        "task": {"dag": "toy", "task": "toy", "run": "r1", "map_index": "-1"},
    }
    planned = arguments.pop("step", None) or toy_step(folder, does)
    return ProcessRunner(planned, ledger(folder), folder / "locks", **{**defaults, **arguments})


def alive(pid: int) -> bool:
    """Whether a process runs; one that ends while it is looked at does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def runs(folder: Path) -> int:
    """How often the toy has really run."""
    counter = folder / "runs"
    return len(counter.read_text().split()) if counter.exists() else 0
