"""What is asked of an engine and what is known of it: policies, the table of engines of a package. Values only."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

from artifacts.refs import Digest
from training.contract import Verdict

EngineName: TypeAlias = Literal[
    "onnxruntime", "openvino", "onnxruntime-int8-dynamic", "onnxruntime-int8-static", "tensorrt"
]
Precision: TypeAlias = Literal["fp32", "fp16", "int8"]
PLAIN: EngineName = "onnxruntime"
"""The engine that serves ``model.onnx`` as it was exported; every other one has to be worth leaving it."""


class ParityPolicy(BaseModel, frozen=True, extra="forbid"):
    """How close an engine must come to torch (decisions.md 5, G7), and what a package keeps as golden requests.

    Absolute errors are in units of the largest answer where that exceeds 1, so a regression has the same limits.
    """

    max_absolute: float = Field(default=1e-4, description="fp32.")
    max_relative: float = Field(default=1e-3, description="fp32.")
    relative_floor: float = Field(default=1e-6, gt=0, description="Answers below it count as this in relative errors.")
    minimum_cosine: float = Field(default=0.999, description="fp16: between the vectors of all answers.")
    minimum_agreement: float = Field(default=0.995, description="fp16: share of rows on the same side of the middle.")
    metric_loss: dict[Precision, float] = Field(
        default={"fp16": 0.001, "int8": 0.005}, description="Most relative rise of the deciding loss."
    )
    auc_loss: float = Field(default=0.002, description="int8 in a classification: most loss of AUC.")
    max_spread: float = Field(
        default=1e-4, description="All: a row's answers in batches of different sizes; else neighbours change it."
    )
    minimum_rows: int = Field(default=256, gt=0, description="Real rows.")
    minimum_edge_rows: int = Field(default=32, gt=0)
    batches: tuple[int, ...] = Field(default=(1, 2, 7), description="Beside the largest batch of the signature.")
    preferred_batch: int = Field(default=32, gt=0)
    golden_single: int = Field(default=12, gt=0, description="Golden requests of batch 1.")
    golden_preferred: int = Field(default=6, gt=0, description="Golden requests of the preferred batch.")
    golden_max: int = Field(default=2, gt=0, description="Golden requests of the largest batch.")


class EnginePolicy(BaseModel, frozen=True, extra="forbid"):
    """Which engines are tried, how they are timed, and when one is worth more than the plain one."""

    candidates: tuple[EngineName, ...] = Field(
        default=("onnxruntime", "openvino", "onnxruntime-int8-dynamic", "onnxruntime-int8-static", "tensorrt"),
        min_length=1,
    )
    timed_batches: tuple[int, ...] = Field(default=(1, 32, 256), description="Those that the signature allows.")
    rounds: int = Field(default=15, ge=0, description="Interleaved rounds; 0: nothing is timed, the first is taken.")
    round_seconds: float = Field(default=0.02, gt=0, description="One engine at one batch size in one round.")
    worth: float = Field(
        default=0.05, ge=0, description="Another engine must be faster than the plain one by this share; noise is less."
    )
    calibration_rows: int = Field(default=512, gt=0, description="Training rows that static int8 is calibrated on.")
    metric_rows: int = Field(default=20_000, gt=0, description="Labelled rows at most (a seeded sample above it).")
    seed: int = 0


class EngineRow(BaseModel, frozen=True, extra="forbid"):
    """What happened with one engine."""

    engine: EngineName
    precision: Precision
    status: Literal["passed", "failed", "not built"]
    reason: str
    files: dict[str, Digest] = Field(default={}, description="What is loaded: path below the package -> digest.")
    key: Digest | None = Field(default=None, description="tensorrt: what the plan is bound to.")
    versions: dict[str, str] = {}
    parity: Verdict | None = None
    deciding_rise: float | None = Field(default=None, description="Relative rise of the deciding loss over fp32.")
    auc_loss: float | None = None
    milliseconds: dict[int, float] = Field(default={}, description="Batch size -> median time of one call.")


class EngineTable(BaseModel, frozen=True, extra="forbid"):
    """The evidence for the engine of a package. Without rows the plain engine serves ``model.onnx``."""

    chosen: EngineName = PLAIN
    reason: str = "the only one"
    machine: str = Field(default="", description="What it was timed on.")
    rows: tuple[EngineRow, ...] = ()

    def row(self, engine: EngineName) -> EngineRow | None:
        """The row of an engine, if it was tried."""
        return next((row for row in self.rows if row.engine == engine), None)
