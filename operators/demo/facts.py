"""What the ledger says of the demo's story: its versions, their releases, the drift decision and how its retrain ended."""

from __future__ import annotations

import datetime as dt

from operators.ledger import DECISION, FAILED, Entry, Ledger
from operators.tasks.release import RELEASE
from operators.tasks.watch import DRIFT
from operators.verdicts import GATE
from operators.versions import Version, versions

MODEL = "flight_delay"
FIRST_PARTITION = dt.date(2013, 8, 31)
SCRAMBLED = "scrambled"


class Facts:
    """The questions that the demo asks of one ledger."""

    def __init__(self, book: Ledger) -> None:
        self.book = book

    def has_first(self) -> bool:
        """Whether the first model is registered."""
        return bool(self._of_first_partition())

    def first(self) -> Version:
        """The first model's version; raises RuntimeError with the gates' words when there is none."""
        found = self._of_first_partition()
        if not found:
            reasons = [entry.body["reasons"] for entry in self.book.entries(GATE, MODEL)]
            raise RuntimeError(f"the gates refused the first model: {reasons}")
        return found[0]

    def _of_first_partition(self) -> list[Version]:
        return [one for one in versions(self.book, MODEL) if one.registered.partition == FIRST_PARTITION]

    def _releases(self, version: Version) -> list[Entry]:
        digest = version.registered.package.digest
        return [entry for entry in self.book.entries(RELEASE, MODEL) if entry.body["package"] == digest]

    def released(self, version: Version) -> Entry | None:
        """How the release of a version ended, or None when it has not; a run that broke down is no end."""
        return next((entry for entry in self._releases(version) if entry.body["outcome"] != FAILED), None)

    def broke_down(self, version: Version) -> bool:
        """Whether the newest release of a version failed before a verdict."""
        rows = self._releases(version)
        return bool(rows) and rows[-1].body["outcome"] == FAILED

    def checked(self, partition: dt.date) -> bool:
        """Whether a day has been checked; a check that failed is none."""
        rows = [entry.body for entry in self.book.entries(DRIFT, MODEL) if not entry.body.get("failed")]
        return any(row["partition"] == partition.isoformat() for row in rows)

    def drift_decision(self) -> Entry | None:
        """The newest decision that drift has brought about, those left out whose run broke down; None when there is none."""
        broken = {decision for decision, end in self.book.closures(MODEL).items() if end.body["outcome"] == FAILED}
        found = [
            entry
            for entry in self.book.entries(DECISION, MODEL)
            if entry.body["trigger"] == "drift" and entry.id not in broken
        ]
        return found[-1] if found else None

    def retrain_end(self) -> Entry | None:
        """How the drift retrain ended: trained, refused, or ALREADY_FRESH; None while it has not."""
        decision = self.drift_decision()
        return self.book.closures(MODEL).get(decision.id) if decision else None

    def drift_version(self) -> Version | None:
        """The version that the drift retrain made."""
        decision = self.drift_decision()
        return next((one for one in versions(self.book, MODEL) if decision and one.decision == decision.id), None)

    def scrambled_version(self) -> Version | None:
        """The scrambled version, once it is registered."""
        return next((one for one in versions(self.book, MODEL) if one.trigger == SCRAMBLED), None)
