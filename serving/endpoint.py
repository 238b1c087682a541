"""The versions behind one model's endpoint: follows its routing record, loads packages, and asks Triton.

A routing or a package that does not make sense is refused and said; the versions that answered before go on.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from tritonclient.grpc import InferInput, InferRequestedOutput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from artifacts.records import Records
from artifacts.store import read_ref
from feature_repo.catalogue import VIEWS
from serving import routing as routes
from serving.contract import Deployed, PackageRef, Routing
from training.contract import Signature

log = logging.getLogger(__name__)

Derive = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
PROBES: Mapping[str, np.ndarray] = {
    "BYTES": np.array(["x"], dtype=object),
    "INT64": np.array([1], dtype=np.int64),
    "FP32": np.array([1.0], dtype=np.float32),
    "FP64": np.array([1.0]),
    "time": np.array(["2013-01-01T00:00:00"], dtype="datetime64[us]"),
}
DATATYPES = {"string": "BYTES", "int64": "INT64"}
"""The request's datatype for a key of the catalogue."""
CHANNEL = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 1000),  # a restarted server is found within a second
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)


class RoutingFault(ValueError):
    """A routing record that cannot be followed; one line per problem."""


class TritonUnavailable(RuntimeError):
    """Triton did not answer in time, or not with a usable score; the same request may work later."""


@dataclass(frozen=True)
class Arm:
    """One loaded version. ``views`` maps each online view to the features that the model reads from it."""

    deployed: Deployed
    derive: Derive
    views: dict[str, tuple[str, ...]]
    names: tuple[str, ...]

    @property
    def signature(self) -> Signature:
        """The tensors of its graph."""
        return self.deployed.package.signature


def load(deployed: Deployed) -> Arm:
    """Checks the package against its digests and prepares the version; raises what ``read_ref`` raises."""
    artifact = read_ref(deployed.package)
    package = deployed.package
    stored = Signature.model_validate_json(artifact.file("signature.json").read_bytes())
    if stored != package.signature:
        raise RoutingFault(
            f"{package.uri}: signature.json is not the signature in the routing record; publish it again"
        )
    names = (*stored.numeric, *(item.name for item in stored.categorical))
    views: dict[str, tuple[str, ...]] = {}
    for name in names:
        view, _, feature = name.partition("__")
        if view != package.serving.request_view:
            views[view] = (*views.get(view, ()), feature)
    derive: Derive = importlib.import_module(f"feature_repo.views.{package.serving.request_view}").derive
    if faults := _unfit(derive, package, views, names):
        raise RoutingFault("\n".join(faults))
    return Arm(deployed, derive, views, names)


def _unfit(
    derive: Derive, package: PackageRef, views: Mapping[str, tuple[str, ...]], names: Iterable[str]
) -> list[str]:
    """Why requests as declared could not be turned into the model's inputs; found on a probe row, not on a caller's."""
    unknown = [f"serving: no such view '{view}'; there are {sorted(VIEWS)}" for view in views if view not in VIEWS]
    try:
        made = derive({item.name: PROBES["time" if item.time else item.datatype] for item in package.serving.request})
    except (ValueError, TypeError, KeyError) as error:
        view = package.serving.request_view
        return [
            *unknown,
            f"serving.request: the view '{view}' cannot read these inputs ({error}); do times have time=True?",
        ]
    sent = {item.name: item.datatype for item in package.serving.request}
    keys = {key: DATATYPES[kind] for view in views if view in VIEWS for key, kind in VIEWS[view].keys.items()}
    return [
        *unknown,
        *(f"serving.request: the entity key '{key}' is no request input" for key in sorted(keys.keys() - sent.keys())),
        *(
            f"serving.request: the entity key '{key}' is {sent[key]}; the views are keyed by {datatype}"
            for key, datatype in sorted(keys.items())
            if sent.get(key, datatype) != datatype
        ),
        *(
            f"signature: '{name}' is not made by the view '{package.serving.request_view}'"
            for name in names
            if name.startswith(f"{package.serving.request_view}__") and name not in made
        ),
    ]


class Endpoint:
    """What answers for one model, kept up to date by ``follow``."""

    def __init__(self, model: str, records: Records) -> None:
        self.model = model
        self.version = -1
        self.fault = "the routing record has not been read yet"
        self._records = records
        self._routing = Routing(model=model)
        self._arms: dict[str, Arm] = {}

    def answering(self, version: int | None = None) -> Arm | None:
        """The loaded version that answers: the champion, or the pinned one; None when there is none."""
        deployed = routes.answering(self._routing, version)
        return self._arms.get(deployed.name) if deployed else None

    def routed(self, key: str) -> Arm | None:
        """The loaded version for a caller with this routing key; None when there is none."""
        deployed = routes.split(self._routing, key)
        return self._arms.get(deployed.name) if deployed else None

    @property
    def splits(self) -> bool:
        """Whether callers are split between versions."""
        return self._routing.canary is not None

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The loaded versions."""
        return tuple(self._arms.values())

    async def follow(self) -> None:
        """Takes over the newest routing record if it is new and sound; never raises, keeps the old one otherwise."""
        try:
            record = await asyncio.to_thread(self._records.get, Routing.record(self.model))
            if record.version != self.version:
                routing = Routing.model_validate(record.value) if record.version else Routing(model=self.model)
                self._arms = await asyncio.to_thread(self._load, routing)
                self._routing, self.version = routing, record.version
                log.info(
                    "routing/%s version %d: champion %s",
                    self.model,
                    record.version,
                    routing.champion and routing.champion.name,
                )
            self.fault = ""
        except Exception as error:  # noqa: BLE001  whatever is wrong with a new record, the old versions go on
            if (fault := f"{type(error).__name__}: {error}") != self.fault:
                log.error("routing/%s is not followed: %s", self.model, fault)  # noqa: TRY400  the text is enough
            self.fault = fault

    def _load(self, routing: Routing) -> dict[str, Arm]:
        if found := routes.problems(routing):
            raise RoutingFault("\n".join(found))
        wanted = routes.loaded(routing)
        kept = {name: arm for name, arm in self._arms.items() if arm.deployed in wanted}
        return {deployed.name: kept.get(deployed.name) or load(deployed) for deployed in wanted}


class Triton:
    """One gRPC channel to Triton, with a deadline on every call."""

    def __init__(self, address: str, deadline_seconds: float) -> None:
        self._client = InferenceServerClient(address, channel_args=list(CHANNEL))
        self._deadline = deadline_seconds

    async def score(
        self, name: str, numeric: np.ndarray, categorical: np.ndarray, seconds: float | None = None
    ) -> np.ndarray:
        """Scores FP32 [B, 1] of one loaded model, within ``seconds`` where the caller waits no longer than that.

        Raises TritonUnavailable. Cancelling it cancels the call at the server.
        """
        deadline = self._deadline if seconds is None else min(seconds, self._deadline)
        tensors = []
        for tensor, values, datatype in (("numeric", numeric, "FP32"), ("categorical", categorical, "INT64")):
            if values.shape[1]:
                tensors.append(InferInput(tensor, list(values.shape), datatype).set_data_from_numpy(values))
        try:
            answer = await self._client.infer(
                name, tensors, outputs=[InferRequestedOutput("score")], client_timeout=deadline
            )
        except InferenceServerException as error:
            raise TritonUnavailable(f"{name}: {error.status()}: {error.message()}") from error
        score = answer.as_numpy("score")
        if score is None or score.shape != (len(numeric), 1) or not np.isfinite(score).all():
            raise TritonUnavailable(f"{name}: answered no finite score for every row")
        return np.asarray(score, dtype=np.float32)

    async def ready(self, name: str) -> bool:
        """Whether Triton says that it has this model; False when it does not answer."""
        try:
            return bool(await self._client.is_model_ready(name, client_timeout=self._deadline))
        except InferenceServerException:
            return False

    async def close(self) -> None:
        """Closes the channel."""
        await self._client.close()
