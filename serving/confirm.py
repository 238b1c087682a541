"""Asks a loaded version its golden requests once more, moments before it gets traffic.

Staging and judging lie minutes back by then, and a Triton that has restarted since has lost the version. Over HTTP and
without numpy, since the control plane asks just before it switches the routes.
"""

from __future__ import annotations

import json
from array import array
from typing import Any

import httpx

from artifacts.store import read_ref
from serving.contract import Golden, PackageRef, StageSpec, TritonServer
from serving.repository import VERSION

GOLDEN = "golden.json"
HEADER_LENGTH = "Inference-Header-Content-Length"


def unanswered(server: TritonServer, name: str, package: PackageRef) -> str | None:
    """Why a version may not get traffic now, or None when it holds this package and answers every golden request."""
    rules = StageSpec(package=package, name=name, triton=server)
    golden = Golden.model_validate_json(read_ref(package).file(GOLDEN).read_bytes())
    seconds = rules.request_timeout.total_seconds()
    try:
        with httpx.Client(
            base_url=f"http://{server.http}/v2/models/{name}", timeout=seconds, trust_env=False
        ) as triton:
            config = triton.get("/config").raise_for_status().json()
            held = config.get("parameters", {}).get("package", {}).get("string_value")
            if held != package.digest:
                return f"'{name}' holds package {held}, not {package.digest}"
            worst = max(_distance(triton, golden, places) for places in golden.requests)
    except httpx.HTTPStatusError as error:
        return f"'{name}' does not answer: {error.response.status_code}: {error.response.text[:300]}"
    except httpx.TransportError as error:
        return f"Triton at {server.http} does not answer for '{name}': {error!r}"
    if worst > rules.golden_tolerance:
        return f"'{name}' answers {worst:.3g} off its golden scores (limit {rules.golden_tolerance:g})"
    return None


def _distance(triton: httpx.Client, golden: Golden, places: tuple[int, ...]) -> float:
    """The largest absolute difference of one golden request's scores; infinite when they are not all there and finite."""
    head, body = _request(golden, places)
    answer = triton.post(
        f"/versions/{VERSION}/infer", content=head + body, headers={HEADER_LENGTH: str(len(head))}
    ).raise_for_status()
    found = next(output["data"] for output in answer.json()["outputs"] if output["name"] == "score")
    wanted = [golden.score[place] for place in places]
    if len(found) != len(wanted):
        return float("inf")
    distances = [abs(float(one) - other) for one, other in zip(found, wanted, strict=True)]
    return max(one if one == one else float("inf") for one in distances)  # noqa: PLR0124  NaN is not itself


def _request(golden: Golden, places: tuple[int, ...]) -> tuple[bytes, bytes]:
    """An inference request with binary tensors, since JSON has no NaN and no infinity."""
    tensors: list[tuple[str, str, array[Any], int]] = []
    for name, datatype, code, rows in (
        ("numeric", "FP32", "f", golden.numeric),
        ("categorical", "INT64", "q", golden.categorical),
    ):
        values = array(code, (value for place in places for value in rows[place]))
        if values:
            tensors.append((name, datatype, values, len(values) // len(places)))
    inputs = [
        {
            "name": name,
            "datatype": datatype,
            "shape": [len(places), width],
            "parameters": {"binary_data_size": len(values) * values.itemsize},
        }
        for name, datatype, values, width in tensors
    ]
    head = json.dumps({"inputs": inputs, "outputs": [{"name": "score"}]}).encode()
    return head, b"".join(values.tobytes() for _, _, values, _ in tensors)
