"""HTTP before the protocol: the bearer token, the size of bodies, and errors as ``{"error": "..."}``."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import re
import secrets
import time
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving import oip

log = logging.getLogger(__name__)

HEALTH = "/v2/health/"
REQUEST_HEADER = "X-Request-Id"
HARMLESS = re.compile(r"[A-Za-z0-9._:-]{1,64}")
"""A request id that may stand in a log: long enough for every tracer, and no place for a person's name or address."""

Found = TypeVar("Found")


class Slow(RuntimeError):
    """The body did not arrive in time."""


class Gone(RuntimeError):
    """The caller has closed the connection; nobody reads the answer."""


class Unsafe(RuntimeError):
    """The gateway refuses to start like this; the text says what to change."""


def read_token(path: Path) -> str:
    """The bearer token; makes a new one when the file is absent. Refuses a file that others may read."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            contextlib.suppress(FileExistsError),
            open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file,
        ):
            file.write(secrets.token_urlsafe(32))
    if path.stat().st_mode & 0o077:
        raise Unsafe(f"{path}: others may read it; run: chmod 600 {path}")
    token = path.read_text().strip()
    if not token:
        raise Unsafe(f"{path}: holds no token; remove it and a new one is made")
    return token


class Bearer:
    """Lets a request through when it is for health, or carries the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and not scope["path"].startswith(HEALTH):
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                answer = fault(401, "send the header 'Authorization: Bearer <token>'")
                answer.headers["WWW-Authenticate"] = "Bearer"
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Named:
    """Gives every request an id, which the answer carries, and logs refusals by id, path and status: no values."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(REQUEST_HEADER.lower().encode(), b"").decode("latin-1")
        request_id, begun = given if HARMLESS.fullmatch(given) else uuid.uuid4().hex, time.perf_counter()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", []).append((REQUEST_HEADER.lower().encode(), request_id.encode()))
                if message["status"] >= 400:  # noqa: PLR2004  what was refused, and only that: an answer is in the log
                    log.info("refused", extra={"said": _words(scope, message["status"], request_id, begun)})
            await send(message)

        await self._app(scope, receive, named)


def _words(scope: Scope, status: int, request_id: str, begun: float) -> dict[str, object]:
    route = scope.get("route")  # the pattern, since a path may hold anything
    return {
        "request_id": request_id,
        "method": scope["method"],
        "route": getattr(route, "path", None),
        "status": status,
        "milliseconds": round((time.perf_counter() - begun) * 1000, 1),
    }


async def unless_gone(request: Request, work: Coroutine[Any, Any, Found]) -> Found:
    """What the work gives; cancels it and raises Gone when the caller closes the connection first.

    The request's body must have been read.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Gone("the caller has gone")
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def fault(status: int, text: str, retry_after: int | None = None) -> Response:
    """An error as the protocol words it: ``{"error": "..."}``."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Response(json.dumps({"error": text}), status, headers, media_type="application/json")


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """The unpacked body. Raises TooLarge as soon as there is more than ``limit``, and WireFault when it does not unpack.

    Raises Slow when it has not arrived within ``seconds``, and Gone when the caller closes the connection meanwhile.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise oip.TooLarge(f"the body has {declared} bytes; at most {limit} are taken")
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise oip.TooLarge(f"the body has more than {limit} bytes")
                parts.append(part)
    except TimeoutError as error:
        raise Slow(f"the body did not arrive within {seconds:g} s") from error
    except ClientDisconnect as error:
        raise Gone("the caller has gone") from error
    return oip.inflate(b"".join(parts), request.headers.get("content-encoding", ""), limit)
