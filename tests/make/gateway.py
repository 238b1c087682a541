"""Builders for gateway and replay: a serving block, one day of lake and views, a packaged version, a running gateway."""

from __future__ import annotations

import datetime as dt
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import sqlalchemy as sa

from artifacts.clock import Calendar, DataClock
from artifacts.records import SCHEMA_VERSION, Records, connect, metadata, schema_table
from artifacts.refs import file_uri, join, sha256
from artifacts.settings import ROOT
from feature_repo.catalogue import ENTITY_KEYS, FEATURES
from feature_repo.contract import DatasetRef
from feature_repo.tables import RAW_SCHEMAS, VIEW_SCHEMAS, publish_day, raw_bytes, view_bytes
from serving.contract import (
    Deployed,
    PackageRef,
    Prediction,
    ReplaySpec,
    RequestInput,
    Routing,
    Serving,
    StageSpec,
    TritonServer,
)
from serving.package import package
from serving.triton import stage
from tests.make import serving as package_make

MODEL = "flight_delay"
TOKEN = "a-token-for-tests"  # noqa: S105  not a secret
UTC = dt.UTC
CALENDAR = Calendar(
    zone="America/New_York",
    close=dt.time(4),
    lateness=dt.timedelta(hours=6),
    first=dt.date(2013, 9, 1),
    last=dt.date(2013, 9, 4),
)
FIRST = CALENDAR.first
REQUEST = (
    RequestInput(name="carrier", datatype="BYTES"),
    RequestInput(name="flight", datatype="INT64"),
    RequestInput(name="origin", datatype="BYTES"),
    RequestInput(name="dest", datatype="BYTES"),
    RequestInput(name="distance", datatype="FP64"),
    RequestInput(name="scheduled_departure", datatype="BYTES", time=True),
    RequestInput(name="scheduled_arrival", datatype="BYTES", time=True),
)
INPUTS: dict[str, Any] = {
    "carrier": "UA",
    "flight": 15,
    "origin": "EWR",
    "dest": "BOS",
    "distance": 200.0,
    "scheduled_departure": "2013-09-01T16:00:00Z",
    "scheduled_arrival": "2013-09-01T17:10:00Z",
}


def serving_block(**changes: Any) -> Serving:
    kept: dict[str, Any] = {
        "request": REQUEST,
        "request_view": "flight",
        "routing_key": "carrier",
        "calendar": CALENDAR,
        "engines": package_make.PLAIN,
    }
    return Serving(**{**kept, **changes})


def instant(day: int, hour: int, minute: int = 0) -> dt.datetime:
    return dt.datetime(2013, 9, day, hour, minute, tzinfo=UTC)


def infer_body(request_id: str = "", **changes: Any) -> dict[str, Any]:
    """An all-JSON request of one row; a changed input of None is left out."""
    values = {name: value for name, value in {**INPUTS, **changes}.items() if value is not None}
    kinds = {item.name: item.datatype for item in REQUEST}
    inputs = [
        {"name": name, "shape": [1, 1], "datatype": kinds.get(name, "BYTES"), "data": [value]}
        for name, value in values.items()
    ]
    return {"id": request_id, "inputs": inputs}


def prediction(request_id: str = "r1", **changes: Any) -> Prediction:
    kept: dict[str, Any] = {
        "request_id": request_id,
        "at": instant(1, 14),
        "partition": FIRST,
        "model": MODEL,
        "version": 7,
        "name": f"{MODEL}_v7",
        "package_digest": sha256(b"package"),
        "inputs": INPUTS,
        "features": {"flight__carrier": "UA", "carrier__late_share_3h": 0.25, "origin__late_share_3h": None},
        "ages": {"carrier": 60.0, "origin": None},
        "score": 0.5,
    }
    return Prediction(**{**kept, **changes})


def package_ref(**changes: Any) -> PackageRef:
    """A reference only: nothing lies behind it."""
    kept: dict[str, Any] = {
        "uri": "file:///nowhere/package",
        "digest": sha256(b"package"),
        "model": MODEL,
        "training_key": sha256(b"key"),
        "partition": FIRST,
        "onnx_digest": sha256(b"onnx"),
        "dataset_digest": sha256(b"dataset"),
        "signature": package_make.signature(),
        "serving": serving_block(),
        "parity": {"gate": "G7 parity", "status": "pass", "reason": "equal"},
    }
    return PackageRef(**{**kept, **changes})


def deployed(version: int = 1, package: PackageRef | None = None, **changes: Any) -> Deployed:
    kept: dict[str, Any] = {
        "name": f"{MODEL}_v{version}",
        "version": version,
        "package": package or package_ref(),
        "created_at": instant(1, 12),
        "promoted_at": instant(1, 12),
    }
    return Deployed(**{**kept, **changes})


# --- lake and views -----------------------------------------------------------------------------------------------


def flights(day: int, count: int = 6) -> list[dict[str, Any]]:
    """Flights of one service day, one every two hours from 10:00Z: the second is cancelled, the third late."""
    found = []
    for number in range(count):
        departs = instant(day, 10) + dt.timedelta(hours=2 * number)
        found.append({
            "flight_id": f"2013-09-{day:02d}-UA{number}",
            "carrier": "UA",
            "flight": number,
            "origin": "EWR",
            "dest": "BOS",
            "distance": 200.0,
            "scheduled_departure": departs,
            "scheduled_arrival": departs + dt.timedelta(hours=1),
            "cancelled": number == 1,
            "delay": 40.0 if number == 2 else 0.0,
        })
    return found


def lake(root: Path, days: int = 4, count: int = 6) -> str:
    """A lake of some service days from 2013-09-01."""
    uri = file_uri(root / "lake")
    for day in range(1, days + 1):
        tables: dict[str, list[dict[str, Any]]] = {"schedule": [], "departure": [], "arrival": [], "weather": []}
        for flight in flights(day, count):
            departs, late = flight["scheduled_departure"], dt.timedelta(minutes=flight["delay"])
            known = departs - dt.timedelta(days=7)
            tables["schedule"].append({**flight, "event_time": departs, "available_time": known})
            left = {**flight, "departure_delay": None if flight["cancelled"] else flight["delay"], "tailnum": None}
            tables["departure"].append({**left, "event_time": departs + late, "available_time": departs + late})
            if not flight["cancelled"]:
                there = flight["scheduled_arrival"] + late
                come = {**flight, "arrival_delay": flight["delay"], "diverted": False}
                tables["arrival"].append({**come, "event_time": there, "available_time": there})
        files = {
            f"{name}.parquet": raw_bytes(name, pa.Table.from_pylist(rows, schema=RAW_SCHEMAS[name]))
            for name, rows in tables.items()
        }
        publish_day(join(uri, f"2013-09-{day:02d}"), "raw-day", files, {})
    return uri


def feature_value(view: str, hour: dt.datetime) -> float:
    """What every feature of a view says at an hour, so that a test knows which row was served."""
    return list(FEATURES).index(view) * 1000.0 + hour.day * 24 + hour.hour


def entities(view: str) -> list[dict[str, Any]]:
    """The entities of a view that have rows: those of INPUTS, and the flight numbers of the lake."""
    numbers = (INPUTS["flight"], *range(6)) if "flight" in ENTITY_KEYS[view] else (None,)
    return [{key: {**INPUTS, "flight": number}[key] for key in ENTITY_KEYS[view]} for number in numbers]


def views(root: Path, days: int = 4) -> str:
    """View rows at every hour for the flights of ``INPUTS`` and of the lake; weather becomes known 20 minutes late."""
    uri = file_uri(root / "views")
    for day in range(1, days + 1):
        start = CALENDAR.starts(dt.date(2013, 9, day))
        hours = [start + dt.timedelta(hours=n) for n in range(1, 25)]
        files = {}
        for view, schema in VIEW_SCHEMAS.items():
            delay = dt.timedelta(minutes=20 if view == "weather" else 0)
            rows = [
                {
                    **entity,
                    "event_time": hour,
                    "available_time": hour + delay,
                    **dict.fromkeys(FEATURES[view], feature_value(view, hour)),
                }
                for hour in hours
                for entity in entities(view)
            ]
            files[f"{view}.parquet"] = view_bytes(view, pa.Table.from_pylist(rows, schema=schema))
        publish_day(join(uri, f"2013-09-{day:02d}"), "view-day", files, {})
    return uri


# --- a deployment on one machine ----------------------------------------------------------------------------------


def records(root: Path) -> Records:
    """Fresh records in a database of their own."""
    engine = connect(f"sqlite:///{root / 'perennial.db'}")
    metadata.create_all(engine)
    with engine.begin() as connection:
        if connection.scalar(sa.select(sa.func.count()).select_from(schema_table)) == 0:
            connection.execute(schema_table.insert().values(version=SCHEMA_VERSION))
    return Records(engine)


def route(kept: Records, champion: Deployed | None, previous: Deployed | None = None) -> None:
    """Writes the next version of the routing record."""
    name = Routing.record(MODEL)
    value = Routing(model=MODEL, champion=champion, previous=previous)
    kept.put(name, value.model_dump(mode="json"), kept.get(name).version)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Process:
    """A gateway process."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {TOKEN}"}

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.headers, trust_env=False, timeout=10)


def environment(root: Path, triton_grpc: str, **changes: str) -> dict[str, str]:
    """The settings of a gateway whose state is below ``root``."""
    token = root / "gateway.token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    return {
        **os.environ,
        "PERENNIAL_STATE": str(root),
        "PERENNIAL_CLOCK": "replay",
        "PERENNIAL_TRITON_GRPC": triton_grpc,
        "PERENNIAL_ONLINE": str(root / "online"),
        "PERENNIAL_GATEWAY_FOLLOW_SECONDS": "0.2",
        "PERENNIAL_FOLLOW_PARENT": "1",
        **changes,
    }


@contextmanager
def gateway(root: Path, triton_grpc: str, **changes: str) -> Iterator[Process]:
    """A real gateway process; killed at the end."""
    port = free_port()
    words = [sys.executable, "-m", "serving.gateway", "--port", str(port)]
    process = subprocess.Popen(words, cwd=ROOT, env=environment(root, triton_grpc, **changes))
    found = Process(f"http://127.0.0.1:{port}", process)
    try:
        await_live(found)
        yield found
    finally:
        process.kill()
        process.wait()


def await_live(found: Process, seconds: float = 240) -> None:
    """Returns when the gateway answers its health route."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and found.process.poll() is None:
        try:
            if httpx.get(f"{found.url}/v2/health/live", trust_env=False).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"the gateway did not come up (exit code {found.process.poll()})")


def replay_spec(root: Path, url: str, **changes: Any) -> ReplaySpec:
    kept: dict[str, Any] = {
        "model": MODEL,
        "serving": serving_block(),
        "calendar": CALENDAR,
        "gateway": url,
        "token_file": root / "gateway.token",
        "lake": file_uri(root / "lake"),
        "views": file_uri(root / "views"),
        "online": str(root / "online"),
        "log": file_uri(root / "log"),
        "predictions": file_uri(root / "predictions"),
        "feedback": file_uri(root / "feedback"),
        "first": FIRST,
        "last": FIRST,
    }
    return ReplaySpec(**{**kept, **changes})


def clock(kept: Records) -> DataClock:
    return DataClock("replay", kept)


class Line:
    """A TCP line to a server that a test can cut, mend and stall (``flows.clear()``), as if the server were away or hung."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._listener: socket.socket | None = None
        self._ends: list[socket.socket] = []
        self.flows = threading.Event()
        self.flows.set()
        self.port = free_port()
        self.mend()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def mend(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        assert self._listener is not None
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((self._host, self._port))
                self._ends += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=_copy, args=(source, target, self.flows), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket, flows: threading.Event) -> None:
    with suppress(OSError):
        while content := source.recv(1 << 16):
            flows.wait()
            target.sendall(content)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def packaged(root: Path, dataset: DatasetRef) -> PackageRef:
    """A published package with the serving block of this module."""
    spec = package_make.version(root, dataset).spec
    return package(spec.model_copy(update={"serving": serving_block()}))


def staged(root: Path, dataset: DatasetRef, triton: TritonServer, version: int) -> Deployed:
    """A version that a real Triton has loaded, ready to be routed to."""
    ref = packaged(root, dataset)
    stage(StageSpec(package=ref, name=f"{MODEL}_v{version}", triton=triton))
    return deployed(version, ref)
