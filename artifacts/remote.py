"""Objects that do not lie on this machine: the one place that talks to fsspec, and tells its errors in our own words."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from artifacts.data_store import DataStore, HttpStore, S3Store
from artifacts.faults import (
    BucketMissing,
    ClockSkewed,
    CredentialsExpired,
    CredentialsRefused,
    StoreAway,
    StoreRefused,
)
from artifacts.refs import Uri

PART_BYTES = 8 << 20  # a part of a large object in memory
PARTS_AT_ONCE = 4
CONNECT_SECONDS = 10
READ_SECONDS = 60  # without a byte
ATTEMPTS = 4  # within one request, by the client; after that it is the step's retry

MISSING_BUCKET = frozenset({"NoSuchBucket"})
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
SKEWED = frozenset({"RequestTimeTooSkewed"})
UNKNOWN_KEYS = frozenset({
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidClientTokenId", "InvalidToken", "401", "AccountProblem"),
    *("NoCredentialsError", "PartialCredentialsError", "AuthorizationHeaderMalformed", "NoAuthTokenError"),
})
FORBIDDEN = frozenset({"AccessDenied", "AllAccessDisabled", "InvalidObjectState", "403", "Forbidden"})
ELSEWHERE = frozenset({"PermanentRedirect", "301", "IllegalLocationConstraintException"})
UNTRUSTED = frozenset({"SSLCertVerificationError", "ClientConnectorCertificateError"})
BUSY = frozenset({
    *("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "OperationAborted", "429"),
    *(str(status) for status in range(500, 600)),
})
UNREACHABLE = frozenset({
    *(
        "SSLError",
        "ClientConnectorSSLError",
        "EndpointConnectionError",
        "HTTPClientError",
        "ClientConnectionError",
        "ClientPayloadError",
        "ConnectionError",
    ),
    *("TimeoutError", "gaierror", "IncompleteRead", "ResponseStreamingError"),
})
"""S3's error codes, HTTP's statuses and the names of the clients' exceptions, by what can be done about them."""


@dataclass(frozen=True)
class Place:
    """One URI, with the file system that opens it."""

    uri: Uri
    store: DataStore | None
    filesystem: Any
    where: str

    @property
    def title(self) -> str:
        """What errors call the store."""
        parts = urlsplit(self.uri)
        return f"store '{self.store.name}'" if self.store else f"{parts.scheme}://{parts.netloc} (no declared store)"

    @property
    def address(self) -> str:
        """Which server is meant."""
        if isinstance(self.store, S3Store):
            return self.store.endpoint or "AWS"
        return urlsplit(self.uri).netloc

    @property
    def keys(self) -> str:
        """Where its credentials come from."""
        if isinstance(self.store, S3Store) and self.store.access_key:
            return f"access_key ({self.store.access_key}) and secret_key ({self.store.secret_key})"
        if isinstance(self.store, HttpStore) and self.store.token:
            return f"token ({self.store.token})"
        if isinstance(self.store, HttpStore):
            return "token (none is declared)"
        return "what this machine's environment gives (or declare the store in PERENNIAL_STORES)"


def place_of(uri: Uri, store: DataStore | None) -> Place:
    """Opens the file system of a URI; raises CredentialsRefused when a declared secret is not where it should be."""
    import fsspec  # noqa: PLC0415  every DAG file and task imports this module, and on local disks none needs it

    scheme = urlsplit(uri).scheme
    options: dict[str, Any] = {}
    if scheme == "s3":
        options = _s3_options(store if isinstance(store, S3Store) else None)
    elif scheme in {"http", "https"}:
        options = _http_options(store if isinstance(store, HttpStore) else None)
    filesystem = fsspec.filesystem(scheme, **options)
    return Place(uri, store, filesystem, filesystem._strip_protocol(uri))


def _s3_options(store: S3Store | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "use_listings_cache": False,  # another process may have published since
        "max_concurrency": 1,  # reads then ask once, and the error says why; large files say more where they are moved
        "config_kwargs": {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": {"max_attempts": ATTEMPTS, "mode": "standard"},
        },
    }
    if store is None:
        return options
    title = f"store '{store.name}'"
    secrets = {"key": store.access_key, "secret": store.secret_key, "token": store.session_token}
    fields = {"key": "access_key", "secret": "secret_key", "token": "session_token"}
    options |= {word: one.value(f"{title}: {fields[word]}") for word, one in secrets.items() if one is not None}
    client = {"region_name": store.region, "verify": str(store.ca_file) if store.ca_file else None}
    options["client_kwargs"] = {word: value for word, value in client.items() if value}
    return options | ({"endpoint_url": store.endpoint} if store.endpoint else {})


def _http_options(store: HttpStore | None) -> dict[str, Any]:
    import aiohttp  # noqa: PLC0415  as fsspec

    limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
    options: dict[str, Any] = {"client_kwargs": {"timeout": limits}}
    if store is not None and store.token is not None:
        token = store.token.value(f"store '{store.name}': token")
        options["headers"] = {"Authorization": f"Bearer {token}"}
    return options


def read(place: Place) -> bytes:
    """The content of one object; raises FileNotFoundError when it is not there."""
    with told(place):
        return bytes(place.filesystem.cat_file(place.where))


def exists(place: Place) -> bool:
    """Whether one object is there. Asks for its first byte, since a HEAD cannot say that the bucket is missing."""
    try:
        with told(place):
            try:
                place.filesystem.cat_file(place.where, start=0, end=1)
            except Exception as error:
                if not words_of(error) & {"InvalidRange", "416"}:  # an empty object has no first byte
                    raise
    except FileNotFoundError:
        return False
    return True


def write(place: Place, content: bytes) -> None:
    """Puts one object; a reader sees the old content or the new."""
    with told(place):
        place.filesystem.pipe_file(place.where, content)


def remove(place: Place) -> None:
    """Removes one object; nothing happens when it is not there."""
    with suppress(FileNotFoundError), told(place):
        place.filesystem.rm_file(place.where)


def upload(place: Place, name: str, source: Path) -> None:
    """Puts a local file below a place, in parts when it is large."""
    with told(place):
        place.filesystem.put_file(str(source), f"{place.where}/{name}", **_parts(place))


def download(place: Place, name: str, target: Path) -> None:
    """Writes an object below a place into a local file, in parts when it is large; raises FileNotFoundError."""
    with told(place):
        place.filesystem.get_file(f"{place.where}/{name}", str(target), **_parts(place))


def below(place: Place) -> dict[str, int]:
    """Every object below a place, by its path from there, with its size in bytes; nothing below is no error."""
    if urlsplit(place.uri).scheme in {"http", "https"}:
        raise StoreRefused(f"{place.title}: {place.uri} cannot be listed over HTTP; name the artifact by its own URI")
    with told(place):
        found = place.filesystem.find(place.where, detail=True)
    start = len(place.where.rstrip("/")) + 1
    files = {path[start:]: int(entry["size"]) for path, entry in found.items() if entry["type"] == "file"}
    return {name: size for name, size in files.items() if name and not name.endswith("/")}  # else a marker of a folder


def modified(place: Place) -> dt.datetime:
    """When an object was last put; raises FileNotFoundError when it is not there."""
    with told(place):
        found: dt.datetime = place.filesystem.modified(place.where)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _parts(place: Place) -> dict[str, int]:
    s3 = urlsplit(place.uri).scheme == "s3"
    return {"chunksize": PART_BYTES, "max_concurrency": PARTS_AT_ONCE} if s3 else {}


@contextmanager
def told(place: Place) -> Iterator[None]:
    """Turns what the clients raise into one line of ours; what says nothing about the store passes."""
    try:
        yield
    except Exception as error:
        fault = fault_of(error, place)
        if fault is None:
            raise
        raise fault from None  # a client's traceback holds headers and bodies, and nothing that helps


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from; never what was being handled around it, which is another story.

    botocore keeps the client's own error in its keywords.
    """
    one: BaseException | None = error
    while one is not None:
        yield one
        kept = getattr(one, "kwargs", {}).get("error")
        one = one.__cause__ or (kept if isinstance(kept, BaseException) else None)


def words_of(error: BaseException) -> set[str]:
    """What an error and its causes are called: class names, S3's code, HTTP's status."""
    words: set[str] = set()
    for one in causes(error):
        words |= {kind.__name__ for kind in type(one).__mro__} | {code_of(one)}
        words.add(str(getattr(one, "status", "")))
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            words.add(str(response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")))
    return words


def code_of(error: BaseException) -> str:
    """The shortest true name of an error: S3's code, else HTTP's status, else its class."""
    for one in causes(error):
        response = getattr(one, "response", None)
        if isinstance(response, dict) and (code := response.get("Error", {}).get("Code")):
            return str(code)
        if isinstance(status := getattr(one, "status", None), int):
            return str(status)
    return type(error).__name__


def fault_of(error: Exception, place: Place) -> Exception | None:
    """Our error for a client's: first what a person has to mend, then what may pass. None when it is not the store's."""
    words = words_of(error)
    bucket = urlsplit(place.uri).netloc
    lines: tuple[tuple[frozenset[str], Callable[[str], Exception], str], ...] = (
        (
            MISSING_BUCKET,
            BucketMissing,
            f"bucket '{bucket}' does not exist at {place.address}; create it, or correct the bucket's name",
        ),
        (EXPIRED, CredentialsExpired, "the session token has expired; renew session_token"),
        (SKEWED, ClockSkewed, "this machine's clock and the store's differ too much; set the clock (NTP)"),
        (UNKNOWN_KEYS, CredentialsRefused, f"the credentials are wrong or absent; check {place.keys}"),
        (FORBIDDEN, CredentialsRefused, f"access is denied; check {place.keys}, and what they may do"),
        (ELSEWHERE, StoreRefused, "the bucket lies in another region; set 'region' or 'endpoint'"),
        (UNTRUSTED, StoreRefused, f"the certificate of {place.address} is not trusted; set 'ca_file' to its CA"),
        (BUSY, StoreAway, f"{place.address} is busy or broken; it is tried again"),
        (UNREACHABLE, StoreAway, f"{place.address} does not answer; is it up, and its address right?"),
    )
    for names, make, line in lines:
        if words & names:
            return make(f"{place.title}: {line} ({code_of(error)}, for {place.uri})")
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(place.uri)
    if words & ({str(code) for code in range(400, 500)} | {"ClientError", "BotoCoreError"}):
        return StoreRefused(f"{place.title}: the request is refused ({code_of(error)}, for {place.uri})")
    return None
