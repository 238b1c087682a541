"""A Kubernetes API for tests, over real HTTP: pods are created, listed by label, followed, patched and deleted; a pod's
command really runs as a local process. No scheduler, no images, no watch."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import os
import signal
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from starlette.applications import Starlette
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


class Cluster:
    """The pods of a cluster, and what was asked of it."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        self.logs: dict[str, list[str]] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._versions = itertools.count(1)

    def app(self) -> Starlette:
        """The web application."""
        return Starlette(
            routes=[
                Route("/version", lambda _: JSONResponse({"major": "1", "minor": "37", "gitVersion": "v1.37.0"})),
                Route(PODS, self.list, methods=["GET"]),
                Route(PODS, self.create, methods=["POST"]),
                Route(PODS + "/{name}/log", self.log),
                Route(PODS + "/{name}", self.one, methods=["GET", "PATCH", "DELETE"]),
                Route("/api/v1/namespaces/{namespace}/events", self.nothing),
            ]
        )

    def _listed(self, kind: str, items: list[dict[str, Any]]) -> Response:
        version = str(next(self._versions))
        return JSONResponse({
            "kind": kind,
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version},
            "items": items,
        })

    async def nothing(self, _: Request) -> Response:
        """There are no events."""
        return self._listed("EventList", [])

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
        reason = {0: "Completed", 137: "OOMKilled"}.get(code, "Error")
        pod["status"]["phase"] = "Failed" if code else "Succeeded"  # phase and container turn together
        self._state(
            pod, {"terminated": {"exitCode": code, "reason": reason, "startedAt": _now(), "finishedAt": _now()}}
        )


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
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path = folder / "kubeconfig.yaml"
    path.write_text(yaml.safe_dump(config))
    try:
        wait_for(lambda: server.started)
        yield made, path
    finally:
        server.should_exit = True
        thread.join(10)
