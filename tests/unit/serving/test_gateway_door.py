"""Before the protocol: the token file, the bearer check, the size of bodies, and labels that are refused."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request, Response

from serving import oip
from serving.structured import JsonLines
from serving.transport import Bearer, Gone, Named, Slow, Unsafe, fault, read_body, read_token, unless_gone


def request(content: bytes, **headers: str) -> Request:
    parts = [content[start : start + 10] for start in range(0, len(content), 10)] or [b""]

    async def receive() -> dict[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw}, receive)


@pytest.mark.asyncio
async def test_bodies_are_bounded_before_and_after_unpacking() -> None:
    assert await read_body(request(b"x" * 100), 100, 5) == b"x" * 100
    assert await read_body(request(gzip.compress(b"x" * 100), content_encoding="gzip"), 100, 5) == b"x" * 100
    for sent in (
        request(b"x" * 101),
        request(b"", content_length="101"),
        request(gzip.compress(b"x" * 5000), content_encoding="gzip"),
    ):
        with pytest.raises(oip.TooLarge):
            await read_body(sent, 100, 5)


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


class Caller:
    """A caller who sends one part of a body and then nothing, until it hangs up."""

    def __init__(self) -> None:
        self.hung_up = asyncio.Event()
        self._parts = [{"type": "http.request", "body": b"half", "more_body": True}]

    async def receive(self) -> dict[str, Any]:
        if self._parts:
            return self._parts.pop()
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    def request(self) -> Request:
        return Request({"type": "http", "headers": []}, self.receive)


@pytest.mark.asyncio
async def test_a_body_that_does_not_come_is_given_up_and_a_caller_who_hangs_up_is_no_fault_of_ours() -> None:
    with pytest.raises(Slow, match="within 0 s"):
        await read_body(Caller().request(), 100, 0)
    caller = Caller()
    caller.hung_up.set()
    with pytest.raises(Gone):
        await read_body(caller.request(), 100, 5)


@pytest.mark.asyncio
async def test_work_whose_caller_has_gone_is_cancelled_and_other_work_is_given() -> None:
    caller, begun, ended = Caller(), asyncio.Event(), []
    await caller.receive()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    found = asyncio.ensure_future(unless_gone(caller.request(), work()))
    await begun.wait()
    caller.hung_up.set()
    with pytest.raises(Gone):
        await found
    assert ended == ["cancelled"]

    async def quick() -> int:
        return 7

    assert await unless_gone(Caller().request(), quick()) == 7


@pytest.mark.asyncio
@pytest.mark.parametrize(("sent", "kept"), [("trace-1", True), ("someone@example.org", False), ("x" * 65, False)])
async def test_every_answer_carries_a_request_id_and_refusals_are_logged_without_values(
    sent: str, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = []

    async def keep(message: Any) -> None:
        answers.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v2/someone", "headers": [(b"x-request-id", sent.encode())]}
    with caplog.at_level(logging.INFO):
        await Named(fault(400, "carrier: 'someone' is nobody"))(scope, Caller().receive, keep)
    given = dict(answers[0]["headers"])[b"x-request-id"].decode()
    assert (given == sent) is kept
    line = JsonLines().format(caplog.records[-1])
    said = json.loads(line)
    assert (said["request_id"], said["status"], said["message"]) == (given, 400, "refused")
    assert "someone" not in line


def test_an_unforeseen_error_is_logged_by_its_places_and_not_by_its_text() -> None:
    with pytest.raises(KeyError) as caught:
        dict[str, int]()["a caller's name"]
    failed = (KeyError, caught.value, caught.value.__traceback__)
    line = JsonLines().format(logging.LogRecord("x", logging.ERROR, "f", 1, "failed", None, failed))
    assert json.loads(line)["error"] == "KeyError"
    assert "test_gateway_door.py" in line
    assert "caller" not in line
