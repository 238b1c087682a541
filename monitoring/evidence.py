"""Which checks of a version argue for a retrain, and which of them are evidence apart from each other. Pure.

Two rules beside the thresholds keep the policy from counting one thing twice:

- Merged windows that share a day count once.
- Labels that two checks share count once, since a quality figure reads up to a week of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from monitoring.contract import CheckRow, DriftPolicy

DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Seen:
    """The checks of one version, oldest first, the trigger share that holds now, and alerts from outside by partition."""

    rows: Sequence[CheckRow]
    share: float
    alerts: dict[dt.date, str]
    policy: DriftPolicy

    @cached_property
    def by_partition(self) -> dict[dt.date, CheckRow]:
        """The check of each partition."""
        return {row.partition: row for row in self.rows}

    def hit(self, row: CheckRow) -> bool:
        """Whether a check argues for a retrain."""
        return row.outcome == "checked" and (self.moved(row) or row.quality_dropped or row.quality_only)

    def moved(self, row: CheckRow) -> bool:
        """Whether it argues by more than labels."""
        if row.outcome != "checked":
            return False
        undone = row.share_only and row.score is not None and row.score < self.share
        by_itself = row.hit and not row.quality_only and not undone
        return by_itself or row.partition in self.alerts

    def back(self, row: CheckRow) -> list[CheckRow]:
        """The checked rows of the last ``window`` consecutive windows up to a row, newest first, no day shared by two.

        A partition without a row takes its place in the sequence and is no hit.
        """
        found, day = [], row.partition
        for _ in range(self.policy.window):
            each = self.by_partition.get(day)
            if each is not None and each.outcome == "checked":
                found.append(each)
            day = ((each.first or each.partition) if each is not None else day) - DAY
        return found

    def reasons(self, row: CheckRow) -> tuple[str, ...]:
        """The reasons of a check, and before them what was said from outside."""
        said = self.alerts.get(row.partition)
        return row.reasons if said is None else (f"alert from outside: {said}", *row.reasons)

    def agreeing(self) -> list[CheckRow]:
        """The hits of the last ``window`` checks that are evidence apart from each other, newest first.

        Among consecutive partitions a drop in quality counts once; drops alone agree when their labelled days are apart.
        """
        recent = self.back(self.rows[-1])
        moved = [row for row in recent if self.moved(row)]
        dropped = [row for row in recent if self.hit(row) and not self.moved(row)][:1]
        mixed = sorted((*moved, *dropped), key=lambda row: row.partition, reverse=True)
        apart = [row for row in self._label_windows() if row.quality_dropped]
        return max(mixed, apart, key=len)

    def _label_windows(self) -> list[CheckRow]:
        """The newest ``window`` checks whose labelled days are apart from each other, newest first."""
        found: list[CheckRow] = []
        before: dt.date | None = None
        for row in reversed(self.rows):
            if row.labels is None or row.outcome != "checked" or len(found) == self.policy.window:
                continue
            if before is None or row.labels[1] < before:
                found.append(row)
                before = row.labels[0]
        return found
