"""The door for alerts from outside: ``POST /perennial/alerts/{alertmanager|generic}`` with a bearer token of its own.

It writes evidence and wakes ``watch``; whether anything retrains, the policy decides. A wake-up that is lost does no harm:
``sweep`` finds what is unheard.
"""

from __future__ import annotations

import hmac
import logging
import math
import time

from airflow.assets.manager import asset_manager
from airflow.serialization.definitions.assets import SerializedAssetUniqueKey
from airflow.utils.session import create_session
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse

from artifacts.faults import CredentialsRefused
from artifacts.secret import SecretRef
from operators import events, live
from operators.alerts import AlertPolicy, Rate, Refused, Said, Taken, parsed, take
from operators.ledger import ledger
from operators.settings import platform

log = logging.getLogger(__name__)

POLICY = AlertPolicy()
RATE = Rate(POLICY.per_minute, time.monotonic)

app = FastAPI(title="Perennial alerts", docs_url=None, redoc_url=None, openapi_url=None)


@app.post("/{form}")
async def alert(form: str, request: Request) -> Response:
    """202 with what became of each alert; else 4xx with one line per problem, and nothing was taken."""
    try:
        _let_in(request)
        said = parsed(form, await _body(request), POLICY)
        taken = await run_in_threadpool(_take, said)
    except Refused as refused:
        return PlainTextResponse("\n".join(refused.lines) + "\n", refused.status, _headers(refused))
    for model in taken.models:
        await run_in_threadpool(wake, model)
    return JSONResponse(taken.model_dump(mode="json"), 202)


class _Busy(Refused):
    def __init__(self, seconds: float) -> None:
        super().__init__(429, f"more than {POLICY.per_minute} requests a minute; try again later")
        self.seconds = seconds


def _headers(refused: Refused) -> dict[str, str]:
    if isinstance(refused, _Busy):
        return {"Retry-After": str(math.ceil(refused.seconds))}
    return {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}  # noqa: PLR2004  HTTP's own number


def _let_in(request: Request) -> None:
    """The token comes first: who has none must not use up the rate of those who have it."""
    where = platform().alert_token_file
    if where is None:
        raise Refused(404, "alerts from outside are off; set PERENNIAL_ALERT_TOKEN_FILE")
    try:
        token = SecretRef(file=where.absolute()).value("alerts")
    except CredentialsRefused as error:
        log.error("%s", error)  # noqa: TRY400  a traceback would add nothing
        raise Refused(403, "alerts: the token file cannot be read; the server's log says more") from None
    given = request.headers.get("authorization", "").encode()
    if not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise Refused(401, "send the header 'Authorization: Bearer <token>'")
    if seconds := RATE.wait():
        raise _Busy(seconds)


def _take(said: list[Said]) -> Taken:
    try:
        now = live.now()
    except LookupError as error:
        raise Refused(409, str(error)) from error
    return take(said, ledger(), now, POLICY)


async def _body(request: Request) -> bytes:
    """The body; Refused as soon as it is longer than the limit."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > POLICY.body_bytes:
            raise Refused(413, f"the body has more than {POLICY.body_bytes} bytes")
    return body


def wake(model: str) -> None:
    """Posts the event that ``watch`` waits for, as the REST API does; a failure is only logged, since ``sweep`` repeats it."""
    asset = events.alerts(model)
    try:
        with create_session() as session:
            asset_manager.register_asset_change(
                asset=SerializedAssetUniqueKey(name=asset.name, uri=asset.uri),
                source_is_api=True,
                api_user_teams=set(),
                session=session,
            )
    except Exception:
        log.exception("the event of alerts/%s could not be posted; sweep will", model)
