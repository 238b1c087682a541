from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from artifacts.refs import Ref, Uri, file_uri, join, local_path, sha256
from artifacts.store import (
    ArtifactCorrupt,
    ArtifactMissing,
    Draft,
    children,
    exists,
    manifest,
    objects,
    publish,
    read,
    read_bytes,
    read_ref,
    remove,
    remove_all,
    write_bytes,
)


@pytest.fixture(params=["file", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Uri:
    """A root on a local disk, and one on an object store (fsspec's, which has puts and no renames)."""
    return file_uri(tmp_path / "store") if request.param == "file" else f"memory://bucket-{uuid.uuid4().hex}"


def put(uri: Uri, **files: str) -> Ref:
    with publish(uri, "toy") as draft:
        for name, content in files.items():
            path = draft.path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        draft.facts["files"] = len(files)
    assert draft.manifest is not None
    return Ref(uri=uri, digest=draft.manifest.digest)


def test_what_is_published_is_read_back(root: Uri) -> None:
    ref = put(join(root, "a"), rows="1,2", sub__more="3")
    found = read_ref(ref)
    assert found.file("rows").read_text() == "1,2"
    assert found.file("sub/more").read_text() == "3"
    assert found.manifest.facts == {"files": 2}
    assert {entry.path: entry.size for entry in found.manifest.files} == {"rows": 3, "sub/more": 1}
    with pytest.raises(ArtifactMissing, match="no file 'other'"):
        found.file("other")


def test_the_digest_is_of_the_content_not_of_the_attempt(root: Uri) -> None:
    assert put(join(root, "a"), rows="1").digest == put(join(root, "b"), rows="1").digest
    assert put(join(root, "a"), rows="1").digest != put(join(root, "b"), rows="2").digest


@pytest.mark.covers("field-reports 44")
def test_nothing_is_published_when_the_block_raises(root: Uri) -> None:
    ref = put(join(root, "a"), rows="old")
    drafts: list[Draft] = []

    def write() -> None:
        with publish(join(root, "a"), "toy") as draft:
            drafts.append(draft)
            (draft.path / "rows").write_text("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert not drafts[0].path.exists()
    assert read_ref(ref).file("rows").read_text() == "old"


def test_a_new_version_replaces_the_old_and_old_references_are_refused(root: Uri) -> None:
    old = put(join(root, "a"), rows="old")
    new = put(join(root, "a"), rows="new")
    assert read(old.uri).file("rows").read_text() == "new"
    assert read_ref(new).manifest.digest == new.digest
    with pytest.raises(ArtifactCorrupt, match="the reference says"):
        read_ref(old)


def test_what_was_never_published_is_missing(root: Uri) -> None:
    assert manifest(join(root, "nothing")) is None
    with pytest.raises(ArtifactMissing, match="run the step that makes it"):
        read(join(root, "nothing"))


def test_only_published_children_are_listed(root: Uri) -> None:
    put(join(root, "days", "2013-08-31"), rows="1")
    put(join(root, "days", "2013-08-30"), rows="1")
    write_bytes(join(root, "days", "2013-09-01", "attempt-x", "rows"), b"half")
    assert children(join(root, "days")) == ("2013-08-30", "2013-08-31")
    assert children(join(root, "none")) == ()


@pytest.mark.parametrize("content", [b"", b"{", b'{"kind": "toy"}', b"[]", b"\xff\xfe"])
def test_a_damaged_manifest_is_corrupt_not_missing(root: Uri, content: bytes) -> None:
    put(join(root, "a"), rows="1")
    write_bytes(join(root, "a", "manifest.json"), content)
    with pytest.raises(ArtifactCorrupt, match="is no manifest"):
        read(join(root, "a"))


def test_a_manifest_that_was_edited_is_corrupt(root: Uri) -> None:
    ref = put(join(root, "a"), rows="1")
    where = join(root, "a", "manifest.json")
    write_bytes(where, read_bytes(where).replace(ref.digest.encode(), sha256(b"other").encode()))
    with pytest.raises(ArtifactCorrupt, match="does not fit its own file list"):
        read(join(root, "a"))


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_file_is_corrupt(tmp_path: Path, damage: str) -> None:
    ref = put(file_uri(tmp_path / "a"), rows="1,2,3")
    path = read_ref(ref).file("rows")
    if damage == "gone":
        path.unlink()
    else:
        path.write_text("1,2,4" if damage == "changed" else "1,2")
    with pytest.raises(ArtifactCorrupt, match="file 'rows' is missing or differs"):
        read_ref(ref)


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_damaged_object_is_corrupt_too(damage: str) -> None:
    import fsspec

    uri = f"memory://bucket-{uuid.uuid4().hex}/a"
    ref = put(uri, rows=uuid.uuid4().hex)  # content that no other test has left in the cache of fetched files
    found = manifest(uri)
    assert found is not None
    filesystem = fsspec.filesystem("memory")
    where = f"{uri.removeprefix('memory:/')}/{found.attempt}/rows"
    if damage == "gone":
        filesystem.rm_file(where)
    else:
        filesystem.pipe_file(where, b"x" * 32)
    with pytest.raises(ArtifactCorrupt):
        read_ref(ref)


def test_single_objects_are_replaced_and_removed(root: Uri) -> None:
    where = join(root, "records", "one.json")
    assert not exists(where)
    with pytest.raises(FileNotFoundError):
        read_bytes(where)
    write_bytes(where, b"1")
    write_bytes(where, b"2")
    assert read_bytes(where) == b"2"
    remove(where)
    remove(where)
    assert not exists(where)


def test_writing_leaves_no_temporary_files(tmp_path: Path) -> None:
    write_bytes(file_uri(tmp_path / "one.json"), b"1")
    put(file_uri(tmp_path / "a"), rows="1")
    assert not list(tmp_path.rglob(".*"))


def test_a_published_folder_holds_one_attempt_and_its_manifest(tmp_path: Path) -> None:
    ref = put(file_uri(tmp_path / "a"), rows="1")
    path = local_path(ref.uri)
    assert path is not None
    assert sorted(one.name.partition("-")[0] for one in path.iterdir()) == ["attempt", "manifest.json"]


def test_all_objects_below_are_listed_and_removed(root: Uri) -> None:
    for name in ("a/2", "a/1", "a/sub/3", "ab"):
        write_bytes(join(root, name), name.encode())
    assert objects(join(root, "a")) == ("1", "2", "sub/3")
    remove_all(join(root, "a"))
    remove_all(join(root, "a"))
    assert objects(join(root, "a")) == ()
    assert objects(root) == ("ab",)
