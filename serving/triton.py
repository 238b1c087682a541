"""Puts versions into a Triton server and takes them out again; nothing loaded is ever changed in place.

Ready means that every golden request was answered, not what Triton's index says: a killed Python stub stays READY and
dead. ``load`` is never called for a READY name, since that reloads it in place.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from artifacts.refs import Digest, Ref
from artifacts.step import DataFault, TryAgain, progress
from artifacts.store import Artifact, read_ref
from serving import gate
from serving.contract import StageRef, StageSpec, TritonServer, UnstageRef, UnstageSpec
from serving.folder import publish_folder, remove_folder
from serving.package import golden_tensors, read_golden, require_digest
from serving.repository import VERSION

POLL_SECONDS = 0.05
OUTSIDE = {"StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED"}
READY, LOADING, UNLOADING = "READY", "LOADING", "UNLOADING"


class Server:
    """One Triton server over gRPC; what it cannot be asked becomes TryAgain with its address."""

    def __init__(self, server: TritonServer, request_seconds: float) -> None:
        self._address = server.grpc
        self._seconds = request_seconds
        self._client = triton_grpc.InferenceServerClient(server.grpc)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _outside(self, error: Exception) -> TryAgain:
        return TryAgain(f"Triton at {self._address} does not answer ({error}); is the server running?")

    def _ask(self, call: Callable[[], object]) -> object:
        try:
            return call()
        except InferenceServerException as error:
            if error.status() in OUTSIDE:
                raise self._outside(error) from error
            raise

    def live(self) -> None:
        """Asks whether the server lives; TryAgain when it does not answer. It computes nothing, so it times the way there."""
        self._ask(lambda: self._client.is_server_live(client_timeout=self._seconds))

    def states(self) -> dict[str, tuple[str, str]]:
        """(state, reason) of every model folder that the server knows."""
        index = self._ask(lambda: self._client.get_model_repository_index(client_timeout=self._seconds))
        return {found.name: (found.state, found.reason) for found in index.models}  # type: ignore[attr-defined]

    def state(self, name: str) -> str:
        """READY, LOADING, UNLOADING, UNAVAILABLE, or '' for a name that is not loaded or not there."""
        return self.states().get(name, ("", ""))[0]

    def parameters(self, name: str) -> dict[str, str]:
        """The configuration parameters of a loaded model."""
        found = self._ask(lambda: self._client.get_model_config(name, client_timeout=self._seconds))
        parameters = found.config.parameters  # type: ignore[attr-defined]
        return {key: parameters[key].string_value for key in parameters}

    def load(self, name: str, seconds: float) -> None:
        """Loads a model that is not READY; the server's own error when it cannot."""
        self._ask(lambda: self._client.load_model(name, client_timeout=seconds))

    def unload(self, name: str) -> None:
        """Asks for an unload, which goes on after this returns."""
        self._ask(lambda: self._client.unload_model(name, client_timeout=self._seconds))

    def score(self, name: str, numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:
        """Scores FP32 [batch] of one request; the server's own error when it refuses."""
        tensors = [("numeric", numeric, "FP32"), ("categorical", categorical, "INT64")]
        inputs = []
        for label, values, datatype in tensors:
            if values.shape[1]:
                tensor = triton_grpc.InferInput(label, list(values.shape), datatype)
                tensor.set_data_from_numpy(np.ascontiguousarray(values))
                inputs.append(tensor)
        version = str(VERSION)
        answer = self._ask(lambda: self._client.infer(name, inputs, version, client_timeout=self._seconds))
        return np.asarray(answer.as_numpy("score")).reshape(-1)  # type: ignore[attr-defined]

    def settled(self, name: str, done: Callable[[str], bool], seconds: float) -> bool:
        """Whether a state for which ``done`` holds is seen within ``seconds``."""
        deadline = time.monotonic() + seconds
        while not done(self.state(name)):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def wait(self, name: str, done: Callable[[str], bool], seconds: float) -> None:
        """Returns when ``done`` holds for the state; TryAgain when that takes longer than ``seconds``."""
        if not self.settled(name, done, seconds):
            state = self.state(name) or "absent"
            raise TryAgain(f"Triton at {self._address}: '{name}' is still {state} after {seconds:.0f} s")


@contextmanager
def connect(server: TritonServer, request_seconds: float) -> Iterator[Server]:
    """A connection that is closed at the end."""
    client = Server(server, request_seconds)
    try:
        yield client
    finally:
        client.close()


def stage(spec: StageSpec) -> StageRef:
    """Publishes, loads, warms and asks; the same version twice is success, another one under this name a DataFault."""
    artifact = read_ref(spec.package)
    require_digest(artifact, spec.package)
    with connect(spec.triton, spec.request_timeout.total_seconds()) as server:
        began = time.monotonic()
        # An unload that never ends is a dead stub's; loading the name again is what cures it.
        server.settled(spec.name, lambda state: state != UNLOADING, spec.unload_timeout.total_seconds())
        server.wait(spec.name, lambda state: state != LOADING, spec.load_timeout.total_seconds())
        if server.state(spec.name) == READY:
            _require_same(spec, server.parameters(spec.name).get("package"))
        else:
            publish_folder(spec, artifact)
            began = time.monotonic()
            _load(spec, server)
        seconds = time.monotonic() - began
        try:
            return _ask_golden(spec, server, artifact, seconds)
        except InferenceServerException:
            return _revive(spec, server, artifact)


def _revive(spec: StageSpec, server: Server, artifact: Artifact) -> StageRef:
    """Unloads and loads once more what is READY and does not answer; DataFault when that does not help."""
    progress(0.5, f"{spec.name} is READY but does not answer: loading it once more")
    server.unload(spec.name)
    server.wait(spec.name, lambda state: state != READY, spec.unload_timeout.total_seconds())
    began = time.monotonic()
    _load(spec, server)
    try:
        return _ask_golden(spec, server, artifact, time.monotonic() - began)
    except InferenceServerException as error:
        _remove(spec, server)
        raise DataFault([
            f"{spec.package.uri}: '{spec.name}' loads but does not answer: {error.message()}; it was unloaded"
        ]) from error


def _remove(spec: StageSpec, server: Server) -> None:
    _unload(server, spec.name, spec.unload_timeout.total_seconds())
    remove_folder(spec.triton, spec.name)


def unstage(spec: UnstageSpec) -> UnstageRef:
    """Unloads a version, waits until it is gone and removes its folder; doing it twice is success."""
    seconds = spec.unload_timeout.total_seconds()
    with connect(spec.triton, seconds) as server:
        if spec.name in server.states():
            _unload(server, spec.name, seconds)
        remove_folder(spec.triton, spec.name)
        ready = tuple(sorted(name for name, (state, _) in server.states().items() if state == READY))
    return UnstageRef(name=spec.name, ready=ready)


def _unload(server: Server, name: str, seconds: float) -> None:
    server.unload(name)
    if server.settled(name, _gone, seconds):
        return
    # The unload of a version whose stub was killed never ends; a fresh load under the same name can be unloaded.
    server.load(name, seconds)
    server.unload(name)
    server.wait(name, _gone, seconds)


def _gone(state: str) -> bool:
    return state not in {READY, LOADING, UNLOADING}


def _require_same(spec: StageSpec, digest: Digest | str | None) -> None:
    if digest != spec.package.digest:
        raise DataFault([
            f"{spec.triton.repository}: '{spec.name}' holds package {digest}, not {spec.package.digest}; a name is never "
            "used twice, take the next version"
        ])


def _load(spec: StageSpec, server: Server) -> None:
    progress(0.3, f"loading {spec.name}")
    limit = spec.load_timeout.total_seconds()
    try:
        server.load(spec.name, limit)
    except InferenceServerException as error:
        remove_folder(spec.triton, spec.name)
        raise DataFault([
            f"{spec.package.uri}: Triton cannot load it as '{spec.name}': {error.message()}; its folder was removed"
        ]) from error
    server.wait(spec.name, lambda state: state == READY, limit)


def _ask_golden(spec: StageSpec, server: Server, artifact: Artifact, load_seconds: float) -> StageRef:
    golden = read_golden(artifact)
    rows = golden_tensors(golden)
    progress(0.6, f"warming {spec.name}")
    for number in range(spec.warm_requests):
        place = [number % len(golden.score)]
        server.score(spec.name, rows.numeric[place], rows.categorical[place])
    progress(0.8, f"asking {len(golden.requests)} golden requests")
    worst, answered = 0.0, 0
    for request in golden.requests:
        places = list(request)
        found = server.score(spec.name, rows.numeric[places], rows.categorical[places])
        difference = float(np.max(np.abs(found - rows.score[places]))) if len(found) == len(places) else math.nan
        worst = difference if not difference <= worst else worst
        answered += 1
    figures = gate.StagingFigures(
        load_seconds=load_seconds, asked=len(golden.requests), answered=answered, worst_difference=worst
    )
    verdict = gate.servable(figures, spec.load_timeout.total_seconds(), spec.golden_tolerance)
    if verdict.status != "pass":
        _remove(spec, server)
        raise DataFault([f"{spec.package.uri}: {verdict.gate}: {verdict.reason}; '{spec.name}' was unloaded"])
    kept = Ref(uri=spec.package.uri, digest=spec.package.digest)
    return StageRef(
        name=spec.name, package=kept, golden=answered, load_seconds=round(load_seconds, 3), servable=verdict
    )
