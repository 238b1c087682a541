"""``python -m training.register doctor`` over a real MLflow store, real records and real packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.records import Records, connect
from artifacts.refs import Ref, file_uri, sha256
from artifacts.settings import ROOT, settings
from artifacts.store import publish
from operators.ledger import migrate
from tests.make import gates
from training.alias import project
from training.contract import AliasSpec, RegisterSpec, VersionRef
from training.doctor import doctor
from training.mlflow_store import Registry, prepare
from training.register import register

MODEL = "flight_delay"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERENNIAL_STATE", str(tmp_path))
    settings.cache_clear()
    prepare(settings().mlflow)
    migrate(connect(settings().database))
    return tmp_path


def made(state: Path, key: str) -> VersionRef:
    """A registered version with a package that really lies there."""
    digest = sha256(key.encode())
    uri = file_uri(state / "packages" / key)
    with publish(uri, "package") as draft:
        (draft.path / "model.onnx").write_text(key)
    assert draft.manifest is not None
    return register(
        RegisterSpec(
            model=MODEL,
            tracking_uri=settings().mlflow,
            partition=gates.PARTITION,
            trigger="manual",
            candidate=gates.fit_ref("evaluation", training_key=digest),
            final=gates.fit_ref("final", training_key=digest),
            evaluation=gates.evaluation_ref(training_key=digest),
            package=Ref(uri=uri, digest=draft.manifest.digest),
            onnx_digest=sha256(b"onnx"),
            verdicts=(),
        )
    )


def routed(version: VersionRef) -> dict[str, object]:
    return {
        "version": version.version,
        "package": {**version.package.model_dump(), "training_key": version.training_key},
    }


def live(champion: VersionRef, previous: VersionRef) -> None:
    """Writes the routing record and projects it."""
    value = {"model": MODEL, "champion": routed(champion), "previous": routed(previous)}
    records = Records(connect(settings().database))
    name = f"routing/{MODEL}"
    records.put(name, value, records.get(name).version)
    project(
        AliasSpec(
            model=MODEL,
            tracking_uri=settings().mlflow,
            champion=champion.version,
            previous=previous.version,
            package_digest=champion.package.digest,
            previous_digest=previous.package.digest,
        )
    )


@pytest.mark.covers("field-reports 76")
@pytest.mark.covers("bad evidence: alias by hand")
def test_the_doctor_follows_alias_version_and_digest(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = made(state, "old"), made(state, "new")
    live(new, old)
    assert doctor([]) == 0
    assert "whole: flight_delay" in capsys.readouterr().out

    Registry(settings().mlflow).point(MODEL, "champion", old.version)
    assert doctor([MODEL]) == 1
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1
    assert "it was set by hand" in said[0]
    live(new, old)
    assert doctor([]) == 0
    capsys.readouterr()

    next((state / "packages" / "old").rglob("model.onnx")).write_text("altered")
    assert doctor([]) == 1
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1
    assert f"version {old.version}: its package cannot be opened" in said[0]

    Registry(settings().mlflow).tag_version(MODEL, new.version, "package_digest", sha256(b"else"))
    assert doctor([]) == 1
    assert f"version {new.version}: tag 'package_digest' is {sha256(b'else')}" in capsys.readouterr().out


def test_the_doctor_is_one_command_and_a_model_that_nobody_knows_is_named(state: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "training.register", "doctor", "absent"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "absent: neither MLflow nor a routing record knows it" in done.stdout
