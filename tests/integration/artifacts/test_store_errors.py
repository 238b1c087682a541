"""Each mistake with a store has an error of its own: one line, with the store's name and the fix, and never a secret."""

from __future__ import annotations

import datetime as dt
import http.server
import ipaddress
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import s3fs

from artifacts import store
from artifacts.faults import (
    BadAddress,
    BucketMissing,
    ClockSkewed,
    CredentialsExpired,
    CredentialsRefused,
    ReadOnlyStore,
    StoreAway,
    StoreRefused,
)
from artifacts.refs import Uri, join
from tests.make import s3
from tests.make.stores import declare, put

ASKS: tuple[Callable[[Uri], Any], ...] = (
    lambda uri: store.read_bytes(join(uri, "one")),
    lambda uri: store.exists(join(uri, "one")),
    lambda uri: store.write_bytes(join(uri, "one"), b"1"),
    lambda uri: store.remove(join(uri, "one")),
    store.manifest,
    store.read,
    store.children,
    lambda uri: put(uri, rows="1"),
    lambda uri: store.prefetch([uri]),
)
SECRETS = (s3.SECRET, s3.READER_SECRET, "wrong-secret", "the-token", "bearer-secret")


def refused(kind: type[Exception], ask: Callable[[], Any], *says: str) -> None:
    """The call raises exactly this class, in one line that says all this, with nothing of a client's or a secret's in it."""
    with pytest.raises((StoreRefused, StoreAway)) as caught:
        ask()
    assert type(caught.value) is kind, caught.value
    text = str(caught.value)
    assert "\n" not in text
    for word in says:
        assert word in text
    shown = "".join(traceback.format_exception(caught.value))
    assert "botocore" not in shown
    assert "aiohttp" not in shown
    assert not [secret for secret in SECRETS if secret in shown]


def test_a_missing_bucket(s3_server: s3.Server, lake: Uri, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    declare(monkeypatch, tmp_path / "cache", s3_server.store(bucket="nowhere"), **s3_server.env())
    for ask in ASKS:
        refused(
            BucketMissing,
            lambda ask=ask: ask("s3://nowhere/a"),
            *(
                "store 'lake'",
                "bucket 'nowhere' does not exist",
                s3_server.endpoint,
                "create it, or correct",
                "s3://nowhere/a",
            ),
        )


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"LAKE_SECRET": "wrong-secret"}, ("credentials are wrong", "$LAKE_KEY", "$LAKE_SECRET")),
        ({"LAKE_KEY": "nobody"}, ("credentials are wrong", "$LAKE_KEY", "$LAKE_SECRET")),
        ({"LAKE_SECRET": ""}, ("secret_key: $LAKE_SECRET is not set",)),
    ],
)
def test_wrong_credentials(
    s3_server: s3.Server,
    lake: Uri,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    env: dict[str, str],
    says: tuple[str],
) -> None:
    declare(monkeypatch, tmp_path / "cache", s3_server.store(), **{**s3_server.env(), **env})
    for ask in ASKS:
        refused(CredentialsRefused, lambda ask=ask: ask(lake), "store 'lake'", *says)


def test_credentials_that_may_only_read(s3_server: s3.Server, lake: Uri, monkeypatch: Any, tmp_path: Path) -> None:
    put(join(lake, "a"), rows="1")
    declare(monkeypatch, tmp_path / "cache", s3_server.store(), LAKE_KEY=s3.READER_KEY, LAKE_SECRET=s3.READER_SECRET)
    assert store.read(join(lake, "a")).file("rows").read_text() == "1"
    refused(CredentialsRefused, lambda: put(join(lake, "a"), rows="2"), "access is denied", "what they may do")
    refused(CredentialsRefused, lambda: store.remove(join(lake, "a", "manifest.json")), "access is denied")


def test_no_credentials_at_all(s3_server: s3.Server, lake: Uri, monkeypatch: Any, tmp_path: Path) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    declare(
        monkeypatch,
        tmp_path / "cache",
        s3_server.store(access_key=None, secret_key=None),
        AWS_EC2_METADATA_DISABLED="true",
    )
    refused(CredentialsRefused, lambda: store.read(lake), "store 'lake'", "wrong or absent", "environment gives")
    declare(monkeypatch, tmp_path / "cache", AWS_ENDPOINT_URL=s3_server.endpoint)
    refused(CredentialsRefused, lambda: store.read(lake), "s3://perennial (no declared store)", "PERENNIAL_STORES")


def test_the_environments_own_credentials_open_what_is_not_declared(
    s3_server: s3.Server, lake: Uri, monkeypatch: Any, tmp_path: Path
) -> None:
    ref = put(join(lake, "a"), rows="1")
    s3fs.S3FileSystem.clear_instance_cache()  # a process reads its environment's own credentials once
    keys = {"AWS_ACCESS_KEY_ID": s3.KEY, "AWS_SECRET_ACCESS_KEY": s3.SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    declare(monkeypatch, tmp_path / "cache", AWS_ENDPOINT_URL=s3_server.endpoint, **keys)
    assert store.read_ref(ref).file("rows").read_text() == "1"


def test_a_server_that_is_not_there(s3_server: s3.Server, lake: Uri, monkeypatch: Any, tmp_path: Path) -> None:
    (port,) = s3.free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    declare(monkeypatch, tmp_path / "cache", s3_server.store(endpoint=endpoint), **s3_server.env())
    refused(StoreAway, lambda: store.read(lake), "store 'lake'", endpoint, "does not answer", "is it up")
    refused(StoreAway, lambda: put(lake, rows="1"), "store 'lake'", endpoint, "does not answer")


def test_a_clock_that_is_wrong(lake: Uri, monkeypatch: Any) -> None:
    import botocore.auth

    put(join(lake, "a"), rows="1")
    now = botocore.auth.get_current_datetime
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *a, **k: now(*a, **k) - dt.timedelta(hours=2))
    refused(ClockSkewed, lambda: store.read(join(lake, "a")), "store 'lake'", "clock", "NTP")


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers every request with what its server holds: a status and a body."""

    def answer(self) -> None:
        status, body = self.server.answer  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = answer  # noqa: N815  the names that http.server looks for

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def answers() -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def s3_error(code: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'.encode()


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (400, "ExpiredToken", CredentialsExpired, "renew session_token"),
        (403, "RequestTimeTooSkewed", ClockSkewed, "NTP"),
        (403, "InvalidAccessKeyId", CredentialsRefused, "check access_key ($LAKE_KEY)"),
        (301, "PermanentRedirect", StoreRefused, "'region'"),
        (503, "SlowDown", StoreAway, "busy"),
        (500, "InternalError", StoreAway, "busy"),
        (502, "BadGateway", StoreAway, "busy or broken"),
        (400, "SomethingNew", StoreRefused, "the request is refused (SomethingNew"),
    ],
)
def test_what_s3_says(
    answers: Any, s3_server: s3.Server, monkeypatch: Any, tmp_path: Path, status: int, code: str, kind: type, says: str
) -> None:
    """Codes that a healthy server does not give, from one that gives nothing else."""
    monkeypatch.setattr("artifacts.remote.ATTEMPTS", 1)
    answers.answer = status, s3_error(code)
    declared = s3_server.store(
        endpoint=f"http://127.0.0.1:{answers.server_port}", session_token={"file": str(tmp_path / "token")}
    )
    (tmp_path / "token").write_text("the-token\n")
    declare(monkeypatch, tmp_path / "cache", declared, **s3_server.env())
    refused(kind, lambda: store.read("s3://perennial/a"), "store 'lake'", says)


def certificate(folder: Path) -> Path:
    """A certificate of 127.0.0.1 that vouches for itself, with its key, in one PEM file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    made = (
        x509
        .CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2120, 1, 1, tzinfo=dt.UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    pem = serialization.Encoding.PEM
    own = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(own + made.public_bytes(pem))
    return path


def test_a_certificate_has_to_be_trusted(answers: Any, s3_server: s3.Server, monkeypatch: Any, tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    answers.socket = context.wrap_socket(answers.socket, server_side=True)
    answers.answer = 404, s3_error("NoSuchKey")
    declared = s3_server.store(endpoint=f"https://127.0.0.1:{answers.server_port}")
    declare(monkeypatch, tmp_path / "cache", declared, **s3_server.env())
    refused(StoreRefused, lambda: store.read("s3://perennial/a"), "store 'lake'", "is not trusted; set 'ca_file'")
    declare(monkeypatch, tmp_path / "cache", {**declared, "ca_file": str(pem)}, **s3_server.env())
    with pytest.raises(store.ArtifactMissing):
        store.read("s3://perennial/a")


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (401, CredentialsRefused, "credentials are wrong or absent; check token ($MODELS_TOKEN)"),
        (403, CredentialsRefused, "access is denied; check token ($MODELS_TOKEN)"),
        (429, StoreAway, "busy"),
        (500, StoreAway, "busy or broken"),
        (410, StoreRefused, "the request is refused (410"),
    ],
)
def test_what_http_says(answers: Any, monkeypatch: Any, tmp_path: Path, status: int, kind: type, says: str) -> None:
    answers.answer = status, b"bearer-secret"
    url = f"http://127.0.0.1:{answers.server_port}/models"
    declared = {"type": "http", "name": "models", "url": url, "token": {"env": "MODELS_TOKEN"}}
    declare(monkeypatch, tmp_path / "cache", declared, **{"MODELS_TOKEN": "bearer-secret"})
    refused(kind, lambda: store.read(f"{url}/a"), "store 'models'", says, f"{url}/a")


def test_a_web_server_that_is_not_there_or_has_nothing(answers: Any, monkeypatch: Any, tmp_path: Path) -> None:
    (port,) = s3.free_ports(1)
    declare(monkeypatch, tmp_path / "cache")
    url = f"http://127.0.0.1:{port}"
    refused(StoreAway, lambda: store.read(f"{url}/a"), f"{url} (no declared store)", "does not answer")
    answers.answer = 404, b""
    with pytest.raises(store.ArtifactMissing, match="nothing has been published here"):
        store.read(f"http://127.0.0.1:{answers.server_port}/a")
    refused(StoreRefused, lambda: store.children(f"{url}/days"), "cannot be listed over HTTP")


def test_a_store_that_is_read_only(s3_server: s3.Server, lake: Uri, monkeypatch: Any, tmp_path: Path) -> None:
    ref = put(join(lake, "a"), rows="1")
    folder = tmp_path / "files"
    put(folder.as_uri(), rows="1")
    declare(
        monkeypatch,
        tmp_path / "cache",
        s3_server.store(read_only=True),
        {"type": "file", "name": "golden", "path": str(folder), "read_only": True},
        {"type": "http", "name": "models", "url": "http://127.0.0.1:9/models"},
        **s3_server.env(),
    )
    assert store.read_ref(ref).file("rows").read_text() == "1"
    assert store.read(folder.as_uri()).file("rows").read_text() == "1"
    for name, uri in (("lake", lake), ("golden", folder.as_uri()), ("models", "http://127.0.0.1:9/models/a")):
        for write in (
            lambda uri=uri: put(join(uri, "b"), rows="1"),
            lambda uri=uri: store.write_bytes(join(uri, "b"), b""),
            lambda uri=uri: store.remove(join(uri, "manifest.json")),
        ):
            refused(ReadOnlyStore, write, f"store '{name}'", "read-only", "PERENNIAL_STORE")


def test_an_unmounted_nfs_store(monkeypatch: Any, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    folder.mkdir()
    declare(monkeypatch, tmp_path / "cache", {"type": "nfs", "name": "shared", "path": str(folder)})
    for ask in ASKS:
        refused(StoreAway, lambda ask=ask: ask(f"{folder.as_uri()}/a"), "store 'shared'", f"mounted at {folder}")
    assert not list(folder.iterdir())


@pytest.mark.parametrize("uri", ["s3://perennial/a/", "s3://perennial//a", "file:///tmp/a/", "http://127.0.0.1:9/a/"])
def test_a_slash_too_many(monkeypatch: Any, tmp_path: Path, uri: str) -> None:
    declare(monkeypatch, tmp_path / "cache")
    for ask in (store.manifest, store.read_bytes, store.children, store.exists, store.remove):
        if ask is store.manifest:
            continue  # it asks for manifest.json below
        refused(BadAddress, lambda ask=ask: ask(uri), f"'{uri}'", "ends in a slash or has two in a row", "write '")
    refused(BadAddress, lambda: put(uri, rows="1"), f"'{uri}'")
    refused(BadAddress, lambda: store.read(uri), f"'{uri}'")
