"""Before the protocol: the token file, the bearer check, the size of bodies, and labels that are refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request, Response

from serving import oip
from serving.transport import Bearer, Unsafe, fault, read_body, read_token


def request(content: bytes, **headers: str) -> Request:
    parts = [content[start : start + 10] for start in range(0, len(content), 10)] or [b""]

    async def receive() -> dict[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw}, receive)


@pytest.mark.asyncio
async def test_bodies_are_bounded_before_and_after_unpacking() -> None:
    assert await read_body(request(b"x" * 100), 100) == b"x" * 100
    assert await read_body(request(gzip.compress(b"x" * 100), content_encoding="gzip"), 100) == b"x" * 100
    for sent in (
        request(b"x" * 101),
        request(b"", content_length="101"),
        request(gzip.compress(b"x" * 5000), content_encoding="gzip"),
    ):
        with pytest.raises(oip.TooLarge):
            await read_body(sent, 100)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        ("/v2/health/live", None, 200),
        ("/v2", None, 401),
        ("/v2", b"Bearer token", 200),
        ("/v2", b"bearer token", 401),
        ("/v2", b"Bearer token ", 401),
        ("/v2/health", None, 401),
    ],
)
async def test_only_health_goes_without_the_token(path: str, header: bytes | None, status: int) -> None:
    sent: list[Any] = []

    async def keep(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    headers = [(b"authorization", header)] if header else []
    await Bearer(Response("in"), "token")({"type": "http", "path": path, "headers": headers}, receive, keep)
    assert sent[0]["status"] == status


def test_errors_are_worded_as_the_protocol_wants() -> None:
    answer = fault(503, 'line "one"\nline two', 5)
    assert (answer.body, answer.headers["Retry-After"]) == (b'{"error": "line \\"one\\"\\nline two"}', "5")


def test_the_token_file_is_made_private_and_refused_when_others_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "gateway.token"
    token = read_token(path)
    assert len(token) > 30
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(path) == token
    path.chmod(0o640)
    with pytest.raises(Unsafe, match="chmod 600"):
        read_token(path)
