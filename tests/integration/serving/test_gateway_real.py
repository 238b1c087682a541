"""A real gateway process before a real tritonserver, asked by the real tritonclient."""

from __future__ import annotations

import datetime as dt
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
import tritonclient.http as triton_http

from artifacts.records import Records
from artifacts.refs import file_uri
from artifacts.store import read_ref
from feature_repo.contract import DatasetRef
from feature_repo.materialize import Materializer
from serving.compact import compact_feedback, compact_predictions
from serving.contract import Canary, Deployed, Routing, StageSpec, TritonServer
from serving.log import answered
from serving.routing import leaks
from serving.triton import stage
from tests.make import gateway as make
from tests.make.toy_step import wait_for

pytestmark = pytest.mark.triton
NOW = make.instant(1, 14, 20)
TICK = dt.timedelta(microseconds=1)


@dataclass
class Served:
    """The gateway under test and what is behind it."""

    root: Path
    gateway: make.Process
    records: Records
    line: make.Line
    champion: Deployed


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, triton: TritonServer, dataset: DatasetRef) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("gateway")
    champion = make.staged(root, dataset, triton, 901)
    records = make.records(root)
    make.clock(records).advance(NOW)
    Materializer(make.CALENDAR, make.views(root, days=2), str(root / "online")).write(make.instant(1, 4), NOW + TICK)
    line = make.Line(triton.grpc)
    with make.gateway(root, line.address, PERENNIAL_GATEWAY_CONCURRENCY="4") as process:
        yield Served(root, process, records, line, champion)
    line.cut()


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.gateway.client() as found:
        yield found


def infer(client: httpx.Client, request_id: str = "", **changes: object) -> httpx.Response:
    return client.post(f"/v2/models/{make.MODEL}/infer", json=make.infer_body(request_id, **changes))


def eventually(client: httpx.Client, path: str, status: int, seconds: float = 20) -> httpx.Response:
    deadline = time.monotonic() + seconds
    while (answer := client.get(path)).status_code != status and time.monotonic() < deadline:
        time.sleep(0.05)
    assert answer.status_code == status, answer.text
    return answer


def told(client: httpx.Client, metric: str, value: float) -> None:
    """Returns when the gateway says that one of the model's metrics has a value."""
    line = f'{metric}{{model="{make.MODEL}"}} {float(value)}'
    wait_for(lambda: line in client.get("/metrics").text.splitlines())


def test_before_a_champion_it_is_live_but_not_ready(served: Served, client: httpx.Client) -> None:
    assert client.get("/v2/health/live").status_code == 200
    answer = infer(client)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.json() == {"error": "'flight_delay' has no champion yet"}
    assert client.get("/v2/health/ready").status_code == 503
    make.route(served.records, served.champion)
    eventually(client, "/v2/health/ready", 200, seconds=2)  # a new routing is followed within 2 s
    assert client.get(f"/v2/models/{make.MODEL}/ready").status_code == 200


def test_tritonclient_reads_the_same_score_in_every_form(served: Served) -> None:
    client = triton_http.InferenceServerClient(served.gateway.url.removeprefix("http://"))
    assert client.is_server_live()
    assert client.is_model_ready(make.MODEL, headers=served.gateway.headers)
    metadata = client.get_model_metadata(make.MODEL, headers=served.gateway.headers)
    assert metadata["versions"] == ["901"]
    scores = []
    for binary in (True, False):
        inputs = []
        for item in make.REQUEST:
            tensor = triton_http.InferInput(item.name, [2, 1], item.datatype)
            kind = {"BYTES": object, "INT64": np.int64, "FP64": np.float64}[item.datatype]
            tensor.set_data_from_numpy(np.array([[make.INPUTS[item.name]]] * 2, dtype=kind), binary_data=binary)
            inputs.append(tensor)
        for packed in (None, "gzip", "deflate"):
            for version in ("", "901"):
                answer = client.infer(
                    make.MODEL,
                    inputs,
                    model_version=version,
                    outputs=[
                        triton_http.InferRequestedOutput(name, binary_data=binary) for name in ("score", "request_id")
                    ],
                    request_compression_algorithm=packed,
                    response_compression_algorithm=packed,
                    headers=served.gateway.headers,
                )
                assert answer.get_response()["model_version"] == "901"
                assert len(set(answer.as_numpy("request_id").ravel().tolist())) == 2
                scores += answer.as_numpy("score").ravel().tolist()
    assert len(scores) == 24
    assert set(scores) == {scores[0]}
    client.close()


def test_the_log_holds_what_was_served(served: Served, client: httpx.Client) -> None:
    answer = infer(client, "logged").json()
    score = answer["outputs"][0]["data"][0]
    found = compact_predictions(served.root / "log", make.MODEL, make.FIRST, file_uri(served.root / "compacted"))
    rows = pq.read_table(read_ref(found).file("predictions.parquet")).to_pylist()
    row = next(row for row in rows if row["request_id"] == "logged")
    assert (row["score"], row["version"], row["name"], row["at"]) == (
        pytest.approx(score),
        901,
        "flight_delay_v901",
        NOW,
    )
    assert {name: row[f"input__{name}"] for name in make.INPUTS} == make.INPUTS
    hour = make.instant(1, 14)
    assert row["feature__carrier__late_share_3h"] == make.feature_value("carrier", hour)
    assert row["feature__weather__temp"] == make.feature_value("weather", hour)  # known at :20, which is now
    assert row["feature__flight__hour"] == 12.0  # 16:00Z on New York's clock
    assert {row[f"age__{view}"] for view in ("carrier", "origin", "weather", "congestion")} == {1200.0}


def test_an_unknown_entity_is_served_with_nulls_and_counted(client: httpx.Client) -> None:
    assert infer(client, carrier="ZZ").status_code == 200
    metrics = client.get("/metrics").text
    assert 'perennial_missing_view_rows_total{model="flight_delay",status="absent",view="carrier"} 1.0' in metrics


def test_every_route_but_health_wants_the_token(served: Served) -> None:
    with httpx.Client(base_url=served.gateway.url, trust_env=False) as stranger:
        for path in ("/v2", f"/v2/models/{make.MODEL}", "/metrics", "/nowhere"):
            assert stranger.get(path).status_code == 401
        answer = stranger.post(f"/v2/models/{make.MODEL}/infer", headers={"Authorization": "Bearer wrong"}, content=b"")
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert set(answer.json()) == {"error"}
        assert stranger.get("/v2/health/ready").status_code == 200


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/v2/models/nope/infer", b"{}", 404),
        (f"/v2/models/{make.MODEL}/versions/3/infer", json.dumps(make.infer_body()).encode(), 404),
        (f"/v2/models/{make.MODEL}/versions/x/infer", json.dumps(make.infer_body()).encode(), 404),
        (f"/v2/models/{make.MODEL}/infer", b"{", 400),
        (f"/v2/models/{make.MODEL}/infer", json.dumps(make.infer_body(carrier=None)).encode(), 400),
        (f"/v2/models/{make.MODEL}/infer", b" " * (9 << 20), 413),
        ("/v2/feedback", b"[1]", 400),
        ("/v2/feedback", b'{"request_id": "a", "label": 2, "known_at": "2013-09-01T16:00:00Z"}', 400),
        ("/v2/feedback", b'{"request_id": "a", "label": 1, "known_at": "2013-09-01T16:00:00Z", "more": 1}', 400),
        ("/v2/feedback", b'{"request_id": "a", "label": 1, "known_at": "2003-09-01T16:00:00Z"}', 400),
        ("/v2", b"", 405),
    ],
)
def test_refusals_are_json_errors(client: httpx.Client, path: str, content: bytes, status: int) -> None:
    answer = client.post(path, content=content)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert "Traceback" not in answer.text


def test_feedback_is_idempotent(served: Served, client: httpx.Client) -> None:
    label = {"request_id": "logged", "label": 1, "known_at": "2013-09-01T18:00:00Z"}
    for body in (label, [label, label]):
        assert client.post("/v2/feedback", json=body).status_code == 200
    found = compact_feedback(served.root / "log", make.MODEL, make.FIRST, file_uri(served.root / "labels"))
    assert found.rows == 1


def test_triton_away_is_503_and_back_is_200(served: Served, client: httpx.Client) -> None:
    served.line.cut()
    answer = infer(client, "away")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert set(answer.json()) == {"error"}
    assert client.get(f"/v2/models/{make.MODEL}/ready").status_code == 503
    served.line.mend()
    eventually(client, f"/v2/models/{make.MODEL}/ready", 200)
    assert infer(client, "back").status_code == 200
    assert "away" not in answered(served.root / "log", make.MODEL, make.FIRST)


def test_a_hung_triton_is_503_in_time_and_too_many_at_once_are_429(served: Served, client: httpx.Client) -> None:
    served.line.flows.clear()
    try:
        with ThreadPoolExecutor(8) as pool:
            begun = time.monotonic()
            answers = list(pool.map(lambda _: infer(client).status_code, range(8)))
            assert time.monotonic() - begun < 8
    finally:
        served.line.flows.set()
    assert sorted(set(answers)) == [429, 503]
    eventually(client, f"/v2/models/{make.MODEL}/ready", 200)


def test_a_routing_that_makes_no_sense_changes_nothing(served: Served, client: httpx.Client) -> None:
    corrupt = served.champion.package.model_copy(update={"digest": "sha256:" + "0" * 64})
    make.route(served.records, make.deployed(902, corrupt))
    told(client, "perennial_routing_fault", 1)
    assert infer(client).json()["model_version"] == "901"
    make.route(served.records, served.champion, make.deployed(902, served.champion.package))
    eventually(client, f"/v2/models/{make.MODEL}/versions/902", 200)
    told(client, "perennial_routing_fault", 0)
    pinned = client.post(f"/v2/models/{make.MODEL}/versions/902/infer", json=make.infer_body())
    assert pinned.status_code == 503  # routed, but Triton does not have it


@pytest.mark.covers("field-reports 100")
def test_the_champion_answers_every_request_while_another_version_is_loaded_beside_it(
    served: Served, client: httpx.Client, triton: TritonServer
) -> None:
    make.route(served.records, served.champion)
    eventually(client, f"/v2/models/{make.MODEL}/ready", 200)
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(
            stage, StageSpec(package=served.champion.package, name=f"{make.MODEL}_v904", triton=triton)
        )
        statuses = [infer(client).status_code]
        while not loading.done():
            statuses.append(infer(client).status_code)
        loading.result()
    assert len(statuses) > 10
    assert set(statuses) == {200}


@pytest.mark.covers("field-reports 122")
def test_a_canary_is_followed_within_two_seconds_and_its_callers_are_split_as_the_record_says(
    served: Served, client: httpx.Client, triton: TritonServer
) -> None:
    candidate, clone = (
        served.champion.model_copy(update={"version": version, "name": name})
        for version, name in ((903, f"{make.MODEL}_v903"), (901, f"{make.MODEL}_v901_baseline"))
    )
    for arm in (candidate, clone):
        stage(StageSpec(package=arm.package, name=arm.name, triton=triton))
    trial = Canary(candidate=candidate, baseline=clone, share=0.3)
    routing = Routing(model=make.MODEL, champion=served.champion, canary=trial)
    record = served.records.get(Routing.record(make.MODEL))
    served.records.put(Routing.record(make.MODEL), routing.model_dump(mode="json"), record.version)
    eventually(client, f"/v2/models/{make.MODEL}/versions/903", 200, seconds=2)
    names = [
        infer(client, f"split-{number}", carrier=f"C{number % 100}").json()["parameters"]["name"]
        for number in range(300)
    ]
    assert leaks(routing, Counter(names), tolerance=0.15) == ()
    assert names[:100] == names[100:200] == names[200:]  # a caller stays where it is
    make.route(served.records, served.champion)
    eventually(client, f"/v2/models/{make.MODEL}/versions/903", 404, seconds=2)
    after = {infer(client, carrier=f"C{number}").json()["parameters"]["name"] for number in range(100)}
    assert after == {served.champion.name}


def test_a_killed_gateway_loses_no_acknowledged_row(served: Served, client: httpx.Client) -> None:
    acknowledged = [f"kill-{number}" for number in range(50)]
    for request_id in acknowledged:
        assert infer(client, request_id).status_code == 200
    served.gateway.process.send_signal(signal.SIGKILL)
    served.gateway.process.wait()
    kept = answered(served.root / "log", make.MODEL, make.FIRST)
    assert set(acknowledged) <= kept
    with make.gateway(served.root, served.line.address) as again, again.client() as other:
        assert infer(other, "kill-0").status_code == 200
        assert infer(other, "after").status_code == 200
    found = compact_predictions(served.root / "log", make.MODEL, make.FIRST, file_uri(served.root / "after"))
    assert found.rows == len(kept) + 1
