from __future__ import annotations

import sys
from pathlib import Path

import pytest

from artifacts.refs import short
from artifacts.step import Failure
from operators.process import StepFailed, StepRefused, command, environment, verdict
from tests.make.operators import MODULE, toy_step
from training.contract import TorchJob

KINDS = {
    kind: Failure(kind=kind, reason=f"the reason of {kind}") for kind in ("bad_spec", "bad_data", "try_again", "error")
}


@pytest.mark.parametrize(
    ("code", "kind", "distributed", "expected"),
    [
        (64, "bad_spec", False, StepRefused),
        (65, "bad_data", False, StepRefused),
        (75, "try_again", False, StepFailed),
        (1, "error", False, StepRefused),
        (1, "error", True, StepFailed),  # torchrun: the rank that reports is often not the one that failed
        (1, "bad_data", True, StepRefused),  # torchrun answers 1 whatever its workers said
        (1, "try_again", True, StepFailed),
        (64, None, False, StepRefused),
        (1, None, False, StepFailed),
        (137, None, True, StepFailed),
    ],
)
def test_an_end_is_final_or_worth_another_try(
    code: int, kind: str | None, *, distributed: bool, expected: type[Exception]
) -> None:
    error = verdict(code, f"exit {code}", KINDS[kind] if kind else None, distributed=distributed)
    assert type(error) is expected
    assert f"exit {code}" in str(error)
    assert (f"the reason of {kind}" if kind else "it left no reason") in str(error)


def test_a_signal_is_named_and_worth_another_try() -> None:
    error = verdict(-9, "exit -9", KINDS["bad_data"], distributed=False)
    assert isinstance(error, StepFailed)
    assert "SIGKILL" in str(error)
    assert "memory" in str(error)
    assert "memory" not in str(verdict(-15, "exit -15", None, distributed=False))


def test_a_step_does_not_see_airflows_secrets(tmp_path: Path) -> None:
    outer = {
        "AIRFLOW__API_AUTH__JWT_SECRET": "s",
        "_AIRFLOW_PROCESS_CONTEXT": "c",
        "PERENNIAL_STORE": "s3://b",
        "PATH": "/bin",
    }
    env = environment(toy_step(tmp_path), outer)
    assert not [name for name in env if "AIRFLOW" in name]
    assert (env["PERENNIAL_STORE"], env["PATH"], env["PERENNIAL_FOLLOW_PARENT"]) == ("s3://b", "/bin", "1")
    assert "GLOO_SOCKET_IFNAME" not in env
    assert environment(toy_step(tmp_path, job=TorchJob()), outer)["GLOO_SOCKET_IFNAME"] == "lo"


def test_a_step_is_called_through_its_door(tmp_path: Path) -> None:
    step = toy_step(tmp_path)
    folder = f"{(tmp_path / 'store').as_uri()}/steps/{MODULE}/{short(step.key)}"
    assert command(step) == (sys.executable, "-m", MODULE, f"{folder}/spec.json", f"{folder}/result.json")


def test_a_distributed_step_is_called_through_torchrun(tmp_path: Path) -> None:
    words = command(toy_step(tmp_path, job=TorchJob(processes_per_node=2)), python="python")
    assert words[:3] == ("python", "-m", "torch.distributed.run")
    assert "--nproc-per-node=2" in words
