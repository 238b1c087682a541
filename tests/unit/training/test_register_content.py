"""What a version's run and tags say."""

from __future__ import annotations

import math

from artifacts.refs import Ref, sha256
from tests.make import gates as make
from training.contract import GatePolicy, RegisterSpec
from training.gate import GATES, verdicts
from training.register import inconsistent, metrics, params, source, tags


def spec(**changes: object) -> RegisterSpec:
    fields: dict[str, object] = {
        "model": "flight_delay",
        "tracking_uri": "sqlite:////absent.db",
        "partition": make.PARTITION,
        "trigger": "drift",
        "candidate": make.fit_ref("evaluation"),
        "final": make.fit_ref("final"),
        "evaluation": make.evaluation_ref(),
        "package": Ref(uri="file:///store/package", digest=sha256(b"package")),
        "onnx_digest": sha256(b"onnx"),
        "verdicts": verdicts(make.gate_evidence(), GatePolicy()),
    }
    return RegisterSpec.model_validate({**fields, **changes})


def test_tags_hold_every_digest_and_every_verdict() -> None:
    found = tags(spec())
    assert found["package_digest"] == sha256(b"package")
    assert found["partition"] == "2013-08-31"
    assert found["gate.G3 floor"].startswith("pass: ")
    assert len([name for name in found if name.startswith("gate.")]) == len(GATES)


def test_figures_that_are_not_finite_are_left_out_of_the_metrics() -> None:
    found = metrics(spec(final=make.fit_ref("final", loss_last=math.nan)))
    assert "final_loss_last" not in found
    assert found["test_candidate_log_loss"] == 0.45
    assert all(math.isfinite(value) for value in found.values())
    assert params(spec())["test_first"].isoformat() == "2013-08-17"  # type: ignore[attr-defined]


def test_a_source_has_a_scheme_that_a_server_takes() -> None:
    assert source(spec()) == f"perennial://flight_delay/{sha256(b'package').removeprefix('sha256:')}"


def test_a_mixture_of_versions_is_named() -> None:
    assert inconsistent(spec()) == []
    assert len(inconsistent(spec(candidate=make.fit_ref("final"), final=make.fit_ref("final")))) == 1
