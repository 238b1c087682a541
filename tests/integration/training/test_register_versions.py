"""Versions and aliases in a real MLflow store on SQLite."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from artifacts.refs import Ref, sha256
from artifacts.step import DataFault
from tests.make import gates
from training.alias import project
from training.contract import AliasSpec, RegisterSpec, VersionRef
from training.mlflow_store import NotPrepared, Registry, prepare
from training.register import register

MODEL = "flight_delay"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder / 'state' / 'mlflow.db'}"
    prepare(uri)
    return uri


def spec(store: str, key: str, model: str = MODEL, **changes: Any) -> RegisterSpec:
    digest = sha256(key.encode())
    fields: dict[str, Any] = {
        "model": model,
        "tracking_uri": store,
        "partition": gates.PARTITION,
        "trigger": "manual",
        "candidate": gates.fit_ref("evaluation", training_key=digest, model=model),
        "final": gates.fit_ref("final", training_key=digest, model=model),
        "evaluation": gates.evaluation_ref(training_key=digest, model=model),
        "package": Ref(uri="file:///store/package", digest=sha256(f"package {key}".encode())),
        "onnx_digest": sha256(b"onnx"),
        "verdicts": (),
    }
    return RegisterSpec.model_validate({**fields, **changes})


def alias_spec(
    store: str, model: str, champion: int | None, previous: int | None, key: str, challenger: int | None = None
) -> AliasSpec:
    return AliasSpec(
        challenger=challenger,
        model=model,
        tracking_uri=store,
        champion=champion,
        previous=previous,
        package_digest=sha256(f"package {key}".encode()),
    )


@pytest.mark.covers("field-reports 81")
def test_a_second_call_finds_the_first_ones_version(store: str) -> None:
    first = register(spec(store, "once"))
    again = register(spec(store, "once", package=Ref(uri="file:///other", digest=sha256(b"other"))))
    other = register(spec(store, "twice"))
    assert again == first
    assert first.created_at.utcoffset() == dt.timedelta(0)
    assert other.version > first.version
    assert other.run_id != first.run_id


@pytest.mark.covers("field-reports 74", "field-reports 81")
@pytest.mark.parametrize("attempt", range(3))
def test_writers_at_the_same_time_agree_on_one_version(store: str, attempt: int) -> None:
    wanted = spec(store, f"race {attempt}", "raced")
    together = Barrier(4)

    def one(_: int) -> VersionRef:
        together.wait(10)
        return register(wanted)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(4)))
    assert len({(ref.version, ref.run_id) for ref in found}) == 1
    assert register(wanted) == found[0]


def test_parts_of_different_versions_are_refused(store: str) -> None:
    with pytest.raises(DataFault, match="training keys differ"):
        register(spec(store, "mixed", final=gates.fit_ref("final", training_key=sha256(b"else"))))


def test_tags_carry_the_digests(store: str) -> None:
    ref = register(spec(store, "tags", "tagged"))
    found = Registry(store).version("tagged", ref.version)
    assert found is not None
    assert found.tags["training_key"] == ref.training_key
    assert found.tags["package_digest"] == ref.package.digest
    assert found.tags["dataset_digest"] == gates.dataset_ref().digest


def test_aliases_follow_the_record_and_can_be_deleted(store: str) -> None:
    old, new = register(spec(store, "old", "aliased")), register(spec(store, "new", "aliased"))
    for _ in range(2):
        project(alias_spec(store, "aliased", old.version, None, "old"))
        assert Registry(store).aliases("aliased") == {"champion": old.version}
    ref = project(alias_spec(store, "aliased", new.version, old.version, "new"))
    assert ref.overruled == ()
    assert Registry(store).aliases("aliased") == {"champion": new.version, "previous": old.version}
    project(alias_spec(store, "aliased", new.version, None, "new", challenger=old.version))
    assert Registry(store).aliases("aliased") == {"champion": new.version, "challenger": old.version}
    project(alias_spec(store, "aliased", None, None, "new"))
    assert Registry(store).aliases("aliased") == {}


@pytest.mark.covers("bad evidence: alias by hand")
def test_an_alias_set_by_hand_is_moved_back_and_reported(store: str) -> None:
    live, other = register(spec(store, "live", "handed")), register(spec(store, "other", "handed"))
    project(alias_spec(store, "handed", live.version, None, "live"))
    Registry(store).point("handed", "champion", other.version)
    ref = project(alias_spec(store, "handed", live.version, None, "live"))
    assert ref.overruled == (f"champion={other.version}",)
    assert Registry(store).aliases("handed") == {"champion": live.version}


def test_a_champion_that_carries_another_package_is_refused(store: str) -> None:
    live, other = register(spec(store, "live", "swapped")), register(spec(store, "other", "swapped"))
    project(alias_spec(store, "swapped", live.version, None, "live"))
    with pytest.raises(DataFault, match="set by hand"):
        project(alias_spec(store, "swapped", other.version, None, "live"))
    with pytest.raises(DataFault, match="no version 99"):
        project(alias_spec(store, "swapped", 99, None, "live"))
    wrong = alias_spec(store, "swapped", live.version, other.version, "live")
    with pytest.raises(DataFault, match="the previous of the routing record is"):
        project(wrong.model_copy(update={"previous_digest": sha256(b"else")}))
    assert Registry(store).aliases("swapped") == {"champion": live.version}


def test_a_store_that_set_up_has_not_made_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotPrepared, match="run `make setup`"):
        register(spec(f"sqlite:///{tmp_path / 'absent.db'}", "absent"))
    assert not (tmp_path / "absent.db").exists()
