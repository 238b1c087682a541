"""Artifacts on a real S3 server: what is read is what was published, whole, also by other processes and at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts import remote, store
from artifacts.faults import StoreAway
from artifacts.refs import Uri, join
from artifacts.settings import ROOT
from artifacts.store import ArtifactCorrupt, ArtifactMissing
from tests.make import s3
from tests.make.stores import put


def objects(s3_server: s3.Server, lake: Uri) -> list[str]:
    prefix = lake.removeprefix(f"s3://{s3.BUCKET}/")
    found = s3.client(s3_server).list_objects_v2(Bucket=s3.BUCKET, Prefix=f"{prefix}/")
    return [one["Key"].removeprefix(f"{prefix}/") for one in found.get("Contents", [])]


def test_what_is_published_is_read_back_and_replaced(lake: Uri) -> None:
    uri = join(lake, "a")
    with pytest.raises(ArtifactMissing, match="nothing has been published here"):
        store.read(uri)
    assert store.manifest(uri) is None
    old = put(uri, rows="1,2", sub__more="3", empty=b"")
    found = store.read_ref(old)
    assert (found.file("rows").read_text(), found.file("sub/more").read_text()) == ("1,2", "3")
    assert found.file("empty").read_bytes() == b""
    new = put(uri, rows="4")
    assert store.read_ref(new).file("rows").read_text() == "4"
    assert found.file("rows").read_text() == "1,2"  # who has the old version open keeps it
    with pytest.raises(ArtifactCorrupt, match="it was rebuilt or altered"):
        store.read_ref(old)


def test_single_objects(lake: Uri) -> None:
    uri = join(lake, "one.json")
    assert not store.exists(uri)
    with pytest.raises(FileNotFoundError, match=r"one\.json"):
        store.read_bytes(uri)
    store.write_bytes(uri, b"")
    assert store.exists(uri)
    assert store.read_bytes(uri) == b""
    store.write_bytes(uri, b"new")
    assert store.read_bytes(uri) == b"new"
    assert not store.exists(lake)  # what is below a name does not make it an object
    assert store.objects(lake) == ("one.json",)
    store.remove(uri)
    store.remove(uri)
    assert not store.exists(uri)
    for name in ("a/1", "a/sub/2", "ab"):
        store.write_bytes(join(lake, name), b"1")
    store.remove_all(join(lake, "a"))
    assert store.objects(lake) == ("ab",)


def test_children_are_what_is_published_also_a_moment_ago_by_another_process(lake: Uri) -> None:
    assert store.children(join(lake, "days")) == ()
    put(join(lake, "days", "2013-09-01"), rows="1")
    assert store.children(join(lake, "days")) == ("2013-09-01",)
    store.write_bytes(join(lake, "days", "2013-09-02", "attempt-1", "rows"), b"half")
    store.write_bytes(join(lake, "days", "2013-09-03", "below", "manifest.json"), b"{}")
    code = f"from tests.make.stores import put; put('{join(lake, 'days', '2013-09-04')}', rows='4')"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}, check=True)
    assert store.children(join(lake, "days")) == ("2013-09-01", "2013-09-04")


def test_a_large_file_travels_in_parts(lake: Uri, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(1 << 20) * 25  # three parts and a rest
    ref = put(join(lake, "large"), weights=content)
    assert store.read_ref(ref).file("weights").read_bytes() == content


MEMORY = """
import hashlib, resource, sys
from artifacts import store
uri, mib = sys.argv[1], int(sys.argv[2])
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
store.write_bytes(uri + "-small", b"1")
store.read_bytes(uri + "-small")
before = peak()
with store.publish(uri, "toy") as draft, (draft.path / "weights").open("wb") as file:
    for number in range(mib):
        file.write(bytes([number % 251]) * (1 << 20))
published = peak()
assert store.read(uri).file("weights").stat().st_size == mib << 20
print(published - before, peak() - before)
"""


def test_a_file_larger_than_the_memory_that_is_spent_on_it(lake: Uri) -> None:
    words = [sys.executable, "-c", MEMORY, join(lake, "large"), "192"]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}, check=True, capture_output=True)
    writing, reading = (int(word) for word in done.stdout.split())
    assert writing < 128  # four parts of 8 MiB travel at once, each in a few copies
    assert reading < 128


def test_a_writer_that_fails_leaves_the_old_version_and_no_rest(s3_server: s3.Server, lake: Uri, monkeypatch) -> None:
    old = put(join(lake, "a"), rows="old")
    before = objects(s3_server, lake)
    upload = remote.upload

    def broken(place: remote.Place, name: str, source: Path) -> None:
        if name == "two":
            raise StoreAway("the network is gone")
        upload(place, name, source)

    monkeypatch.setattr(remote, "upload", broken)
    with pytest.raises(StoreAway):
        put(join(lake, "a"), one="1", two="2")
    assert objects(s3_server, lake) == before
    assert store.read_ref(old).file("rows").read_text() == "old"


KILLED = """
import os, signal, sys
from artifacts import remote, store
uri, at = sys.argv[1], int(sys.argv[2])
left = at
def counted(inner):
    def call(*arguments):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        inner(*arguments)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return call
remote.upload, remote.write = counted(remote.upload), counted(remote.write)
with store.publish(uri, "toy") as draft:
    (draft.path / "one").write_text("new")
    (draft.path / "two").write_text("new")
"""


def test_a_writer_that_is_killed_leaves_the_old_version_or_the_new_one(lake: Uri) -> None:
    uri, ends = join(lake, "a"), []
    put(uri, one="old", two="old")
    for at in range(1, 8):
        words = [sys.executable, "-c", KILLED, uri, str(at)]
        done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}, check=False)
        found = store.read(uri)
        one, two = (found.file(name).read_text() for name in ("one", "two"))
        assert one == two
        ends.append((one, done.returncode))
    assert ends == [*[("old", -9)] * 5, ("new", -9), ("new", 0)]


READS = """
import sys
from artifacts import store
for _ in range(15):
    found = store.read(sys.argv[1])
    words = {found.file(name).read_text() for name in ("one", "two")}
    assert len(words) == 1, words
"""


def test_readers_see_whole_versions_while_writers_replace_them(lake: Uri) -> None:
    uri = join(lake, "a")
    put(uri, one="0", two="0")
    env = {**os.environ, "PYTHONPATH": "."}
    readers = [
        subprocess.Popen([sys.executable, "-c", READS, uri], cwd=ROOT, env=env, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    number = 0
    while any(one.poll() is None for one in readers):
        number += 1
        put(uri, one=str(number), two=str(number))
    for one in readers:
        assert one.communicate()[1] == b""
        assert one.returncode == 0


def test_an_object_that_was_altered_or_lost_is_named(lake: Uri) -> None:
    ref = put(join(lake, "a"), rows="1", more="2")
    found = store.manifest(ref.uri)
    assert found is not None
    rows = join(ref.uri, found.attempt, "rows")
    store.write_bytes(rows, b"9")
    with pytest.raises(ArtifactCorrupt, match="file 'rows' differs from the manifest"):
        store.read_ref(ref)
    store.remove(rows)
    with pytest.raises(ArtifactCorrupt, match="file 'rows' is missing"):
        store.read_ref(ref)
