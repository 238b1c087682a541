"""The cache between real processes: one fetches and the rest wait, and a kill leaves nothing that is in the way."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from artifacts import store
from artifacts.faults import CacheFull
from artifacts.refs import Uri, join
from artifacts.settings import ROOT, settings
from tests.make.stores import declare, put
from tests.make.toy_step import wait_for


class Shelf(http.server.SimpleHTTPRequestHandler):
    """A web server's folder that counts what is asked for, and answers for a held name only once it is let go."""

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        with self.server.counting:
            self.server.asked[name] += 1
        if name in self.server.held:
            self.server.held[name].wait(60)
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), lambda *rest: Shelf(*rest, directory=str(folder)))
        self.asked: Counter[str] = Counter()
        self.held: dict[str, threading.Event] = {}
        self.counting = threading.Lock()


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "shelf") as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        for event in running.held.values():
            event.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def published(shelf: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Uri:
    """An artifact with two files behind the web server."""
    url = f"http://127.0.0.1:{shelf.server_port}"
    declare(monkeypatch, tmp_path / "cache", {"type": "http", "name": "shelf", "url": url})
    put((tmp_path / "shelf" / "a").as_uri(), one="1" * 1000, two="2" * 1000)
    return f"{url}/a"


READ = (
    "import sys; from artifacts import store; print(len(store.read(sys.argv[1]).file('two').read_text()), flush=True)"
)
HOLD = f"{READ}; sys.stdin.read()"


def reader(uri: Uri, code: str = READ, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, uri],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ".", **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_processes_that_want_the_same_fetch_it_once(shelf: Server, published: Uri) -> None:
    shelf.held["two"] = threading.Event()
    readers = [reader(published) for _ in range(3)]
    wait_for(lambda: shelf.asked["manifest.json"] == 3 and shelf.asked["two"] == 1)  # all of them are at it
    shelf.held["two"].set()
    for one in readers:
        assert one.communicate(timeout=60) == (b"1000\n", b"")
    assert dict(shelf.asked) == {"manifest.json": 3, "one": 1, "two": 1}


def test_a_reader_that_is_killed_blocks_nobody_and_its_work_is_used(shelf: Server, published: Uri) -> None:
    shelf.held["two"] = threading.Event()
    killed = reader(published)
    wait_for(lambda: shelf.asked["two"] == 1)
    killed.kill()
    killed.communicate()
    shelf.held["two"].set()
    assert reader(published).communicate(timeout=60) == (b"1000\n", b"")
    assert shelf.asked["one"] == 1
    (folder,) = [path for path in settings().cache_folder.iterdir() if path.is_dir() and path.name != "leases"]
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two"]


def test_what_a_living_process_has_open_is_not_evicted(
    shelf: Server, published: Uri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERENNIAL_CACHE_GB", "0.0000039")  # 3,900 bytes
    settings.cache_clear()
    put((tmp_path / "shelf" / "b").as_uri(), two="3" * 2000)
    holder = reader(published, HOLD)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"1000\n"
    with pytest.raises(CacheFull, match="are in use; raise PERENNIAL_CACHE_GB"):
        store.read(f"{published[:-1]}b")
    holder.kill()
    holder.communicate()
    assert store.read(f"{published[:-1]}b").file("two").stat().st_size == 2000


def test_a_damaged_copy_is_fetched_again_once_and_then_the_store_is_to_blame(
    shelf: Server, published: Uri, tmp_path: Path
) -> None:
    path = store.read(published).file("two")
    path.write_text("rotten")
    assert store.read(published).file("two").read_text() == "2" * 1000
    assert (shelf.asked["one"], shelf.asked["two"]) == (1, 2)
    path.write_text("rotten")
    (original,) = (tmp_path / "shelf" / "a").glob("attempt-*/two")
    original.write_text("rotten too")
    with pytest.raises(store.ArtifactCorrupt, match="file 'two' differs from the manifest"):
        store.read(published)
    assert shelf.asked["two"] == 3


def test_prefetched_artifacts_are_read_without_the_store(shelf: Server, published: Uri, tmp_path: Path) -> None:
    uris = [f"{published[:-1]}{day}" for day in "bcd"]
    for uri in uris:
        put((tmp_path / "shelf" / uri[-1]).as_uri(), two=uri)
    local = put((tmp_path / "shelf" / "e").as_uri(), two="local").uri
    assert set(store.prefetch([*uris, published, f"{published}-absent", local])) == {*uris, published}
    assert shelf.asked["two"] == 4
    assert [store.read(uri).file("two").read_text() for uri in uris] == uris
    assert shelf.asked["two"] == 4


def test_a_false_manifest_does_not_get_into_the_cache(shelf: Server, published: Uri, tmp_path: Path) -> None:
    path = tmp_path / "shelf" / "a" / "manifest.json"
    found = store.Manifest.model_validate_json(path.read_text())
    path.write_text(found.model_copy(update={"files": found.files[:1]}).model_dump_json())
    assert store.prefetch([published]) == ()
    assert shelf.asked["one"] == 0
    with pytest.raises(store.ArtifactCorrupt, match="does not fit its own file list"):
        store.read(published)
    path.write_text(path.read_text().replace('"one"', '"../one"'))
    with pytest.raises(store.ArtifactCorrupt, match="is no manifest"):
        store.read(published)


def test_a_mount_is_read_in_place_or_through_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = Path("/dev/shm")  # noqa: S108  the one mount that every Linux machine has
    uri = join(mount.as_uri(), f"perennial-{os.getpid()}")
    declared = {"type": "nfs", "name": "shared", "path": str(mount)}
    try:
        declare(monkeypatch, tmp_path / "cache", declared)
        ref = put(uri, rows="1")
        assert store.read_ref(ref).path.is_relative_to(mount)
        assert store.prefetch([uri]) == ()
        declare(monkeypatch, tmp_path / "cache", {**declared, "cache": True})
        found = store.read_ref(ref)
        assert found.path.is_relative_to(tmp_path / "cache")
        assert found.file("rows").read_text() == "1"
    finally:
        subprocess.run(["rm", "-r", str(mount / uri.rpartition("/")[2])], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_full(shelf: Server, published: Uri, tmp_path: Path, small_disk: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PERENNIAL_CACHE_GB", "1")
    declare(monkeypatch, small_disk, *json.loads(os.environ["PERENNIAL_STORES"]))
    urls = {name: f"{published[:-1]}{name}" for name in ("b", "c", "huge")}
    put((tmp_path / "shelf" / "b").as_uri(), rows=b"b" * 150_000)
    put((tmp_path / "shelf" / "c").as_uri(), rows=b"c" * 150_000)
    put((tmp_path / "shelf" / "huge").as_uri(), rows=b"h" * 500_000)
    code = "import sys; from artifacts import store; store.read(sys.argv[1])"
    assert reader(urls["b"], code).communicate(timeout=60) == (b"", b"")
    assert store.read(urls["c"]).file("rows").stat().st_size == 150_000  # b had to go
    with pytest.raises(CacheFull, match=r"the disk is full .* put PERENNIAL_CACHE on another disk") as caught:
        store.read(urls["huge"])
    assert "\n" not in str(caught.value)
