"""A real gateway process over each online store: composite and integer keys, and a store that goes away and comes back."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from artifacts.refs import file_uri
from artifacts.store import read_ref
from feature_repo.catalogue import FEATURES, VIEWS
from feature_repo.contract import DatasetRef
from feature_repo.materialize import Materializer
from serving.compact import compact_predictions
from serving.contract import TritonServer
from tests.make import gateway as make
from tests.make.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.triton
NOW = make.instant(1, 14, 20)
TICK = dt.timedelta(microseconds=1)


@dataclass
class Served:
    """A gateway, its online store, and what fills it."""

    root: Path
    online: str
    client: httpx.Client
    server: RedisServer | None

    def fill(self) -> None:
        Materializer(make.CALENDAR, file_uri(self.root / "views"), self.online).write(make.instant(1, 4), NOW + TICK)

    def ask(self, request_id: str, **changes: object) -> None:
        answer = self.client.post(f"/v2/models/{make.MODEL}/infer", json=make.infer_body(request_id, **changes))
        assert answer.status_code == 200, answer.text

    def logged(self, request_id: str) -> dict[str, Any]:
        found = compact_predictions(
            self.root / "log", make.MODEL, make.FIRST, file_uri(self.root / f"compacted-{request_id}")
        )
        rows = pq.read_table(read_ref(found).file("predictions.parquet")).to_pylist()
        return next(row for row in rows if row["request_id"] == request_id)

    def counted(self, name: str) -> float:
        lines = self.client.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def answers_in_full(self, request_id: str) -> bool:
        """Asks once; whether no view was missing."""
        before = self.counted("perennial_missing_view_rows_total")
        self.ask(request_id)
        return self.counted("perennial_missing_view_rows_total") == before


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def served(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    triton: TritonServer,
    dataset: DatasetRef,
) -> Iterator[Served]:
    root = tmp_path_factory.mktemp(f"gateway-{request.param}")
    make.views(root, days=2)
    records = make.records(root)
    make.route(records, make.staged(root, dataset, triton, 921 if request.param == "redis" else 922))
    make.clock(records).advance(NOW)
    with redis_server(root) as server:
        online = server.url if request.param == "redis" else str(root / "online")
        with make.gateway(root, triton.grpc, PERENNIAL_ONLINE=online) as gateway, gateway.client() as client:
            found = Served(root, online, client, server if request.param == "redis" else None)
            found.fill()
            yield found


def features(row: dict[str, Any], view: str) -> set[Any]:
    """The distinct values that were served of a view."""
    return {row[f"feature__{view}__{feature}"] for feature in FEATURES[view]}


def test_every_view_is_found_by_its_own_keys(served: Served) -> None:
    served.ask("whole")
    row, hour = served.logged("whole"), make.instant(1, 14)
    assert {view: features(row, view) for view in VIEWS} == {view: {make.feature_value(view, hour)} for view in VIEWS}
    assert {row[f"age__{view}"] for view in VIEWS} == {1200.0}
    assert served.counted("perennial_missing_view_rows_total") == 0


def test_an_unknown_number_is_null_in_its_view_alone(served: Served) -> None:
    before = served.counted("perennial_missing_view_rows_total")
    served.ask("stranger", flight=2**40)
    row = served.logged("stranger")
    assert features(row, "flight_number") == {None}
    assert all(None not in features(row, view) for view in VIEWS if view != "flight_number")
    assert served.counted("perennial_missing_view_rows_total") == before + 1


def test_requests_are_answered_while_the_store_is_away(served: Served) -> None:
    if served.server is None:
        path = Path(served.online) / "online.db"
        aside = path.with_suffix(".aside")
        path.rename(aside)  # the open file is still read: an embedded store does not go away
        served.ask("away")
        aside.rename(path)
        assert None not in features(served.logged("away"), "route")
        return
    missing, failures = (served.counted(f"perennial_{name}_total") for name in ("missing_view_rows", "online_failures"))
    served.server.stop()
    served.ask("away")
    row = served.logged("away")
    assert all(features(row, view) == {None} for view in VIEWS)
    assert {row[f"age__{view}"] for view in VIEWS} == {None}
    assert 0 < row["score"] < 1
    assert served.counted("perennial_missing_view_rows_total") == missing + len(VIEWS)
    assert served.counted("perennial_online_failures_total") == failures + 1
    served.server.start()
    served.fill()
    deadline = time.monotonic() + 20
    while not served.answers_in_full(f"back-{time.monotonic()}"):
        assert time.monotonic() < deadline, "the gateway does not ask the store again"
        time.sleep(0.1)
