"""A Kubernetes API for tests, over real HTTP: pods are created, listed by label, followed, patched and deleted; a pod's
command really runs as a local process, behind a bearer token. ``fate`` says what befalls the next pods, ``refuse`` which of
the next calls fail and how. No scheduler, no images, no watch."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from artifacts.settings import ROOT
from operators.ports import unused
from tests.make.toy_step import wait_for

PODS = "/api/v1/namespaces/{namespace}/pods"


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refused(code: int, reason: str, message: str) -> Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }
    return JSONResponse(body, code)


def selected(labels: Mapping[str, str], selector: str) -> bool:
    """Whether labels fit a selector made of ``k=v``, ``k!=v``, ``k`` and ``!k``."""

    def fits(term: str) -> bool:
        name, _, value = term.replace("==", "=").partition("=")
        if name.startswith("!"):
            return name[1:] not in labels
        if name.endswith("!"):
            return labels.get(name[:-1]) != value
        return labels.get(name) == value if "=" in term else name in labels

    return all(fits(term) for term in selector.split(",") if term)


TOKEN = "a-token-of-the-test"  # noqa: S105  it opens nothing
NODE_PRESSURE = "The node was low on resource: memory."


@dataclass
class Refusal:
    """How the next calls of one kind go wrong; ``code`` 0 drops the connection, ``after`` does the work first."""

    method: str
    ending: str
    code: int
    times: int = 1
    after: bool = False


class Cluster:
    """The pods of a cluster, and what was asked of it."""

    def __init__(self) -> None:
        self.fate: list[str] = []
        self.refuse: list[Refusal] = []
        self.calls: list[tuple[float, str, str]] = []
        self.events: list[dict[str, Any]] = []
        self.fates: dict[str, str] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        self.logs: dict[str, list[str]] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._versions = itertools.count(1)

    def app(self) -> Starlette:
        """The web application."""
        return Starlette(
            middleware=[Middleware(BaseHTTPMiddleware, dispatch=self.at_the_door)],
            routes=[
                Route("/version", lambda _: JSONResponse({"major": "1", "minor": "37", "gitVersion": "v1.37.0"})),
                Route(PODS, self.list, methods=["GET"]),
                Route(PODS, self.create, methods=["POST"]),
                Route(PODS + "/{name}/log", self.log),
                Route(PODS + "/{name}", self.one, methods=["GET", "PATCH", "DELETE"]),
                Route("/api/v1/namespaces/{namespace}/events", self.list_events),
            ],
        )

    def _listed(self, kind: str, items: list[dict[str, Any]]) -> Response:
        version = str(next(self._versions))
        return JSONResponse({
            "kind": kind,
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version},
            "items": items,
        })

    async def at_the_door(self, request: Request, go_on: Any) -> Response:
        """Counts a call, asks for the token, and refuses what it was told to."""
        self.calls.append((time.monotonic(), request.method, request.url.path))
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _refused(401, "Unauthorized", "Unauthorized")
        for refusal in self.refuse:
            if refusal.times and request.method == refusal.method and request.url.path.endswith(refusal.ending):
                refusal.times -= 1
                if refusal.after:
                    await go_on(request)
                return _dropped() if refusal.code == 0 else _refused(refusal.code, "Refused", "told to refuse")
        answer: Response = await go_on(request)
        return answer

    async def list_events(self, request: Request) -> Response:
        """The events of the pod that the field selector names."""
        name = request.query_params.get("fieldSelector", "").rpartition("=")[2]
        return self._listed("EventList", [one for one in self.events if one["involvedObject"]["name"] == name])

    def tell(self, name: str, reason: str, message: str) -> None:
        """An event of a pod."""
        self.events.append({
            "metadata": {"name": f"{name}.{len(self.events)}", "namespace": "perennial", "uid": str(uuid.uuid4())},
            "involvedObject": {"kind": "Pod", "name": name},
            "reason": reason,
            "message": message,
            "type": "Warning",
            "lastTimestamp": _now(),
        })

    async def list(self, request: Request) -> Response:
        """The pods that a selector fits."""
        selector = request.query_params.get("labelSelector", "")
        return self._listed(
            "PodList", [pod for pod in self.pods.values() if selected(pod["metadata"]["labels"], selector)]
        )

    async def create(self, request: Request) -> Response:
        """Creates a pod and starts it; a name that is taken is a conflict."""
        pod = await request.json()
        name = pod["metadata"]["name"]
        if name in self.pods:
            return _refused(409, "AlreadyExists", f'pods "{name}" already exists')
        pod["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now()}
        pod["status"] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": _now()}],
        }
        self._state(pod, {"waiting": {"reason": "ContainerCreating"}})
        self.pods[name] = pod
        self.created.append(pod)
        fate = self.fate.pop(0) if self.fate else ""
        if fate in UNSTARTED:
            getattr(self, f"_{fate}")(pod)
            return JSONResponse(pod, 201)
        self.fates[name] = fate
        task = asyncio.get_running_loop().create_task(self._run(pod))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return JSONResponse(pod, 201)

    async def one(self, request: Request) -> Response:
        """Reads, patches or deletes a pod."""
        name = request.path_params["name"]
        pod = self.pods.get(name)
        if pod is None:
            return _refused(404, "NotFound", f'pods "{name}" not found')
        if request.method == "PATCH":
            pod["metadata"]["labels"] |= (await request.json())["metadata"]["labels"]
        if request.method == "DELETE":
            process = self._processes.get(name)
            if process is not None and process.returncode is None:
                os.killpg(process.pid, signal.SIGTERM)
            del self.pods[name]
        return JSONResponse(pod)

    async def log(self, request: Request) -> Response:
        """The lines of a pod; ``follow`` may come with a capital T."""
        name = request.path_params["name"]
        if name not in self.pods:
            return _refused(404, "NotFound", f'pods "{name}" not found')
        follow = request.query_params.get("follow", "").lower() == "true"
        if self.fates.get(name) == "rotated" and self.logs.get(name):
            return StreamingResponse(_silence(), media_type="text/plain")

        async def lines() -> AsyncIterator[bytes]:
            sent = 0
            while True:
                for line in self.logs[name][sent:]:
                    sent += 1
                    yield f"{line}\n".encode()
                if not follow or name not in self.pods or self.pods[name]["status"]["phase"] in {"Succeeded", "Failed"}:
                    return
                await asyncio.sleep(0.05)

        return StreamingResponse(lines(), media_type="text/plain")

    def _unschedulable(self, pod: dict[str, Any]) -> None:
        pod["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
        self.tell(pod["metadata"]["name"], "FailedScheduling", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu")

    def _no_image(self, pod: dict[str, Any]) -> None:
        self._state(pod, {"waiting": {"reason": "ErrImagePull", "message": "manifest unknown"}})
        self.tell(pod["metadata"]["name"], "Failed", "Failed to pull image: manifest unknown")

    def _waiting_init(self, pod: dict[str, Any]) -> None:
        self._state(pod, {"waiting": {"reason": "PodInitializing"}})

    def _gone(self, pod: dict[str, Any]) -> None:
        del self.pods[pod["metadata"]["name"]]

    def _evicted_at_once(self, pod: dict[str, Any]) -> None:
        pod["status"] = {"phase": "Failed", "reason": "Evicted", "message": NODE_PRESSURE}

    def _state(self, pod: dict[str, Any], state: dict[str, Any]) -> None:
        container = pod["spec"]["containers"][0]
        image = container["image"]
        pod["status"]["containerStatuses"] = [
            {
                "name": container["name"],
                "ready": "running" in state,
                "restartCount": 0,
                "image": image,
                "imageID": image,
                "state": state,
            }
        ]
        pod["metadata"]["resourceVersion"] = str(next(self._versions))

    async def _run(self, pod: dict[str, Any]) -> None:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        lines = self.logs.setdefault(name, [])
        literal = {entry["name"]: entry["value"] for entry in container.get("env") or [] if "value" in entry}
        words = [sys.executable if word == "python" else word for word in container["command"]]
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=ROOT,
            env={**os.environ, **literal, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes[name] = process
        pod["status"] |= {"phase": "Running", "startTime": _now()}
        self._state(pod, {"running": {"startedAt": _now()}})
        if process.stdout is not None:
            async for raw in process.stdout:
                stamp = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
                lines.append(f"{stamp} {raw.decode(errors='replace').rstrip()}")
        code = await process.wait()
        code = 128 - code if code < 0 else code
        fate = self.fates[name]
        if fate == "evicted":
            pod["status"] |= {"reason": "Evicted", "message": NODE_PRESSURE}
            code = 137
        reason = "OOMKilled" if fate.startswith("oom") else {0: "Completed", 137: "OOMKilled"}.get(code, "Error")
        reason = "Error" if fate == "evicted" else reason
        if fate != "sidecar":
            pod["status"]["phase"] = "Failed" if code else "Succeeded"  # phase and container turn together
        self._state(
            pod, {"terminated": {"exitCode": code, "reason": reason, "startedAt": _now(), "finishedAt": _now()}}
        )
        if fate == "collected":
            del self.pods[name]


UNSTARTED = frozenset({"unschedulable", "no_image", "waiting_init", "gone", "evicted_at_once"})


async def _silence() -> AsyncIterator[bytes]:
    """What a log stream gives after the kubelet has rotated the file away: nothing, for ever."""
    while True:
        await asyncio.sleep(3600)
        yield b""


def _dropped() -> Response:
    """An answer that breaks off: the client sees fewer bytes than it was promised."""
    return Response(b"{", headers={"content-length": "4096"})


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[Cluster, Path]]:
    """A running cluster and the kubeconfig that leads to it."""
    made, (port,) = Cluster(), unused(1)
    server = uvicorn.Server(uvicorn.Config(made.app(), host="127.0.0.1", port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "test", "user": {"token": TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path = folder / "kubeconfig.yaml"
    path.write_text(yaml.safe_dump(config))
    try:
        wait_for(lambda: server.started)
        yield made, path
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
