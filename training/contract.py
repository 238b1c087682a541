"""What training takes and gives: the declaration of a job, the specs of its steps, their references. Values only.

Longer than the house's 400 lines, because every step of training has its spec and its reference here.
"""

from __future__ import annotations

import datetime as dt
from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field, model_validator

from artifacts.refs import Digest, Ref, Uri
from artifacts.secret import OpenUrl
from feature_repo.contract import DatasetRef, ValidationRef
from training.measures import Dimension, Gain, Look, Measured, Slice, Task

DAY = dt.timedelta(days=1)


class SplitPolicy(BaseModel, frozen=True, extra="forbid"):
    """Lengths of the windows, in days, that a partition's training set is cut into (decisions.md 3.8 and the design).

    The gap is at least the label horizon: a label of the window before is then known when the next one begins.
    """

    label_horizon_days: int = Field(default=1, ge=0)
    gap_days: int = Field(default=1, ge=0)
    validation_days: int = Field(default=14, gt=0)
    test_days: int = Field(default=14, gt=0)

    @model_validator(mode="after")
    def _no_label_from_the_next_window(self) -> SplitPolicy:
        if self.gap_days < self.label_horizon_days:
            raise ValueError(
                f"gap_days={self.gap_days} is less than label_horizon_days={self.label_horizon_days}; labels of one window "
                "would become known inside the next, make the gap as long"
            )
        return self


class Windows(BaseModel, frozen=True, extra="forbid"):
    """Service days of each part, inclusive: train < gap < validation < gap < test <= partition - label horizon."""

    train_first: dt.date
    train_last: dt.date
    validation_first: dt.date
    validation_last: dt.date
    test_first: dt.date
    test_last: dt.date

    @model_validator(mode="after")
    def _in_order(self) -> Windows:
        days = (
            self.train_first,
            self.train_last,
            self.validation_first,
            self.validation_last,
            self.test_first,
            self.test_last,
        )
        if (
            list(days) != sorted(days)
            or self.train_last >= self.validation_first
            or self.validation_last >= self.test_first
        ):
            raise ValueError(
                f"windows are not in order: {[str(day) for day in days]}; the training set is too short for the split"
            )
        return self

    @classmethod
    def cut(cls, first: dt.date, partition: dt.date, policy: SplitPolicy) -> Windows:
        """The windows of a training set that begins at ``first`` and is for ``partition``."""
        test_last = partition - policy.label_horizon_days * DAY
        test_first = test_last - (policy.test_days - 1) * DAY
        validation_last = test_first - (policy.gap_days + 1) * DAY
        validation_first = validation_last - (policy.validation_days - 1) * DAY
        train_last = validation_first - (policy.gap_days + 1) * DAY
        return cls(
            train_first=first,
            train_last=train_last,
            validation_first=validation_first,
            validation_last=validation_last,
            test_first=test_first,
            test_last=test_last,
        )


class TorchJob(BaseModel, frozen=True, extra="forbid"):
    """Where a training runs: how many processes, and what each gets. Rendered by operators/torch_job.py."""

    nodes: int = Field(default=1, gt=0)
    processes_per_node: int = Field(default=2, gt=0)
    gpus_per_process: int = Field(default=0, ge=0)
    cpus_per_process: int = Field(default=1, gt=0)
    memory_mib: int = Field(default=2048, gt=0)
    min_nodes: int | None = Field(
        default=None, gt=0, description="Fewest nodes that it may go on with when some are lost; None: all of them."
    )

    @model_validator(mode="after")
    def _fewest_of_all(self) -> TorchJob:
        if self.min_nodes is not None and self.min_nodes > self.nodes:
            raise ValueError(f"min_nodes={self.min_nodes} is more than nodes={self.nodes}; ask for at most as many")
        return self

    @property
    def world_size(self) -> int:
        """The number of processes that train together."""
        return self.nodes * self.processes_per_node

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """The numbers of processes that it may run with, the fewest first; one, unless nodes may be lost."""
        return tuple(nodes * self.processes_per_node for nodes in range(self.min_nodes or self.nodes, self.nodes + 1))


class CheckpointPolicy(BaseModel, frozen=True, extra="forbid"):
    """How often a fit saves what it has learnt, and how much of it stays (decisions.md 4.10)."""

    longest_seconds: float = Field(default=900, ge=0, description="At least so often, however long the run is.")
    run_share: float = Field(default=0.05, gt=0, le=1, description="At least once in this share of the whole run.")
    keep: int = Field(default=3, gt=0)


class FitOptions(BaseModel, frozen=True, extra="forbid"):
    """How a fit uses its processes: what they share, how exactly they count, and when they save or give up."""

    strategy: Literal["ddp", "fsdp"] = Field(
        default="ddp", description="ddp: each process holds the whole model; fsdp: each holds its part (FSDP2)."
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        default="fp32", description="bf16 by autocast; fp16 by autocast with a gradient scaler; weights stay fp32."
    )
    accumulation: int = Field(
        default=1, gt=0, description="Pieces that a process's share of a global batch is worked on in."
    )
    activation_checkpointing: bool = False
    compile: bool = False
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    preflight_seconds: float = Field(default=60, gt=0, description="Longest wait for all processes to come together.")
    hang_seconds: float = Field(default=300, gt=0, description="Without a step for so long, a fit ends to be resumed.")

    @model_validator(mode="after")
    def _scaler_sees_whole_gradients(self) -> FitOptions:
        if self.strategy == "fsdp" and self.precision == "fp16":
            raise ValueError(
                "strategy=fsdp with precision=fp16: the gradient scaler needs whole gradients; use precision=bf16, or ddp"
            )
        return self

    def shaping(self) -> dict[str, object]:
        """The options that can change a bit of the weights; the others only change how long it takes."""
        return self.model_dump(mode="json", exclude={"checkpoint", "preflight_seconds", "hang_seconds"})


class Network(BaseModel, frozen=True, extra="forbid"):
    """The shape of the model and how it learns; one value per recipe."""

    hidden: tuple[int, ...] = (128, 64)
    embedding: int = Field(default=8, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    learning_rate: float = Field(default=2e-3, gt=0)
    weight_decay: float = Field(default=1e-4, ge=0)
    warmup_share: float = Field(default=0.05, ge=0, lt=1, description="Share of all steps with a rising learning rate.")
    gradient_clip: float = Field(default=5.0, gt=0, description="Gradients are scaled down to this norm.")
    global_batch: int = Field(default=1024, gt=0)
    max_epochs: int = Field(default=8, gt=0)
    patience: int = Field(
        default=2, ge=0, description="Epochs without a better validation loss before it stops; evaluation fit only."
    )


class Columns(BaseModel, frozen=True, extra="forbid"):
    """Which columns of the training set the model reads, in the order of its input tensors."""

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]


class TrainSpec(BaseModel, frozen=True, extra="forbid"):
    """One fit of one version. Both fits of a version differ in ``fit``, ``epochs`` and ``output`` only."""

    model: str
    training_key: Digest
    dataset: DatasetRef
    columns: Columns
    windows: Windows
    fit: Literal["evaluation", "final"]
    epochs: int | None = Field(
        default=None, gt=0, description="Set for the final fit: the epochs that the evaluation fit found best."
    )
    network: Network
    job: TorchJob
    options: FitOptions = FitOptions()
    seed: int
    task: Task = "classification"
    output: Uri

    @model_validator(mode="after")
    def _of_its_data(self) -> TrainSpec:
        if self.task != self.dataset.task:
            raise ValueError(
                f"task={self.task}: the labels of {self.dataset.uri} are a {self.dataset.task}'s; name the question that fits"
            )
        return self

    @model_validator(mode="after")
    def _consistent(self) -> TrainSpec:
        pieces = self.options.accumulation
        for world in self.job.world_sizes:
            if self.network.global_batch % (world * pieces):
                raise ValueError(
                    f"global_batch={self.network.global_batch} does not split over world_size={world} x "
                    f"accumulation={pieces} (nodes={world // self.job.processes_per_node}, processes_per_node="
                    f"{self.job.processes_per_node}); use a multiple of {world * pieces}"
                )
        if self.options.strategy == "fsdp" and self.job.nodes > 1 and not self.output.startswith("file:"):
            raise ValueError(
                f"strategy=fsdp on nodes={self.job.nodes}: they write one checkpoint together, into a file system that they "
                f"share; output={self.output} is none, declare a shared folder or use strategy=ddp"
            )
        if (self.fit == "final") != (self.epochs is not None):
            raise ValueError(
                f"fit={self.fit} with epochs={self.epochs}: the final fit takes the evaluation fit's epochs, the evaluation fit finds them"
            )
        return self


class FitRef(Ref, frozen=True):
    """A trained set of weights: ``weights.pt`` (state dict), ``fit.json`` (vocabularies, normalisation, curve)."""

    training_key: Digest
    model: str
    fit: Literal["evaluation", "final"]
    dataset: DatasetRef
    columns: Columns
    network: Network
    seed: int
    epochs: int
    rows: int
    train_last: dt.date = Field(description="Last service day whose labels touched the weights.")
    seen_last: dt.date = Field(
        description="Last service day that touched any choice (the validation window, for the evaluation fit)."
    )
    loss_first: float
    loss_last: float
    grad_norm_max: float
    base_rate: float = Field(
        description="The constant answer of the training rows: share of positives, or a regression's median."
    )
    seconds: float
    task: Task = "classification"


# --- evaluation and gates ----------------------------------------------------------------------------------------


class BoostingParams(BaseModel, frozen=True, extra="forbid"):
    """Fixed LightGBM parameters of the yardstick; never tuned, so that it stays a yardstick."""

    rounds: int = 200
    learning_rate: float = 0.05
    leaves: int = 31
    min_rows_per_leaf: int = 100


class EvaluateSpec(BaseModel, frozen=True, extra="forbid"):
    """Scores candidate, champion, base rate and boosting on the same window, which no evaluation fit has seen."""

    model: str
    dataset: DatasetRef
    windows: Windows
    candidate: FitRef
    final: FitRef
    champion: FitRef | None = Field(default=None, description="The champion's evaluation fit; None for a first model.")
    boosting: BoostingParams = BoostingParams()
    bootstrap_draws: int = Field(default=2000, gt=0)
    dimensions: tuple[Dimension, ...] = Field(
        default=(), description="Columns whose slices are scored, and judged in G5."
    )
    thresholds: tuple[float, ...] = Field(default=(), description="Answers at which precision and recall are reported.")
    persistence: str | None = Field(
        default=None,
        description="Numeric column that is the naive answer of a regression, such as the label's last value; None: the "
        "training rows' constant.",
    )
    importance_rows: int = Field(default=2000, gt=0, description="Rows that permutation importance is measured on.")
    seed: int
    output: Uri


class EvaluationRef(Ref, frozen=True):
    """The evidence of one evaluation: ``evaluation.json`` and ``evaluation.html``."""

    model: str
    training_key: Digest
    test_first: dt.date
    test_last: dt.date
    rows: int
    positives: int = Field(description="0 in a regression.")
    task: Task = "classification"
    candidate: Measured
    final: Measured = Field(description="The final fit on the same window: a sanity bound, it has seen these rows.")
    base_rate: Measured = Field(
        description="The training rows' constant as the answer for every row, or ``persistence`` where it is declared."
    )
    persistence: str | None = Field(default=None, description="The column that was the naive answer.")
    boosting: Measured
    champion: Measured | None = None
    champion_key: Digest | None = None
    gain: Gain | None = Field(
        default=None, description="Over the champion in log loss (regression: MAE), bootstrapped."
    )
    guard_gain: Gain | None = Field(
        default=None, description="Over the champion in AUC (regression: RMSE), bootstrapped."
    )


class GatePolicy(BaseModel, frozen=True, extra="forbid"):
    """Which gates a model has to pass, and with what margins (decisions.md 5).

    Margins and limits of the deciding figure are in nats of log loss, or a regression's unit; those of the guard in AUC,
    or that unit. The defaults are those of a classification.
    """

    gates: tuple[str, ...] = Field(
        default=("G0", "G1", "G2", "G3", "G4", "G5", "G6"), description="G0 to G4 always apply; G10 stands for itself."
    )
    suites: tuple[str, ...] = Field(default=("training_set",), description="G1: suites that must have held.")
    grad_norm_limit: float = 1000.0
    floor: float = Field(default=0.005, description="G3: least gain over the base rate in the deciding figure.")
    deciding_limit: float | None = Field(default=None, description="G3: most log loss, or MAE, whatever the others do.")
    guard_limit: float | None = Field(default=None, description="G3: least AUC, or most RMSE.")
    boosting_margin: float = Field(default=0.02, description="G3: at most so much behind boosting, in AUC or MAE.")
    final_margin: float = Field(
        default=0.005,
        description="G3: the final fit may exceed the evaluation fit's deciding figure by this: it has seen the rows.",
    )
    margin: float = Field(default=0.005, gt=0, description="G4: non-inferiority margin of the deciding figure.")
    guard_margin: float | None = Field(default=0.005, gt=0, description="G4: that of the guard; None: no guard.")
    champion_age: dt.timedelta = dt.timedelta(days=7)
    significance_z: float = Field(default=1.644854, description="One-sided 5 %, for the power rule.")
    power_z: float = Field(default=0.841621, description="Power 80 %, for the power rule.")
    same_data_rejections: int = Field(
        default=3, gt=0, description="G0: a recipe refused so often on one dataset may not come back with another seed."
    )
    slice_rows: int = Field(default=385, gt=1, description="G5: least rows of a judged slice.")
    slice_margins: float = Field(default=2.0, gt=0, description="G5: a slice may lose so many margins.")
    slice_alpha: float = Field(default=0.05, gt=0, lt=1, description="G5 and G6: family-wise error, by Holm.")
    slice_power_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="G5: share of a dimension's rows whose slices must be able to show the loss.",
    )
    ece_limit: float = Field(default=0.05, description="G6: most ECE, unless the champion's is as bad.")
    ece_over_champion: float = Field(default=0.01, description="G6: ECE may exceed the champion's by this.")
    bias_limit: float | None = Field(default=None, description="G6: most absolute bias of a regression.")
    group_gap: float | None = Field(
        default=None,
        gt=0,
        description="G6: how far a group's bias may lie from the whole window's; None: reported only.",
    )
    tier: Literal["low", "high"] = Field(
        default="low", description="G10: a model of the high tier always asks a person."
    )
    first_release: Literal["automatic", "approval"] = "approval"
    approval_expires: dt.timedelta = Field(default=dt.timedelta(hours=72), description="G10: then the answer is no.")

    @model_validator(mode="after")
    def _known_gates(self) -> GatePolicy:
        always, may = {"G0", "G1", "G2", "G3", "G4"}, {"G5", "G6"}
        if not always <= set(self.gates) <= always | may:
            raise ValueError(f"gates={self.gates}: {sorted(always)} always apply, {sorted(may)} may be added")
        return self


class Verdict(BaseModel, frozen=True, extra="forbid"):
    """What one gate says, and why."""

    gate: str = Field(pattern=r"^G\d+ [a-z ]+$", description="Such as 'G3 floor'.")
    status: Literal["pass", "fail", "underpowered", "skipped"]
    reason: str
    figures: dict[str, float | int | str | None] = {}


class GateEvidence(BaseModel, frozen=True, extra="forbid"):
    """Everything that G0 to G6 look at."""

    dataset: DatasetRef
    validations: tuple[ValidationRef, ...]
    candidate: FitRef
    final: FitRef
    evaluation: EvaluationRef
    slices: tuple[Slice, ...] = Field(default=(), description="Those of ``evaluation.json``.")
    champion_partition: dt.date | None = None
    drift_triggered: bool = False
    backfill: bool = Field(default=False, description="Made for the past: it replaces nobody, so nobody is compared.")
    looks: tuple[Look, ...] = Field(default=(), description="What the ledger has of earlier judgements of this model.")
    code: Digest | None = Field(default=None, description="The code that trained it, a part of the training key.")
    commit: str | None = Field(
        default=None, description="As git describes the tree, '-dirty' included; None without git."
    )


# --- export and registry -------------------------------------------------------------------------------------------


Exporter = Literal["dynamo", "torchscript"]


class ExportSpec(BaseModel, frozen=True, extra="forbid"):
    """Turns a final fit into ONNX with its normalisation inside, plus the rows and torch answers for the parity check."""

    fit: FitRef
    windows: Windows
    parity_rows: int = Field(default=256, ge=256)
    opset: int = 20
    exporters: tuple[Exporter, ...] = Field(
        default=("dynamo", "torchscript"), min_length=1, description="The first whose graph is proven right is taken."
    )
    external_above_bytes: int = Field(
        default=1_500_000_000, ge=0, description="Larger weights lie beside the graph: protobuf ends at 2 GiB."
    )
    output: Uri


class CategoricalInput(BaseModel, frozen=True, extra="forbid"):
    """One categorical input; code 0 means unknown or null, code i + 1 means ``vocabulary[i]``."""

    name: str
    vocabulary: tuple[str, ...]


class Signature(BaseModel, frozen=True, extra="forbid"):
    """The tensors of the graph: ``numeric`` FP32 [batch, n] (NaN for null), ``categorical`` INT64 [batch, m], out ``score`` FP32 [batch, 1]."""

    numeric: tuple[str, ...]
    categorical: tuple[CategoricalInput, ...]
    max_batch: int = Field(default=1024, gt=0)


class OnnxRef(Ref, frozen=True):
    """``model.onnx`` (large weights in ``model.onnx.data``), ``signature.json`` and ``parity.npz`` (arrays numeric,
    categorical, score: fp32 torch answers; ``real``: how many real rows come before the edge rows).
    """

    model: str
    training_key: Digest
    fit_digest: Digest
    dataset_digest: Digest
    onnx_digest: Digest
    signature: Signature
    parity_rows: int
    exporter: Exporter = "dynamo"
    refused: tuple[str, ...] = Field(default=(), description="Why each exporter tried before was refused.")


class RegisterSpec(BaseModel, frozen=True, extra="forbid"):
    """Writes the MLflow run and one registered version per training key; a second call finds the first one's version."""

    model: str
    tracking_uri: OpenUrl
    partition: dt.date
    trigger: str
    candidate: FitRef
    final: FitRef
    evaluation: EvaluationRef
    package: Ref
    onnx_digest: Digest
    verdicts: tuple[Verdict, ...]


class VersionRef(BaseModel, frozen=True, extra="forbid"):
    """One registered version."""

    model: str
    version: int = Field(gt=0)
    run_id: str
    training_key: Digest
    package: Ref
    partition: dt.date
    created_at: AwareDatetime


class AliasSpec(BaseModel, frozen=True, extra="forbid"):
    """Projects the routing record onto MLflow's aliases; None deletes an alias."""

    model: str
    tracking_uri: OpenUrl
    champion: int | None
    previous: int | None
    challenger: int | None = Field(default=None, description="The version that a release is judging.")
    package_digest: Digest | None = Field(description="Digest that the champion version's tag must carry.")
    previous_digest: Digest | None = Field(default=None, description="That of the previous version.")


class AliasRef(BaseModel, frozen=True, extra="forbid"):
    """The aliases as they now stand."""

    model: str
    champion: int | None
    previous: int | None
    challenger: int | None = None
    overruled: tuple[str, ...] = Field(
        default=(), description="Aliases that somebody else had moved since the last projection, such as 'champion=4'."
    )
