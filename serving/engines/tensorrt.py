"""TensorRT: the command that builds a plan beside its GPU, the key that binds it there, and the refusal elsewhere.

A plan loads only on the compute capability, CUDA and TensorRT that built it (field report 98), so the key of a plan is
the digest of all of them. Where there is no GPU nothing is built; the command is what a serving image with one runs.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from artifacts.refs import Digest, file_digest, key_digest
from serving.engines.interface import Engine, Kind, Sources, Unsupported

PLAN_FILE, TARGET_FILE = "model.plan", "model.plan.json"
BUILD_SECONDS = 600
MIDDLE_BATCH = 32


class Profile(BaseModel, frozen=True, extra="forbid"):
    """The batch sizes that a plan is built for: smallest, the one it is tuned for, largest."""

    smallest: int = Field(default=1, gt=0)
    tuned: int = Field(default=MIDDLE_BATCH, gt=0)
    largest: int = Field(gt=0)


class Target(BaseModel, frozen=True, extra="forbid"):
    """Everything that a plan depends on."""

    onnx_digest: Digest
    tensorrt: str
    cuda: str
    compute_capability: str
    precision: Literal["fp32", "fp16"] = "fp32"
    profile: Profile

    @property
    def key(self) -> Digest:
        """The plan's identity."""
        return key_digest(self.model_dump(mode="json"))


class Device(BaseModel, frozen=True, extra="forbid"):
    """What this machine would run a plan with."""

    tensorrt: str
    cuda: str
    compute_capability: str


def command(model: Path, plan: Path, widths: dict[str, int], target: Target) -> list[str]:
    """The ``trtexec`` that builds a plan with a free batch; ``widths`` is input name -> second dimension."""

    def shapes(batch: int) -> str:
        return ",".join(f"{name}:{batch}x{width}" for name, width in widths.items())

    profile = target.profile
    return [
        "trtexec",
        f"--onnx={model}",
        f"--saveEngine={plan}",
        f"--minShapes={shapes(profile.smallest)}",
        f"--optShapes={shapes(min(profile.tuned, profile.largest))}",
        f"--maxShapes={shapes(profile.largest)}",
        *(["--fp16"] if target.precision == "fp16" else []),
        "--noTF32",
        "--skipInference",
    ]


def differences(target: Target, device: Device) -> list[str]:
    """Why a plan may not be loaded on a device; empty when it was built for it."""
    built, here = target.model_dump(), device.model_dump()
    return [f"{name} is {built[name]} in the plan, {here[name]} here" for name in here if built[name] != here[name]]


def require_same_device(path: Path, device: Device) -> Target:
    """What a plan was built for; Unsupported on any other device, or when nothing says what it was built for."""
    try:
        target = Target.model_validate_json(path.with_name(TARGET_FILE).read_bytes())
    except (OSError, ValidationError) as error:
        raise Unsupported(f"{path.name}: {TARGET_FILE} does not say what it was built for; build it again") from error
    if problems := differences(target, device):
        raise Unsupported(f"{path.name}: {'; '.join(problems)}; build the plan on the class of GPU that serves it")
    return target


def device() -> Device:
    """The GPU of this machine; Unsupported without one, or without TensorRT."""
    missing = [word for word in ("nvidia-smi", "trtexec") if shutil.which(word) is None]
    if missing:
        raise Unsupported(
            f"{' and '.join(missing)} not found, there is no NVIDIA GPU with TensorRT here; a serving image with "
            "one builds the plan"
        )
    capability = _answer(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]).splitlines()[0].strip()
    try:
        import tensorrt  # noqa: PLC0415  only where a GPU is
    except ImportError as error:
        raise Unsupported(f"TensorRT's Python package is not installed ({error})") from error
    cuda = re.search(r"CUDA Version\s*:\s*(\S+)", _answer(["nvidia-smi", "--version"]))
    return Device(tensorrt=tensorrt.__version__, cuda=cuda[1] if cuda else "unknown", compute_capability=capability)


def _answer(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)  # noqa: S603  ours
    if done.returncode:
        raise Unsupported(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def build(sources: Sources) -> None:
    """Builds the plan on this machine's GPU; Unsupported where there is none."""
    here = device()
    plan = sources.model.with_name(PLAN_FILE)
    target = Target(
        **here.model_dump(), onnx_digest=file_digest(sources.model), profile=Profile(largest=sources.max_batch)
    )
    widths = {"numeric": sources.numeric.shape[1], "categorical": sources.categorical.shape[1]}
    _answer(command(sources.model, plan, {name: width for name, width in widths.items() if width}, target))
    plan.with_name(TARGET_FILE).write_text(target.model_dump_json(indent=1), encoding="utf-8")


def load(path: Path) -> Engine:
    """Refuses a plan of another device by name; plans are run by Triton's own backend, not in process."""
    target = require_same_device(path, device())
    raise Unsupported(
        f"{path.name} ({json.dumps(target.key)}) is for this GPU, but is run by Triton's TensorRT backend only"
    )


KINDS = (Kind("tensorrt", "fp32", PLAN_FILE, build, load),)
