from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from artifacts.faults import CredentialsRefused
from artifacts.refs import Uri
from artifacts.secret import OpenUrl, SecretRef, has_password, passwords_in, with_password, without_password
from artifacts.settings import ROOT
from artifacts.step import explain

URLS = [
    ("postgresql://mlflow:pa55@db:5432/mlflow", "postgresql://mlflow@db:5432/mlflow"),
    ("redis://:pa55@host:6379/0", "redis://host:6379/0"),
    ("https://user:pa55@mlflow.example/x?y=1", "https://user@mlflow.example/x?y=1"),
    ("postgresql://db/mlflow?user=me&password=pa55&sslmode=require", "postgresql://db/mlflow?user=me&sslmode=require"),
    ("https://host/x?TOKEN=pa55", "https://host/x"),
    ("https://bucket.example/a?X-Amz-Signature=pa55&v=1", "https://bucket.example/a?v=1"),
]
HARMLESS = [
    "sqlite:////var/mlflow.db",
    "s3://bucket/key",
    "https://user@host/x",
    "redis://host:6379/0",
    "/a/folder",
    "",
]


@pytest.mark.parametrize(("url", "open_url"), URLS)
def test_a_url_travels_without_its_password_and_gets_it_back_where_it_is_used(url: str, open_url: str) -> None:
    assert has_password(url)
    assert without_password(url) == open_url
    assert not has_password(open_url)
    assert with_password(open_url, url) == url
    assert with_password("https://elsewhere/x", url) == "https://elsewhere/x"
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(OpenUrl).validate_python(url)
    assert "pa55" not in caught.value.errors()[0]["msg"]
    assert "holds a password" in caught.value.errors()[0]["msg"]


@pytest.mark.parametrize("url", HARMLESS)
def test_what_holds_no_password_stays_as_it_is(url: str) -> None:
    assert not has_password(url)
    assert without_password(url) == url
    assert with_password(url, "postgresql://a:b@c/d") == url
    assert TypeAdapter(OpenUrl).validate_python(url) == url


@given(st.text())
def test_any_text_can_be_asked(text: str) -> None:
    assert not has_password(without_password(text)) or not has_password(text)


def test_what_a_spec_says_of_a_bad_url_does_not_repeat_the_password() -> None:
    class Spec(BaseModel):
        tracking_uri: OpenUrl
        output: Uri

    with pytest.raises(ValidationError) as caught:
        Spec(tracking_uri="postgresql://mlflow:pa55@db/mlflow", output="s3://key:pa55@bucket/a")
    lines = explain(caught.value, "spec.json")
    assert len(lines) == 2
    assert "pa55" not in "".join(lines)
    assert "spec.json: tracking_uri: 'postgresql://mlflow@db/mlflow' holds a password" in lines[0]
    assert "spec.json: output: 's3://key@bucket/a' held a password" in lines[1]


def test_passwords_are_found_wherever_they_stand() -> None:
    spec = {"a": {"b": ["x", "redis://:p@h/0"]}, "c": "https://h/?token=p", "d": 1, "e": None, "f": "https://h/"}
    assert passwords_in(spec) == ["a.b.1", "c"]


def test_a_secret_is_read_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_SECRET", "pa55")
    assert SecretRef(env="TOY_SECRET").value("x") == "pa55"
    path = tmp_path / "secret"
    path.write_text("pa55\n")
    ref = SecretRef(file=path)
    assert ref.value("x") == "pa55"
    path.write_text("rotated\n")
    assert ref.value("x") == "rotated"
    path.write_text("\n")
    with pytest.raises(CredentialsRefused, match=r"store 'lake': secret_key: .*/secret is empty"):
        ref.value("store 'lake': secret_key")
    path.unlink()
    with pytest.raises(CredentialsRefused, match=r"cannot be read \(FileNotFoundError\)"):
        ref.value("x")
    monkeypatch.delenv("TOY_SECRET")
    with pytest.raises(CredentialsRefused, match=r"x: \$TOY_SECRET is not set"):
        SecretRef(env="TOY_SECRET").value("x")


@pytest.mark.parametrize("value", ["pa55", {}, {"env": "A", "file": "/b"}, {"file": "b"}, {"value": "pa55"}])
def test_only_a_reference_is_a_reference(value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        SecretRef.model_validate(value)
    assert "pa55" not in str(caught.value)


def test_no_golden_file_holds_a_password() -> None:
    files = [path for path in (ROOT / "tests" / "golden").rglob("*") if path.is_file()]
    assert len(files) >= 10
    for path in files:
        for url in re.findall(r"[a-z0-9+]+://[^\s'\"]+", path.read_text()):
            assert not has_password(url), path
        if path.suffix == ".json":
            assert passwords_in(json.loads(path.read_text())) == [], path
