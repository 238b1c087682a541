from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError

from artifacts.data_store import DataStore, check_address, store_of
from artifacts.faults import BadAddress
from artifacts.settings import Settings

S3 = {
    "type": "s3",
    "name": "lake",
    "bucket": "perennial",
    "prefix": "flights/v1",
    "endpoint": "https://s3.example:9000",
    "access_key": {"env": "LAKE_KEY"},
    "secret_key": {"file": "/run/secrets/lake"},
}
ALL: tuple[dict[str, Any], ...] = (
    S3,
    {"type": "s3", "name": "models", "bucket": "models", "region": "eu-west-1", "read_only": True},
    {"type": "file", "name": "scratch", "path": "/scratch"},
    {"type": "nfs", "name": "shared", "path": "/mnt/shared", "cache": True},
    {"type": "http", "name": "hub", "url": "https://hub.example/models", "token": {"env": "HUB_TOKEN"}},
)


def parsed(*stores: dict[str, Any]) -> tuple[DataStore, ...]:
    hidden = ConfigDict(hide_input_in_errors=True)  # as the settings have it
    return TypeAdapter(tuple[DataStore, ...], config=hidden).validate_python(stores)


def test_each_type_has_its_root() -> None:
    assert [store.root for store in parsed(*ALL)] == [
        "s3://perennial/flights/v1",
        "s3://models",
        "file:///scratch",
        "file:///mnt/shared",
        "https://hub.example/models",
    ]
    assert parsed(ALL[4])[0].read_only


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("s3://perennial/flights/v1/days/2013-09-01", "lake"),
        ("s3://perennial/flights/v1", "lake"),
        ("s3://perennial/flights/v1b", "bucket"),
        ("s3://perennial/other", "bucket"),
        ("s3://perennial2/other", None),
        ("file:///mnt/shared/a", "shared"),
        ("file:///mnt/sharedfolder/a", None),
        ("https://hub.example/models/a", "hub"),
        ("http://hub.example/models/a", None),
    ],
)
def test_the_longest_root_wins_and_ends_at_a_slash(uri: str, name: str | None) -> None:
    stores = parsed(*ALL, {"type": "s3", "name": "bucket", "bucket": "perennial"})
    for order in (stores, stores[::-1]):
        found = store_of(uri, order)
        assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"prefix": "a/"}, "prefix", "ends in a slash"),
        ({"prefix": "/a"}, "prefix", "begins or ends in a slash"),
        ({"prefix": "a//b"}, "prefix", "two in a row"),
        ({"endpoint": "https://s3.example/"}, "endpoint", "write it without the slash"),
        ({"endpoint": "s3.example:9000"}, "endpoint", "write http://host:port"),
        ({"endpoint": "https://key:pa55@s3.example"}, "endpoint", "without user, password"),
        ({"bucket": "s3://perennial"}, "bucket", "String should match pattern"),
        ({"bucket": "perennial/"}, "bucket", "String should match pattern"),
        ({"secret_key": None}, "", "access_key and secret_key go together"),
        ({"secret_key": "pa55"}, "secret_key", 'write {"env": "NAME"}'),
        ({"secret": "pa55"}, "secret", "Extra inputs are not permitted"),
        ({"name": "Lake 1"}, "name", "String should match pattern"),
    ],
)
def test_a_wrong_declaration_names_the_field_and_the_fix(changes: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parsed({**S3, **changes})
    (fault,) = caught.value.errors()
    assert ".".join(str(part) for part in fault["loc"]) == f"0.s3.{field}".rstrip(".")
    assert says in fault["msg"]
    assert "pa55" not in str(caught.value)


def test_declarations_come_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().stores == ()
    monkeypatch.setenv("PERENNIAL_STORES", json.dumps(ALL))
    stores = Settings().stores
    assert [store.name for store in stores] == ["lake", "models", "scratch", "shared", "hub"]
    path = tmp_path / "stores.json"
    path.write_text(json.dumps(ALL))
    monkeypatch.setenv("PERENNIAL_STORES", str(path))
    assert Settings().stores == stores
    monkeypatch.setenv("PERENNIAL_STORES", Settings().stores_json)  # what a pod gets
    assert Settings().stores == stores
    monkeypatch.setenv("PERENNIAL_STORES", "")
    assert Settings().stores == ()
    assert Settings().stores_json == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[{", "is no JSON"),
        ("/absent/stores.json", "/absent/stores.json: cannot be read (FileNotFoundError)"),
        (json.dumps([S3, S3]), "two stores have the name 'lake'"),
        (json.dumps([S3, {**S3, "name": "other"}]), "two stores have the root 's3://perennial/flights/v1'"),
        (json.dumps([{**S3, "secret_key": "pa55"}]), "a secret itself stands here"),
        (json.dumps([{"type": "ftp", "name": "x"}]), "does not match any of the expected tags"),
    ],
)
def test_settings_that_are_wrong_say_so_without_a_secret(text: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERENNIAL_STORES", text)
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert says in str(caught.value)
    assert "pa55" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "fixed"),
    [
        ("s3://bucket/a/", "s3://bucket/a"),
        ("s3://bucket/a//b", "s3://bucket/a/b"),
        ("s3://bucket/", "s3://bucket"),
        ("file:///a/b/", "file:///a/b"),
    ],
)
def test_a_slash_too_many_is_told_with_the_right_uri(uri: str, fixed: str) -> None:
    with pytest.raises(BadAddress) as caught:
        check_address(uri)
    assert str(caught.value).endswith(f"write '{fixed}'")


def test_right_addresses_pass() -> None:
    for uri in ("s3://bucket", "s3://bucket/a/b", "file:///a", "http://127.0.0.1:80/a", "memory://x/y"):
        check_address(uri)
