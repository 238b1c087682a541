"""The gateway: entity rows in, calibrated probabilities out, every answer logged before it is sent.

``python -m serving.gateway --host 127.0.0.1 --port 8080`` speaks the Open Inference Protocol v2 over HTTP. Every route
but health wants ``Authorization: Bearer <token>``. A malformed request gets 400 (413 when too large, 408 when too slow)
and one line per problem; 422 for rows that the model's policy refuses; 429 when too many are in flight; 503 with
Retry-After while nothing can answer. docs/metrics.md names what it counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator

import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from artifacts.clock import DataClock
from artifacts.records import Records, SchemaMismatch, check_schema
from artifacts.step import follow_parent
from feature_repo.online import OnlineReader
from serving import oip
from serving.answer import Answerer, Refusal, describe, parse_feedback
from serving.endpoint import Arm, Endpoint, Triton
from serving.gateway_settings import GatewaySettings
from serving.log import LogUnwritable, SegmentWriter, sync
from serving.metrics import Metrics
from serving.retention import Room
from serving.structured import log_as_json
from serving.transport import Bearer, Gone, Named, Slow, Unsafe, fault, read_body, read_token, unless_gone

log = logging.getLogger(__name__)

MEASURE_SECONDS = 10.0
EXTENSIONS = ["binary_tensor_data"]
STATUS: dict[type[Exception], int] = {
    oip.WireFault: 400,
    Slow: 408,
    oip.TooLarge: 413,
    Gone: 499,
    LogUnwritable: 503,
}
"""The answer to each fault; 499 is written nowhere but into the counter, since its caller has gone."""


class Gateway:
    """The parts of one gateway process, made from its settings."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.token = read_token(settings.token_file)
        # connect() opens an SQLite file at every use; this process only reads, at every request, and keeps it open.
        engine = sa.create_engine(settings.database, pool_pre_ping=not settings.database.startswith("sqlite"))
        check_schema(engine)
        records = Records(engine)
        self.metrics = Metrics()
        self.endpoints = {model: Endpoint(model, records) for model in settings.gateway_models}
        room = Room(limit=settings.gateway_log_bytes, keep_free=settings.gateway_log_free_bytes)
        room.measure(settings.log)
        self.writer = SegmentWriter(settings.log, dt.datetime.now(dt.UTC), room)
        self._records = records
        self._open = self._in_flight = 0
        self._alarmed, self._measure_at = False, 0.0

    async def start(self) -> None:
        """Opens what needs the running loop, and reads the routing once."""
        self.triton = Triton(self.settings.triton_grpc, self.settings.gateway_deadline_seconds)
        self.answerer = Answerer(
            reader=OnlineReader(self.settings.online),
            triton=self.triton,
            writer=self.writer,
            clock=DataClock(self.settings.clock, self._records),
            metrics=self.metrics,
            keep=dt.timedelta(days=self.settings.gateway_log_keep_days),
        )
        await asyncio.gather(*(endpoint.follow() for endpoint in self.endpoints.values()))
        self._tasks = [asyncio.create_task(work()) for work in (self._follow, self._sync, self._keep_house)]

    async def stop(self) -> None:
        """Ends the background work and makes the log durable."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.writer.close()
        await self.triton.close()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self.settings.gateway_follow_seconds)
            for endpoint in self.endpoints.values():
                await endpoint.follow()
                self.metrics.routing.labels(endpoint.model).set(endpoint.version)
                self.metrics.routing_fault.labels(endpoint.model).set(bool(endpoint.fault))

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(self.settings.gateway_sync_seconds)
            try:
                await asyncio.to_thread(sync, self.writer.take_dirty())
                await self._look_for_room()
            except OSError:
                log.exception("the prediction log could not be made durable; it is tried again")

    async def _keep_house(self) -> None:
        """Starts ``serving.hourly`` again and again; under replay, where partitions are closed by the tool, never."""
        while self.settings.clock == "wall":
            await asyncio.sleep(self.settings.gateway_hourly_seconds)
            child = await asyncio.create_subprocess_exec(sys.executable, "-m", "serving.hourly")
            try:
                await child.wait()
            finally:
                if child.returncode is None:
                    child.terminate()

    async def _look_for_room(self) -> None:
        """Measures the log once in a while, and says when it is nearly full."""
        room, before = self.writer.room, self._alarmed
        if time.monotonic() >= self._measure_at:
            self._measure_at = time.monotonic() + MEASURE_SECONDS
            await asyncio.to_thread(room.measure, self.settings.log)
        self._alarmed = room.alarm
        self.metrics.log_bytes.set(room.held)
        self.metrics.log_alarm.set(room.alarm)
        if room.alarm and not before:
            log.error("the prediction log is nearly full; requests are refused when it is", extra={"said": vars(room)})

    @contextlib.asynccontextmanager
    async def counted(self, endpoint: Endpoint) -> AsyncIterator[None]:
        """Counts one inference request by its outcome; refuses with 429 when too many are open."""
        if self._open >= self.settings.gateway_open:
            self.metrics.requests.labels(endpoint.model, "429").inc()
            raise Refusal(429, f"{self._open} requests are open already; try again shortly", 1)
        self._open += 1
        status, begun = "500", time.perf_counter()
        try:
            yield
            status = "200"
        except Refusal as error:
            status = str(error.status)
            raise
        except tuple(STATUS) as error:
            status = str(STATUS[type(error)])
            raise
        finally:
            self._open -= 1
            self.metrics.requests.labels(endpoint.model, status).inc()
            self.metrics.seconds.labels(endpoint.model).observe(time.perf_counter() - begun)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Bounds the requests that are being answered, of which a slow body is none; refuses with 429."""
        if self._in_flight >= self.settings.gateway_concurrency:
            raise Refusal(429, f"{self._in_flight} requests are in flight already; try again shortly", 1)
        self._in_flight += 1
        self.metrics.in_flight.set(self._in_flight)
        try:
            yield
        finally:
            self._in_flight -= 1
            self.metrics.in_flight.set(self._in_flight)

    async def body(self, request: Request) -> bytes:
        """The request's body, within the limits of size and time."""
        return await read_body(request, self.settings.gateway_body_bytes, self.settings.gateway_body_seconds)

    def endpoint(self, model: str) -> Endpoint:
        """The endpoint of a model; refuses with 404."""
        if model not in self.endpoints:
            raise Refusal(404, f"model '{model[:80]}' is not served here; there are {sorted(self.endpoints)}")
        return self.endpoints[model]

    def arm_for(self, model: str, version: str | None, asked: oip.InferRequest) -> Arm:
        """The version that answers this request: the pinned one, else the one that its routing key leads to."""
        champion, endpoint = self.arm(model, version), self.endpoint(model)
        if version is not None or not endpoint.splits:
            return champion
        return endpoint.routed(routing_key(champion, asked)) or champion

    def arm(self, model: str, version: str | None = None) -> Arm:
        """The version that answers; refuses with 404 for an unknown model or pin, 503 while there is no champion."""
        endpoint = self.endpoint(model)
        pin = int(version) if version and version.isascii() and version.isdigit() and len(version) < 10 else None  # noqa: PLR2004
        if version and pin is None:
            raise Refusal(404, f"version '{version[:40]}' is no number")
        arm = endpoint.answering(pin)
        if arm is None and pin is not None:
            raise Refusal(
                404, f"version {pin} of '{model}' is not loaded: neither champion nor previous nor in a canary"
            )
        if arm is None:
            raise Refusal(503, f"'{model}' has no champion yet{f' ({endpoint.fault})' if endpoint.fault else ''}", 5)
        return arm


def routing_key(arm: Arm, asked: oip.InferRequest) -> str:
    """What keeps a caller on one version: the declared input of the first row, as sent; the request's id without one.

    A request goes to one version as a whole.
    """
    tensor = asked.inputs.get(arm.deployed.package.serving.routing_key)
    if tensor is None or not tensor.values.size:
        return asked.id
    first = tensor.values.flat[0]
    return first.decode(errors="replace") if isinstance(first, bytes) else str(first)


def create_app(settings: GatewaySettings) -> FastAPI:
    """The ASGI application of one gateway process."""
    gateway = Gateway(settings)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await gateway.start()
        try:
            yield
        finally:
            await gateway.stop()

    app = FastAPI(openapi_url=None, lifespan=lifespan)
    app.add_middleware(Bearer, token=gateway.token)
    app.add_middleware(Named)
    _add_faults(app)
    _add_health(app, gateway)
    _add_models(app, gateway)
    _add_feedback(app, gateway)
    return app


def _add_faults(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(_request: Request, error: Refusal) -> Response:
        return fault(error.status, error.text, error.retry_after)

    @app.exception_handler(oip.WireFault)
    @app.exception_handler(oip.TooLarge)
    @app.exception_handler(Slow)
    @app.exception_handler(Gone)
    async def unacceptable(_request: Request, error: Exception) -> Response:
        answer = fault(STATUS[type(error)], str(error))
        if not isinstance(error, oip.WireFault):  # the rest of the body is not waited for
            answer.headers["Connection"] = "close"
        return answer

    @app.exception_handler(LogUnwritable)
    async def unwritable(_request: Request, error: LogUnwritable) -> Response:
        log.error("%s", error)
        return fault(503, "the answer could not be logged, so it is not given", 5)

    @app.exception_handler(HTTPException)
    async def http(_request: Request, error: HTTPException) -> Response:
        return fault(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def unexpected(_request: Request, _error: Exception) -> Response:  # the server logs the error itself
        return fault(500, "internal error; see the gateway's log")


def _add_health(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/v2/health/live")
    async def live() -> Response:
        return Response()

    @app.get("/v2/health/ready")
    async def ready() -> Response:
        for model in gateway.endpoints:
            gateway.arm(model)
        return Response()

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(gateway.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _add_models(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/v2")
    async def server() -> dict[str, object]:
        return {"name": "perennial", "version": "2", "extensions": EXTENSIONS}

    @app.get("/v2/models/{model}")
    @app.get("/v2/models/{model}/versions/{version}")
    async def model(model: str, version: str | None = None) -> dict[str, object]:
        return describe(gateway.endpoint(model), gateway.arm(model, version))

    @app.get("/v2/models/{model}/ready")
    @app.get("/v2/models/{model}/versions/{version}/ready")
    async def model_ready(model: str, version: str | None = None) -> Response:
        name = gateway.arm(model, version).deployed.name
        if not await gateway.triton.ready(name):
            raise Refusal(503, f"Triton does not have '{name}' ready", 1)
        return Response()

    @app.post("/v2/models/{model}/infer")
    @app.post("/v2/models/{model}/versions/{version}/infer")
    async def infer(request: Request, model: str, version: str | None = None) -> Response:
        endpoint = gateway.endpoint(model)
        async with gateway.counted(endpoint):
            body = await gateway.body(request)
            with gateway.working():
                asked = oip.decode(body, request.headers.get(oip.HEADER_LENGTH))
                work = gateway.answerer.answer(gateway.arm_for(model, version, asked), asked)
                head, outputs = await unless_gone(request, work)
                answer, headers = oip.encode(asked, head, outputs)
        answer, encoding = oip.compress(answer, request.headers.get("accept-encoding", ""))
        return Response(answer, headers={**headers, "Content-Encoding": encoding} if encoding else headers)


def _add_feedback(app: FastAPI, gateway: Gateway) -> None:
    @app.post("/v2/feedback")
    async def feedback(request: Request, model: str | None = None) -> dict[str, int]:
        """Labels of earlier requests, one or a list; ``?model=`` is needed where several models are served."""
        if model is None and len(gateway.endpoints) > 1:
            raise Refusal(400, f"say which model: /v2/feedback?model=<one of {sorted(gateway.endpoints)}>")
        name = gateway.endpoint(model or next(iter(gateway.endpoints))).model
        labels = parse_feedback(await gateway.body(request))
        gateway.answerer.take(name, gateway.endpoints[name].answering(), labels)
        return {"accepted": len(labels)}


def main(arguments: list[str]) -> int:
    """Serves until SIGTERM; exit code 1 with one line when it must not start."""
    parser = argparse.ArgumentParser(prog="python -m serving.gateway", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    given = parser.parse_args(arguments)
    follow_parent()
    log_as_json()
    try:
        app = create_app(GatewaySettings())
    except (Unsafe, SchemaMismatch) as error:
        print(error, file=sys.stderr)  # noqa: T201  the one line that the caller sees
        return 1
    uvicorn.run(app, host=given.host, port=given.port, log_level="warning", access_log=False, log_config=None)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
