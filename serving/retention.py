"""How much of the disk the prediction log may hold, when it says so, and which partitions may go. Pure but for ``measure``."""

from __future__ import annotations

import datetime as dt
import shutil
from dataclasses import dataclass
from pathlib import Path

ALARM_SHARE = 0.8
"""Share of the limit at which the alarm goes on: at the reference rate that leaves days, not minutes, to act."""


@dataclass
class Room:
    """What the log holds against what it may; ``keep_free`` is what the disk must have left for everybody else."""

    limit: int
    keep_free: int
    held: int = 0
    free: int = 1 << 62

    def take(self, count: int) -> str | None:
        """Counts bytes that are about to be written; the reason why they may not be, or None."""
        if self.held + count > self.limit:
            return f"the prediction log holds {self.held} bytes, at most {self.limit} are allowed; compact and prune it, or raise PERENNIAL_GATEWAY_LOG_BYTES"
        if self.free - count < self.keep_free:
            return f"the disk has {self.free} bytes left, {self.keep_free} are kept free; make room"
        self.held += count
        self.free -= count
        return None

    @property
    def alarm(self) -> bool:
        """Whether somebody should make room soon."""
        return self.held >= ALARM_SHARE * self.limit or self.free < self.keep_free / ALARM_SHARE

    def measure(self, root: Path) -> None:
        """Looks at the disk again; other processes write and prune too."""
        root.mkdir(parents=True, exist_ok=True)
        self.held = sum(path.stat().st_size for path in list(root.rglob("*.jsonl")) if path.exists())
        self.free = shutil.disk_usage(root).free


def old(partitions: list[dt.date], today: dt.date, keep: dt.timedelta) -> list[dt.date]:
    """The partitions whose segments may go once they have been compacted."""
    return [partition for partition in partitions if today - partition > keep]
