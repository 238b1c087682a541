"""``explain``: one card per package, from its data to the decision that asked for it."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from artifacts.records import connect
from artifacts.refs import Ref, file_uri
from operators.ledger import DECISION, Ledger, __main__, migrate
from operators.settings import Platform
from operators.versions import Version, record
from serving.contract import PackageRef, PackageSpec
from serving.package import package
from tests.make import serving as make
from tests.make import training as make_training
from training.contract import VersionRef


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[PackageSpec, PackageRef]:
    folder = tmp_path_factory.mktemp("packed")
    spec = make.version(folder, make_training.dataset(folder)).spec
    return spec, package(spec)


@pytest.fixture
def book(tmp_path: Path, packed: tuple[PackageSpec, PackageRef], monkeypatch: pytest.MonkeyPatch) -> Ledger:
    url = f"sqlite:///{tmp_path / 'perennial.db'}"
    monkeypatch.setattr(__main__, "platform", lambda: Platform(database=url))
    migrate(connect(url))
    ledger, (_, ref) = Ledger(connect(url)), packed
    asked = ledger.append(
        DECISION, ref.model, {"trigger": "manual", "note": "holiday <fares>", "author": "grace"}, actor="grace"
    )
    ledger.append(DECISION, ref.model, {"trigger": "manual", "note": "of another version"}, actor="linus")
    result = tmp_path / "result.json"
    result.write_text(ref.model_dump_json())
    registered = VersionRef(
        model=ref.model,
        version=7,
        run_id="run",
        training_key=ref.training_key,
        package=Ref(uri=ref.uri, digest=ref.digest),
        partition=ref.partition,
        created_at=dt.datetime(2013, 9, 1, tzinfo=dt.UTC),
    )
    uri = file_uri(result)
    version = Version(
        registered=registered,
        evaluation_fit=uri,
        final_fit=uri,
        evaluation=uri,
        package=uri,
        trigger="manual",
        decision=asked.id,
    )
    record(ledger, version)
    ledger.append("approval", ref.model, {"training_key": ref.training_key, "approver": "ada"}, actor="ada")
    ledger.append("promotion", ref.model, {"package": ref.digest, "from": "flight_delay_v6", "reason": "better"})
    ledger.append("drift", ref.model, {"package": ref.digest})
    return ledger


def test_a_card_has_every_digest_and_who_wanted_and_approved_it(
    book: Ledger, packed: tuple[PackageSpec, PackageRef], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, ref = packed
    assert __main__.main(["explain", ref.digest, "--folder", str(tmp_path / "card")]) == 0
    said = capsys.readouterr().out
    card = json.loads((tmp_path / "card" / "lineage.json").read_text())
    page = (tmp_path / "card" / "lineage.html").read_text()
    assert [link["what"] for link in card["chain"]] == ["dataset", "final fit", "evaluation", "model", "package"]
    refs = (spec.final.dataset, spec.final, spec.evaluation, spec.onnx, ref)
    assert [link["digest"] for link in card["chain"]] == [one.digest for one in refs]
    assert all(one.digest in page for one in refs)
    assert [line["kind"] for line in card["history"]] == [DECISION, "version", "approval", "promotion"]
    assert card["history"][0]["said"] == {"trigger": "manual", "note": "holiday <fares>", "author": "grace"}
    assert card["history"][2]["said"]["approver"] == "ada"
    assert card["verdicts"]["G7 export parity"].startswith("pass: ")
    assert card["chain"][3]["facts"]["exporter"] == "dynamo"
    assert card["chain"][4]["facts"]["engine"] == "onnxruntime"
    assert "holiday &lt;fares&gt;" in page
    assert "http" not in page
    assert "flight_delay_v7" in said
    assert "linus" not in said


def test_a_package_is_found_by_digest_beginning_key_uri_and_name(
    book: Ledger, packed: tuple[PackageSpec, PackageRef]
) -> None:
    ref = packed[1]
    names = (ref.digest, ref.digest[7:19], ref.training_key, ref.uri, "flight_delay_v7")
    assert [__main__.main(["explain", name]) for name in names] == [0] * len(names)


@pytest.mark.parametrize("name", ["", "a", "flight_delay_v8", "sha256:" + "0" * 64])
def test_what_the_ledger_does_not_know_is_said_in_one_line(
    book: Ledger, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main(["explain", name]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert "is no version of the ledger" in line
