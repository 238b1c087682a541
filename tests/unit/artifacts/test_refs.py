from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from artifacts.refs import (
    OnlineStore,
    Ref,
    Uri,
    canonical,
    code_digest,
    file_uri,
    folder_digest,
    join,
    key_digest,
    local_path,
    sha256,
    short,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("text", ["relative/path", "/absolute", "s3:", "s3://bucket/key/", "file://"])
def test_what_is_no_absolute_uri_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Uri).validate_python(text)


@pytest.mark.parametrize("text", ["s3://bucket/key", "file:///a/b", "memory://x"])
def test_absolute_uris_are_kept(text: str) -> None:
    assert TypeAdapter(Uri).validate_python(text) == text


def test_a_path_survives_the_way_through_a_uri(tmp_path: Path) -> None:
    path = tmp_path / "with space and ü%"
    assert local_path(file_uri(path)) == path
    assert local_path("s3://bucket/key") is None
    assert join("s3://bucket/a", "b/", "/c") == "s3://bucket/a/b/c"


@settings(deadline=None)  # a busy machine is no fault
@given(JSON)
def test_canonical_text_does_not_depend_on_the_order_of_fields(value: object) -> None:
    def turned(item: object) -> object:
        if isinstance(item, dict):
            return {key: turned(item[key]) for key in reversed(list(item))}
        return [turned(one) for one in item] if isinstance(item, list) else item

    assert canonical(value) == canonical(turned(value))


def test_canonical_text_refuses_what_has_no_one_form() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"loss": float("nan")})
    with pytest.raises(TypeError, match="Path has no canonical"):
        canonical({"where": type("Path", (), {})()})


def test_models_and_sets_have_a_canonical_form() -> None:
    class Point(BaseModel):
        x: int

    assert canonical({"p": Point(x=1)}) == '{"p":{"x":1}}'
    assert canonical(frozenset({"b", "a"})) == '["a","b"]'


def test_a_folder_digest_sees_names_sizes_and_content_but_not_order() -> None:
    one, two = ("a", 1, sha256(b"a")), ("b", 1, sha256(b"b"))
    assert folder_digest([one, two]) == folder_digest([two, one])
    assert folder_digest([one]) != folder_digest([one, two])
    assert folder_digest([one]) != folder_digest([("c", 1, sha256(b"a"))])


def test_a_key_changes_with_every_part() -> None:
    key = key_digest({"spec": {"seed": 1}, "code": "x"})
    assert key != key_digest({"spec": {"seed": 2}, "code": "x"})
    assert len(short(key)) == 12
    assert key.startswith(f"sha256:{short(key)}")


def test_the_code_digest_follows_the_code_and_the_lock(tmp_path: Path) -> None:
    (tmp_path / "training" / "models").mkdir(parents=True)
    code, lock = tmp_path / "training" / "models" / "m.py", tmp_path / "lock.txt"
    code.write_text("x = 1\n")
    lock.write_text("a==1\n")
    (tmp_path / "training" / "notes.txt").write_text("no code")
    before = code_digest(tmp_path, ["training"], ["lock.txt"])
    (tmp_path / "training" / "notes.txt").write_text("still no code")
    assert code_digest(tmp_path, ["training"], ["lock.txt"]) == before
    lock.write_text("a==2\n")
    changed = code_digest(tmp_path, ["training"], ["lock.txt"])
    code.write_text("x = 2\n")
    assert len({before, changed, code_digest(tmp_path, ["training"], ["lock.txt"])}) == 3


def test_a_reference_without_a_real_digest_is_refused() -> None:
    with pytest.raises(ValidationError):
        Ref(uri="s3://bucket/key", digest="sha256:abc")


def test_canonical_form_of_times_does_not_depend_on_their_zone() -> None:
    noon = dt.datetime(2013, 8, 31, 12, tzinfo=dt.UTC)
    same = noon.astimezone(dt.timezone(dt.timedelta(hours=-4)))
    assert canonical({"at": noon, "day": noon.date()}) == canonical({"at": same, "day": dt.date(2013, 8, 31)})


@pytest.mark.parametrize("online", ["/state/online", "online", "redis://cache:6379/0", "rediss://ann@cache"])
def test_an_online_store_is_a_folder_or_a_server(online: str) -> None:
    assert TypeAdapter(OnlineStore).validate_python(online) == online


@pytest.mark.parametrize(
    ("online", "fault"),
    [
        ("redis://:hush@cache", "set PERENNIAL_ONLINE_PASSWORD instead"),
        ("rediss://ann:hush@cache:7000/2", "set PERENNIAL_ONLINE_PASSWORD instead"),
        ("http://cache", "is neither"),
        ("redis://", "is neither"),
    ],
)
def test_another_online_store_is_refused(online: str, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        TypeAdapter(OnlineStore).validate_python(online)
