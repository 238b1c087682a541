"""What serving takes and gives: packages, staging, routing, the prediction log and the evidence of a release. Values only.

Longer than the house's 400 lines, because every step of serving has its spec and its reference here.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field, JsonValue, model_validator

from artifacts.clock import Calendar
from artifacts.refs import Digest, OnlineStore, Ref, Uri
from artifacts.secret import OpenUrl
from feature_repo.contract import FLIGHT_OUTCOME, Question, Task
from serving.engine_contract import EnginePolicy, ParityPolicy
from training.contract import EvaluationRef, FitRef, OnnxRef, Signature, Verdict


class RequestInput(BaseModel, frozen=True, extra="forbid"):
    """One input of a prediction request, in the Open Inference Protocol's words."""

    name: str
    datatype: Literal["BYTES", "INT64", "FP32", "FP64"]
    description: str = ""
    time: bool = Field(default=False, description="BYTES only: an instant, ISO 8601 with a zone; read as UTC.")


class Slo(BaseModel, frozen=True, extra="forbid"):
    """What callers were promised."""

    latency_p99_ms: float = Field(default=15.0, gt=0)
    requests_per_second: float = Field(default=200.0, gt=0)
    error_rate: float = Field(default=0.001, ge=0, le=1)


class Serving(BaseModel, frozen=True, extra="forbid"):
    """How a model is served; sits on the pipeline row and is copied into the package."""

    task: Task = Field(default="classification", description="What its labels are: 0 and 1, or any finite number.")
    request: tuple[RequestInput, ...]
    request_view: str = Field(
        description="Module of feature_repo/views whose `derive` computes features from the request itself."
    )
    routing_key: str = Field(description="Request input whose hash keeps a caller on one arm.")
    slo: Slo = Slo()
    engines: EnginePolicy = EnginePolicy()
    missing: Literal["impute", "refuse"] = Field(
        default="impute",
        description="A row whose online features are missing or stale: imputed as in training, or refused; counted in both.",
    )
    calendar: Calendar | None = Field(
        default=None, description="Cuts the prediction log into partitions; None means UTC days."
    )


# --- packages -------------------------------------------------------------------------------------------------------


class Golden(BaseModel, frozen=True, extra="forbid", ser_json_inf_nan="strings"):
    """Golden requests of a package (``golden.json``): encoded rows, the engine's scores, and which rows go together."""

    numeric: tuple[tuple[float, ...], ...] = Field(
        description="One tuple per row; in JSON 'NaN', 'Infinity' and '-Infinity' are strings."
    )
    categorical: tuple[tuple[int, ...], ...]
    score: tuple[float, ...]
    requests: tuple[tuple[int, ...], ...] = Field(
        description="Row numbers of each request; repeats fill large batches."
    )


class PackageSpec(BaseModel, frozen=True, extra="forbid"):
    """Puts model, engine, signature, golden requests and evidence into one artifact; G7 is decided here."""

    onnx: OnnxRef
    final: FitRef
    evaluation: EvaluationRef
    serving: Serving
    partition: dt.date
    verdicts: tuple[Verdict, ...]
    parity: ParityPolicy = ParityPolicy()
    output: Uri


class PackageRef(Ref, frozen=True):
    """A servable version: ``model.onnx``, the chosen engine's file where that is another, ``signature.json``,
    ``golden.json``, ``package.json`` and ``engines.json``, the table that the engine was chosen by.
    """

    model: str
    training_key: Digest
    partition: dt.date
    onnx_digest: Digest
    dataset_digest: Digest
    signature: Signature
    serving: Serving
    parity: Verdict


class PackageContent(BaseModel, frozen=True, extra="forbid"):
    """What ``package.json`` says: where the model comes from, and the evidence that it passed."""

    model: str
    training_key: Digest
    partition: dt.date
    onnx: OnnxRef
    onnx_digest: Digest
    dataset_digest: Digest
    final: FitRef
    evaluation: EvaluationRef
    verdicts: tuple[Verdict, ...]
    parity: Verdict = Field(description="Of the chosen engine.")
    serving: Serving
    scrambled_seed: int | None = None


class ScrambleSpec(BaseModel, frozen=True, extra="forbid"):
    """Makes a package that is consistent in itself and wrong: for drills, which release evidence must end."""

    package: PackageRef
    seed: int = 0
    scale: float = Field(default=3.0, gt=0, description="Factor on the scrambled weights.")
    output: Uri


# --- Triton ---------------------------------------------------------------------------------------------------------


class TritonServer(BaseModel, frozen=True, extra="forbid"):
    """Where a Triton server listens and which model repository it reads."""

    grpc: str = Field(description="host:port")
    http: str = Field(description="host:port")
    repository: Uri
    flavour: Literal["embedded", "cpu", "gpu"] = Field(
        default="embedded",
        description="The embedded server (Python backend), or a production server with Triton's own backends on that hardware.",
    )


class StageSpec(BaseModel, frozen=True, extra="forbid"):
    """Publishes a package under a new model name, loads it, warms it and asks its golden requests."""

    package: PackageRef
    name: str = Field(
        pattern=r"^[a-z][a-z0-9_]*_v[1-9][0-9]*(_baseline)?$",
        description="Triton model name, such as flight_delay_v7, or flight_delay_v6_baseline for a canary's clone; never reused.",
    )
    triton: TritonServer
    warm_requests: int = Field(default=100, ge=0)
    load_timeout: dt.timedelta = dt.timedelta(seconds=60)
    unload_timeout: dt.timedelta = dt.timedelta(seconds=30)
    request_timeout: dt.timedelta = dt.timedelta(seconds=5)
    rehearsal: Path | None = Field(
        default=None,
        description="Environment of a throw-away server that loads it first; None where none can be started.",
    )
    golden_tolerance: float = Field(default=1e-4, description="Largest absolute difference to a golden score.")


class StageRef(BaseModel, frozen=True, extra="forbid"):
    """A version that answered its golden requests; it has no traffic yet."""

    name: str
    package: Ref
    golden: int
    load_seconds: float
    servable: Verdict | None = Field(default=None, description="G8: loaded in time, and every golden request answered.")


class UnstageSpec(BaseModel, frozen=True, extra="forbid"):
    """Unloads a version that has no traffic (routes were changed first) and removes its folder."""

    name: str
    triton: TritonServer
    unload_timeout: dt.timedelta = dt.timedelta(seconds=30)


class UnstageRef(BaseModel, frozen=True, extra="forbid"):
    """What is left in the server."""

    name: str
    ready: tuple[str, ...]


# --- routing --------------------------------------------------------------------------------------------------------


class Deployed(BaseModel, frozen=True, extra="forbid"):
    """One version in front of traffic, or kept warm behind it."""

    name: str
    version: int
    package: PackageRef
    created_at: AwareDatetime
    promoted_at: AwareDatetime


class Canary(BaseModel, frozen=True, extra="forbid"):
    """A version on trial. ``share`` of the callers get it; as many get ``baseline``, a clone of the champion loaded as freshly.

    A clone is as cold as the candidate: beside the warm champion itself, every candidate would look slow.
    """

    candidate: Deployed
    baseline: Deployed | None = None
    share: float = Field(gt=0, le=1, description="Of the callers, by the hash of their routing key.")


class Routing(BaseModel, frozen=True, extra="forbid"):
    """Who answers an endpoint: the record ``routing/<model>``. Written by operators only, followed by gateways."""

    model: str
    champion: Deployed | None = None
    previous: Deployed | None = None
    canary: Canary | None = None

    @staticmethod
    def record(model: str) -> str:
        """The record's name."""
        return f"routing/{model}"


# --- the prediction log ----------------------------------------------------------------------------------------


class Prediction(BaseModel, frozen=True, extra="forbid"):
    """One answered row, as it lies in the log's JSONL segments; ``predictions.parquet`` has the same columns, flattened:
    request_id, at, partition, version, name, package_digest, score, ``input__<name>``, ``feature__<name>``, ``age__<view>`` (seconds).
    """

    request_id: str
    at: AwareDatetime = Field(description="Data clock when the request was answered.")
    partition: dt.date
    model: str
    version: int
    name: str
    package_digest: Digest
    inputs: dict[str, JsonValue]
    features: dict[str, float | str | None] = Field(description="Model inputs before encoding, as served.")
    ages: dict[str, float | None] = Field(
        description="Seconds since the event time of each view's row; None when nothing usable was there."
    )
    score: float
    schema_version: Literal[1] = Field(default=1, description="Of the line; a reader refuses what it does not know.")


class Feedback(BaseModel, frozen=True, extra="forbid"):
    """A label that became known for an earlier request; of which kind it must be, the model's serving block says."""

    request_id: str = Field(min_length=1)
    label: int | float = Field(allow_inf_nan=False)
    known_at: AwareDatetime
    schema_version: Literal[1] = 1


class PredictionsRef(Ref, frozen=True):
    """One closed partition of the log: ``predictions.parquet``, one row per request id (the first answer counts)."""

    model: str
    partition: dt.date
    rows: int


class FeedbackRef(Ref, frozen=True):
    """The labels that became known during one partition: ``feedback.parquet`` (request_id, label, known_at).

    ``label`` is int8, or a regression's float64.
    """

    model: str
    partition: dt.date
    rows: int


class CompactSpec(BaseModel, frozen=True, extra="forbid"):
    """Turns the log segments of one closed partition into its two artifacts; the same segments give the same digests."""

    model: str
    task: Task = "classification"
    partition: dt.date
    log: Uri = Field(description="Folder of the gateways' log segments, a file:// URI.")
    predictions: Uri
    feedback: Uri


class CompactRef(BaseModel, frozen=True, extra="forbid"):
    """One closed partition of the log."""

    predictions: PredictionsRef
    feedback: FeedbackRef


# --- replay -----------------------------------------------------------------------------------------------------------


class Announcement(BaseModel, frozen=True, extra="forbid"):
    """Where the event of a closed partition is posted, and as whom."""

    airflow: OpenUrl = Field(description="Base URL of Airflow's API server.")
    username: str
    password_file: Path = Field(description="Airflow's JSON file of passwords: {username: password}.")
    asset: str = Field(description="Name of the asset, such as predictions/<model>.")


class ReplaySpec(BaseModel, frozen=True, extra="forbid"):
    """Sends the requests of past service days through a gateway, advancing the data clock and the online store."""

    model: str
    question: Question = FLIGHT_OUTCOME
    serving: Serving
    calendar: Calendar
    gateway: OpenUrl = Field(description="Base URL of the gateway.")
    token_file: Path
    lake: Uri
    views: Uri
    online: OnlineStore
    log: Uri = Field(description="Folder of the gateway's log segments, a file:// URI.")
    predictions: Uri = Field(description="Folder of the compacted partitions: <predictions>/<day>.")
    feedback: Uri = Field(description="Folder of the compacted partitions: <feedback>/<day>.")
    first: dt.date
    last: dt.date
    lead: dt.timedelta = Field(
        default=dt.timedelta(hours=2),
        description="How long before the scheduled departure a caller asks; flights only.",
    )
    late_minutes: float = Field(default=15.0, description="A flight that arrives this late has label 1; flights only.")
    history: dt.timedelta = Field(
        default=dt.timedelta(days=7), description="How far back the online store is filled before the first request."
    )
    concurrency: int = Field(default=8, gt=0)
    patience: dt.timedelta = Field(
        default=dt.timedelta(seconds=60), description="How long a busy or absent gateway is waited for."
    )
    announcement: Announcement | None = None

    @model_validator(mode="after")
    def _ordered(self) -> ReplaySpec:
        if self.last < self.first:
            raise ValueError(f"last={self.last} lies before first={self.first}")
        return self


class ReplayedPartition(BaseModel, frozen=True, extra="forbid"):
    """One partition that a replay has closed."""

    partition: dt.date
    sent: int
    skipped: int = Field(description="Requests of the day from before the clock's start, or answered already.")
    labels: int
    seconds: float
    compacted: CompactRef


class ReplayRef(BaseModel, frozen=True, extra="forbid"):
    """What a replay did."""

    model: str
    partitions: tuple[ReplayedPartition, ...]


# --- evidence of a release ---------------------------------------------------------------------------------------


class LoadPolicy(BaseModel, frozen=True, extra="forbid"):
    """The load test of G9: how a staged version is asked. About seven seconds."""

    batches: tuple[int, ...] = Field(default=(1, 32), description="Closed loop.")
    concurrency: tuple[int, ...] = Field(default=(1, 8), description="Closed loop: callers at once.")
    closed_seconds: float = Field(default=0.5, gt=0)
    rates: tuple[float, ...] = Field(
        default=(1.0, 2.0, 4.0), min_length=1, description="Open loop: times the promised requests per second."
    )
    open_seconds: float = Field(default=2.0, gt=0)
    attempts: int = Field(
        default=3,
        gt=0,
        description="Tries at the promised rate; the best counts: what else a machine does only ever slows.",
    )
    busy_attempts: int = Field(
        default=15, gt=0, description="Tries at most while the machine is busy; each costs two times ``open_seconds``."
    )
    idle_share: float = Field(
        default=0.2,
        gt=0,
        description="The machine is busy while the p99 of requests that compute nothing exceeds this share of the promise.",
    )
    size_factor: float = Field(default=1.5, gt=0, description="Engine files, at most this times the champion's.")


class ReleasePolicy(BaseModel, frozen=True, extra="forbid"):
    """How much evidence a release needs (decisions.md 2.3)."""

    requests: int = Field(default=2000, gt=0)
    points: int = Field(default=60, gt=0, description="One-second points of latency per arm.")
    shadow_equal_share: float = Field(
        default=0.999, description="Share of rows whose served score equals the package's own within tolerance."
    )
    shadow_tolerance: float = 1e-4
    difference_factor: float = Field(
        default=2.0, description="Served mean absolute difference to the champion, at most this times the offline one."
    )
    p99_increase: float = 0.15
    p50_increase: float = 0.10
    error_increase: float = 0.0025
    prediction_psi: float = 0.1
    alpha: float = 0.02
    claim_factor: float = Field(
        default=1.05,
        description="Deciding figure (log loss, or MAE) of the candidate's package on its own evaluation window, at most this times what its evaluation says.",
    )
    quality_factor: float = Field(
        default=1.05, description="The same figure on the same labelled rows, at most this times the champion's."
    )
    quality_rows: int = Field(default=20_000, gt=0, description="Labelled rows at most (a seeded sample above it).")
    minimum_labelled: int = Field(default=200, gt=0, description="Fewer labelled rows say nothing.")
    request_timeout: dt.timedelta = dt.timedelta(seconds=2)
    load: LoadPolicy = LoadPolicy()
    blocked_days: int = Field(
        default=7, description="A rolled-back digest may not come back earlier without force and a reason."
    )


class JudgeSpec(BaseModel, frozen=True, extra="forbid"):
    """Asks champion and candidate the same logged requests in random order and compares (paired evidence)."""

    model: str
    candidate: StageRef
    candidate_package: PackageRef
    champion: StageRef | None
    champion_package: PackageRef | None
    predictions: tuple[PredictionsRef, ...] = Field(
        default=(), description="Logged requests to replay, newest partitions."
    )
    final: FitRef | None = Field(
        default=None, description="Source of requests (its dataset) while nothing has been logged."
    )
    triton: TritonServer
    policy: ReleasePolicy
    seed: int
    output: Uri


class JudgementRef(Ref, frozen=True):
    """The judge's evidence: ``judgement.json`` and ``judgement.html``."""

    model: str
    candidate: str
    champion: str | None
    kind: Literal["shadow", "paired replay"]
    status: Literal["pass", "fail", "inconclusive"]
    reasons: tuple[str, ...]
    figures: dict[str, float | int | None]
