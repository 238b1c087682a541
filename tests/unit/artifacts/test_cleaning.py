"""Old attempts go, and nothing else: not what is named, not what is being written, not what somebody may still read."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from artifacts.cleaning import clean
from artifacts.refs import Ref, Uri, file_uri, join
from artifacts.settings import ROOT
from artifacts.store import MANIFEST, exists, manifest, publish, read, read_ref, write_bytes

DAY = dt.timedelta(days=1)
LATER = dt.timedelta(days=2)


@pytest.fixture(params=["file", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Uri:
    return file_uri(tmp_path / "store") if request.param == "file" else f"memory://bucket-{uuid.uuid4().hex}"


def put(uri: Uri, word: str) -> Ref:
    with publish(uri, "toy") as draft:
        (draft.path / "sub").mkdir()
        (draft.path / "sub" / "word").write_text(word)
    assert draft.manifest is not None
    return Ref(uri=uri, digest=draft.manifest.digest)


def attempts(uri: Uri) -> set[str]:
    filesystem, where = fsspec.url_to_fs(uri)
    return {path.removeprefix(where).strip("/").split("/")[0] for path in filesystem.find(where)} - {MANIFEST}


def at(later: dt.timedelta) -> dt.datetime:
    """The wall clock as it will be; what the test has written is then that old."""
    return dt.datetime.now(dt.UTC) + later


def test_replaced_attempts_go_after_the_grace_and_the_named_one_stays(root: Uri) -> None:
    uri = join(root, "days", "2013-08-31")
    put(uri, "old"), put(uri, "older"), put(join(root, "days", "2013-09-01"), "other")
    ref = put(uri, "new")
    assert clean(root, DAY, at(dt.timedelta(hours=23))).attempts == ()
    assert len(attempts(uri)) == 3
    removed = clean(root, DAY, at(LATER)).attempts
    assert len(removed) == 2
    assert all(name.startswith(f"{uri}/attempt-") for name in removed)
    found = manifest(uri)
    assert found is not None
    assert attempts(uri) == {found.attempt}
    assert read_ref(ref).file("sub/word").read_text() == "new"
    assert clean(root, DAY, at(LATER)).attempts == ()
    assert len(attempts(join(root, "days", "2013-09-01"))) == 1


def test_whoever_opened_the_old_version_before_it_was_replaced_has_the_grace_to_read(tmp_path: Path) -> None:
    """The grace counts from the replacement: an attempt that is months old is not at once fair game."""
    uri = file_uri(tmp_path / "a")
    put(uri, "old")
    opened = read(uri)
    long_ago = (dt.datetime.now(dt.UTC) - 90 * DAY).timestamp()
    for path in (opened.path, *opened.path.rglob("*")):
        os.utime(path, (long_ago, long_ago))
    put(uri, "new")
    assert clean(file_uri(tmp_path), DAY, at(dt.timedelta(hours=1))).attempts == ()
    assert opened.file("sub/word").read_text() == "old"


def test_the_manifest_dates_the_replacement_also_of_an_attempt_that_nobody_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = file_uri(tmp_path / "a")
    put(uri, "old"), put(uri, "new")
    now = dt.datetime.now(dt.UTC)
    monkeypatch.setattr("artifacts.cleaning._touched", lambda path: now if path.name == MANIFEST else now - 90 * DAY)
    assert clean(file_uri(tmp_path), DAY, now + dt.timedelta(hours=23)).attempts == ()
    assert len(clean(file_uri(tmp_path), DAY, now + LATER).attempts) == 1


def test_a_writer_that_sleeps_longer_than_the_grace_is_left_alone(tmp_path: Path) -> None:
    uri = file_uri(tmp_path / "a")
    with publish(uri, "toy") as draft:
        (draft.path / "word").write_text("slow")
        assert clean(file_uri(tmp_path), DAY, at(LATER)).attempts == ()
    assert read(uri).file("word").read_text() == "slow"


KILLED = """
import os, signal, sys
from artifacts.store import publish, write_bytes
with publish(sys.argv[1], "toy") as draft:
    (draft.path / "word").write_text("half")
    print(draft.path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_writer_left_goes_also_where_nothing_was_ever_published(tmp_path: Path) -> None:
    uri = file_uri(tmp_path / "a")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, uri], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    left = Path(done.stdout.strip())
    assert left.is_dir()
    assert clean(file_uri(tmp_path), DAY, at(dt.timedelta(hours=1))).attempts == ()
    assert clean(file_uri(tmp_path), DAY, at(LATER)).attempts == (join(uri, left.name),)
    assert not left.exists()


def test_an_attempt_that_is_published_while_it_is_looked_at_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer's last act falls between the cleaner's look at the manifest and its removal."""
    uri = file_uri(tmp_path / "a")
    writer = publish(uri, "toy")
    draft = writer.__enter__()
    (draft.path / "word").write_text("new")
    from artifacts import cleaning

    free = cleaning._free

    def publish_first(descriptor: int) -> bool:
        writer.__exit__(None, None, None)
        return free(descriptor)

    monkeypatch.setattr(cleaning, "_free", publish_first)
    assert clean(file_uri(tmp_path), DAY, at(LATER)).attempts == ()
    assert read(uri).file("word").read_text() == "new"


def test_writers_and_a_cleaner_without_grace_never_lose_the_newest_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("artifacts.cleaning.TEMPORARY", re.compile("(?!)"))  # only these are told by their age alone
    uri, over = file_uri(tmp_path / "a"), threading.Event()

    def keep_cleaning() -> int:
        removed = 0
        while not over.is_set():
            removed += len(clean(file_uri(tmp_path), -DAY, dt.datetime.now(dt.UTC)).attempts)
        return removed

    with ThreadPoolExecutor(1) as pool:
        cleaner = pool.submit(keep_cleaning)
        try:
            for number in range(60):
                ref = put(uri, str(number))
                assert read_ref(ref).file("sub/word").read_text() == str(number)
        finally:
            over.set()
        assert cleaner.result() > 0


def test_a_manifest_that_cannot_be_read_protects_everything_beside_it(root: Uri) -> None:
    uri = join(root, "a")
    put(uri, "old"), put(uri, "new")
    write_bytes(join(uri, MANIFEST), b"{")
    found = clean(root, DAY, at(LATER))
    assert found.attempts == ()
    assert "is no manifest" in found.problems[0]
    assert len(attempts(uri)) == 2


def test_half_written_objects_go_and_everything_else_stays(tmp_path: Path) -> None:
    kept = tmp_path / "steps" / "m" / "0123456789ab"
    for name in ("spec.json", "result.json", "step.json", ".hidden", "attempt-1"):
        write_bytes(file_uri(kept / name), b"1")
    half = kept / f".result.json.{uuid.uuid4().hex}"
    half.write_bytes(b"1")
    assert clean(file_uri(tmp_path), DAY, at(dt.timedelta(hours=1))).temporaries == 0
    assert clean(file_uri(tmp_path), DAY, at(LATER)).temporaries == 1
    assert sorted(path.name for path in kept.iterdir()) == [
        ".hidden",
        "attempt-1",
        "result.json",
        "spec.json",
        "step.json",
    ]


def test_a_copy_with_old_times_is_as_young_as_its_copying(tmp_path: Path) -> None:
    uri = file_uri(tmp_path / "a")
    put(uri, "old"), put(uri, "new")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert clean(file_uri(tmp_path), DAY, at(dt.timedelta(hours=23))).attempts == ()


def test_a_store_that_is_not_there_yet_is_clean(root: Uri) -> None:
    assert clean(join(root, "nothing"), DAY, at(LATER)).attempts == ()
    assert not exists(join(root, "nothing"))
