"""What the demo shows: one progress bar per stage on a terminal, plain lines elsewhere; and how long each stage took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

LINE_SECONDS = 15.0
PLAIN_WIDTH = 160

Say = Callable[[float, str], None]


class Display:
    """The demo's screen."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or (Console() if Console().is_terminal else Console(width=PLAIN_WIDTH))
        self.durations: dict[str, float] = {}
        self.reused: list[str] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[Say]:
        """Shows a stage from begin to end and keeps its duration in seconds."""
        begun = time.monotonic()
        with self._bar(name) if self.console.is_terminal else self._lines(name) as say:
            yield say
        seconds = time.monotonic() - begun
        self.durations[name] = round(self.durations.get(name, 0.0) + seconds, 1)

    def reuse(self, name: str, words: str) -> None:
        """Says that a stage's work is there already."""
        self.reused.append(name)
        self.durations.setdefault(name, 0.0)
        self.console.print(f"[bold]{name}[/bold]: reused, {words}")

    @contextmanager
    def _bar(self, name: str) -> Iterator[Say]:
        columns = (
            TextColumn("[bold]{task.fields[stage]:<18}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=self.console) as progress:
            bar = progress.add_task("", total=1.0, stage=name)

            def say(fraction: float, words: str) -> None:
                progress.update(bar, completed=min(fraction, 1.0), description=words)

            yield say
            progress.update(bar, completed=1.0, description="done")

    @contextmanager
    def _lines(self, name: str) -> Iterator[Say]:
        told = 0.0
        begun = time.monotonic()

        def say(fraction: float, words: str) -> None:
            nonlocal told
            if time.monotonic() - told >= LINE_SECONDS:
                told = time.monotonic()
                self.console.print(f"{name}: {fraction:4.0%} {words}", markup=False, highlight=False, soft_wrap=True)

        yield say
        self.console.print(f"{name}: done in {time.monotonic() - begun:.0f} s", markup=False, highlight=False)
