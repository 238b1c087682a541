"""The staged reference model in a real tritonserver against Flask (gunicorn, two sync workers), and its latency over gRPC.

Both servers get the same bytes from the same client on loopback, in turns, five runs each at 1, 8 and 32 callers; the ratio
is the median over the runs. Reads the state that ``make demo`` has left (``PERENNIAL_STATE``).
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np

from artifacts.settings import ROOT
from artifacts.store import read_ref
from benchmarks.engines import newest, packaged
from benchmarks.report import parser, report
from benchmarks.rivals.flask_app import MODEL as MODEL_VARIABLE
from serving import parity
from serving.contract import StageSpec
from serving.load import opened
from serving.rehearsal import free_ports, throw_away
from serving.triton import connect, stage

TARGETS = {"triton_p99_ms": "< 3", "throughput_ratio_c1": ">= 1", "throughput_ratio_c32": ">= 2"}
NAME = "compared_v1"
CALLERS, RUNS, SECONDS = (1, 8, 32), 5, 2.0
RATE, RATE_SECONDS = 200.0, 10.0
START_SECONDS = 30


def body_of(numeric: np.ndarray, categorical: np.ndarray) -> tuple[bytes, dict[str, str]]:
    """A request of the Open Inference Protocol with binary tensors, and its headers."""
    tensors = {"numeric": ("FP32", numeric), "categorical": ("INT64", categorical)}
    inputs = [
        {"name": name, "datatype": kind, "shape": list(values.shape), "parameters": {"binary_data_size": values.nbytes}}
        for name, (kind, values) in tensors.items()
    ]
    head = json.dumps({"inputs": inputs}).encode()
    return head + numeric.tobytes() + categorical.tobytes(), {"Inference-Header-Content-Length": str(len(head))}


def throughput(address: str, body: bytes, headers: dict[str, str], callers: int) -> float:
    """Answers per second of callers who ask in turn without a pause; a server may close a connection after an answer."""
    end = time.monotonic() + SECONDS

    def one(_: int) -> int:
        line, answered = http.client.HTTPConnection(address, timeout=10), 0
        while time.monotonic() < end:
            line.request("POST", f"/v2/models/{NAME}/infer", body, headers)
            answer = line.getresponse()
            content = answer.read()
            if answer.status != http.client.OK:
                raise RuntimeError(f"{address}: {answer.status}: {content[:200]!r}")
            answered += 1
        line.close()
        return answered

    began = time.monotonic()
    with ThreadPoolExecutor(callers) as pool:
        answered = sum(pool.map(one, range(callers)))
    return answered / (time.monotonic() - began)


@contextmanager
def flask(model: Path) -> Iterator[str]:
    """Gunicorn with two sync workers; gives its address when it answers, ends it afterwards."""
    port = free_ports().http
    words = [sys.executable, "-m", "gunicorn", "--workers=2", "--worker-class=sync", f"--bind=127.0.0.1:{port}"]
    words += ["--log-level=error", "benchmarks.rivals.flask_app:make()"]
    process = subprocess.Popen(words, cwd=ROOT, env={**os.environ, MODEL_VARIABLE: str(model)})  # noqa: S603  our own
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("gunicorn did not start")
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def _listens(port: int) -> bool:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        line.request("GET", "/")
        return line.getresponse().status > 0
    except OSError:
        return False
    finally:
        line.close()


def compare(addresses: dict[str, str], body: bytes, headers: dict[str, str]) -> dict[str, float]:
    """Median throughput of each side and of the ratio within each run, per number of callers."""
    found: dict[str, float] = {}
    for callers in CALLERS:
        runs: list[dict[str, float]] = []
        for _ in range(RUNS):
            runs.append({side: throughput(address, body, headers, callers) for side, address in addresses.items()})
        found |= {f"{side}_per_second_c{callers}": median(run[side] for run in runs) for side in addresses}
        found[f"throughput_ratio_c{callers}"] = median(run["triton"] / run["flask"] for run in runs)
    return found


def main() -> None:
    """Prints the figures."""
    asked = parser("triton_vs_flask").parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spec, ref, _ = packaged(newest(), Path(folder))
        rows = parity.read_rows(read_ref(spec.onnx).file("parity.npz"))
        body, headers = body_of(rows.numeric[:1], rows.categorical[:1])
        with throw_away(ROOT / ".venv-triton") as (server, _), flask(read_ref(ref).file("model.onnx")) as address:
            stage(StageSpec(package=ref, name=NAME, triton=server))
            with connect(server, 5) as client:
                point = opened(lambda _: client.score(NAME, rows.numeric[:1], rows.categorical[:1]), RATE, RATE_SECONDS)
            figures = compare({"triton": server.http, "flask": address}, body, headers)
    report("triton_vs_flask", {"triton_p99_ms": point.p99_ms, "triton_p50_ms": point.p50_ms, **figures}, TARGETS, asked)


if __name__ == "__main__":
    main()
