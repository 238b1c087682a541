"""Values of the control plane: versions, routings, and a deployment whose ledger and records lie in a folder."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from artifacts.clock import DataClock
from artifacts.records import connect
from artifacts.refs import Ref, file_uri, key_digest
from artifacts.settings import settings
from artifacts.store import write_bytes
from operators import ledger as ledger_module
from operators import live
from operators.settings import platform
from operators.versions import Version
from serving.contract import Deployed, PackageRef
from tests.make import gates, gateway
from training.contract import VersionRef

NOON = dt.datetime(2013, 9, 1, 12, tzinfo=dt.UTC)


def package(number: int, partition: dt.date = dt.date(2013, 8, 31)) -> PackageRef:
    """A package whose digests follow from its number."""
    return gateway.package_ref(
        uri=f"file:///packages/{number}",
        digest=key_digest({"package": number}),
        training_key=key_digest({"training": number}),
        partition=partition,
    )


def version(folder: Path, number: int, partition: dt.date = dt.date(2013, 8, 31), **changes: Any) -> Version:
    """A registered version whose results lie in a folder."""
    packed = package(number, partition)
    results = {
        "evaluation_fit": gates.fit_ref("evaluation", training_key=packed.training_key),
        "final_fit": gates.fit_ref("final", training_key=packed.training_key),
        "evaluation": gates.first_evaluation(training_key=packed.training_key),
        "package": packed,
    }
    uris = {name: file_uri(folder / f"{name}-{number}.json") for name in results}
    for name, value in results.items():
        write_bytes(uris[name], value.model_dump_json().encode())
    registered = VersionRef(
        model="flight_delay",
        version=number,
        run_id=f"run{number}",
        training_key=packed.training_key,
        package=Ref(uri=packed.uri, digest=packed.digest),
        partition=partition,
        created_at=NOON + number * dt.timedelta(hours=1),
    )
    return Version(registered=registered, **{"trigger": "manual", **uris, **changes})


def deployed(number: int, partition: dt.date = dt.date(2013, 8, 31)) -> Deployed:
    """A live version."""
    return Deployed(
        name=f"flight_delay_v{number}",
        version=number,
        package=package(number, partition),
        created_at=NOON + number * dt.timedelta(hours=1),
        promoted_at=NOON,
    )


def deployment(folder: Path, monkeypatch: pytest.MonkeyPatch, now: dt.datetime = NOON) -> None:
    """Points this process at a fresh deployment under the replay clock, migrated and set to ``now``."""
    monkeypatch.setenv("PERENNIAL_STATE", str(folder))
    monkeypatch.setenv("PERENNIAL_CLOCK", "replay")
    for cached in (settings, platform, live.records, ledger_module.ledger):
        cached.cache_clear()
    ledger_module.migrate(connect(platform().database))
    DataClock("replay", live.records()).advance(now)
