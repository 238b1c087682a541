"""Stand-ins for the steps of ``watch``: ``python -m tests.make.check_step <spec> <result>`` checks, refuses, or freezes."""

from __future__ import annotations

import datetime as dt
import sys

from pydantic import BaseModel

from artifacts.refs import Digest, Uri, sha256
from artifacts.step import DataFault, step
from artifacts.store import publish
from monitoring.contract import CheckRef, ReferenceRef
from monitoring.effect_contract import EffectRef
from tests.make.monitoring import check_ref


class StandInSpec(BaseModel, frozen=True, extra="forbid"):
    """Freezes a reference without a partition, checks one with it, refuses the bad one, and replays what ``replaces``."""

    package: Digest
    partition: dt.date | None = None
    bad: bool = False
    replaces: bool = False
    output: Uri


def stand_in(spec: StandInSpec) -> CheckRef | ReferenceRef | EffectRef:
    """What the real steps answer, from nothing but the spec."""
    if spec.bad:
        raise DataFault(["predictions.parquet: score is no finite number in 3 rows"])
    with publish(spec.output, "stand-in") as draft:
        (draft.path / "partition").write_text(str(spec.partition))
    if draft.manifest is None:
        raise AssertionError("a published draft has a manifest")
    digest = draft.manifest.digest
    day = dt.date(2013, 8, 31)
    if spec.replaces:
        return EffectRef(
            uri=spec.output, digest=digest, model="flight_delay", new=spec.package, first=day, last=day, requests=900, labelled=900,
            days=1, loss_old=0.5, loss_new=0.4, gain_lower=None,
        )  # fmt: skip
    if spec.partition is None:
        return ReferenceRef(
            uri=spec.output, digest=digest, model="flight_delay", package_digest=spec.package, rows=1, blocks=1, first=day, last=day
        )  # fmt: skip
    return check_ref(
        uri=spec.output,
        digest=digest,
        partition=spec.partition,
        package_digest=spec.package,
        reference_digest=sha256(b"r"),
    )


if __name__ == "__main__":
    sys.exit(step(stand_in, StandInSpec))
