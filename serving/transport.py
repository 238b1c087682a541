"""HTTP before the protocol: the bearer token, the size of bodies, and errors as ``{"error": "..."}``."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
from pathlib import Path

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serving import oip

HEALTH = "/v2/health/"


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


def fault(status: int, text: str, retry_after: int | None = None) -> Response:
    """An error as the protocol words it: ``{"error": "..."}``."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Response(json.dumps({"error": text}), status, headers, media_type="application/json")


async def read_body(request: Request, limit: int) -> bytes:
    """The unpacked body; raises TooLarge as soon as there is more than ``limit``, WireFault when it does not unpack."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise oip.TooLarge(f"the body has {declared} bytes; at most {limit} are taken")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise oip.TooLarge(f"the body has more than {limit} bytes")
        parts.append(part)
    return oip.inflate(b"".join(parts), request.headers.get("content-encoding", ""), limit)
