"""Names of things: URIs, digests and keys. Pure, except for the functions that read a file to digest it."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BaseModel, Field

from artifacts.secret import has_password, without_password

CHUNK_BYTES = 1 << 20


def _absolute_uri(value: str) -> str:
    parts = urlsplit(value)
    if has_password(value):
        raise ValueError(
            f"'{without_password(value)}' held a password; declare the store, with references to its secret"
        )
    if not parts.scheme or (not parts.netloc and not parts.path.startswith("/")):
        raise ValueError(f"'{value}' is no absolute URI; write file:///path, s3://bucket/key or another fsspec scheme")
    if value.endswith("/"):
        raise ValueError(f"'{value}' ends in a slash; a URI names one thing, write it without the slash")
    return value


Uri = Annotated[str, AfterValidator(_absolute_uri)]
"""An absolute URI without a trailing slash: where an artifact lies."""


def _online_store(value: str) -> str:
    parts = urlsplit(value)
    if "://" not in value:
        return value
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname:
        raise ValueError("the online store is a folder or redis[s]://[user@]host:port/number; this is neither")
    if parts.password is not None:
        raise ValueError("the URL holds a password; take it out and set PERENNIAL_ONLINE_PASSWORD instead")
    return value


OnlineStore = Annotated[str, AfterValidator(_online_store)]
"""The online store: a folder (embedded SQLite), or ``redis[s]://[user@]host:port/number`` without a password."""

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
"""SHA-256 of content, written ``sha256:<64 hex digits>``."""


class Ref(BaseModel, frozen=True, extra="forbid"):
    """Where an artifact lies and what it must contain; the base of every reference that a step returns."""

    uri: Uri
    digest: Digest


def file_uri(path: Path) -> Uri:
    """The file:// URI of a local path."""
    return path.absolute().as_uri()


def local_path(uri: Uri) -> Path | None:
    """The local path that a file:// URI names, or None for any other scheme."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def join(uri: Uri, *parts: str) -> Uri:
    """The URI of something below another one."""
    return "/".join([uri.rstrip("/"), *(part.strip("/") for part in parts)])


def sha256(content: bytes) -> Digest:
    """The digest of some bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def file_digest(path: Path) -> Digest:
    """The digest of one file's content."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def folder_digest(entries: Iterable[tuple[str, int, Digest]]) -> Digest:
    """The digest of a folder: SHA-256 over its sorted (relative path, size in bytes, file digest) lines."""
    return sha256("".join(f"{path}\0{size}\0{digest}\n" for path, size, digest in sorted(entries)).encode())


def canonical(value: Any) -> str:
    """JSON text that is equal for equal values: sorted keys, no spaces, models in JSON mode, times in UTC."""

    def plain(item: Any) -> Any:
        if isinstance(item, BaseModel):
            return item.model_dump(mode="json")
        if isinstance(item, frozenset | set):
            return sorted(item)
        if isinstance(item, dt.datetime):
            return item.astimezone(dt.UTC).isoformat()
        if isinstance(item, dt.date):
            return item.isoformat()
        raise TypeError(f"{type(item).__name__} has no canonical JSON form")

    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=plain)


def key_digest(parts: Mapping[str, Any]) -> Digest:
    """The key of a piece of work: the digest of everything that goes into it."""
    return sha256(canonical(parts).encode())


def short(digest: Digest) -> str:
    """Twelve hex digits, for names and for people; never compared."""
    return digest.removeprefix("sha256:")[:12]


def code_digest(root: Path, packages: Iterable[str], locks: Iterable[str] = ("locks/perennial.txt",)) -> Digest:
    """The digest of the code that a step runs: the Python files of its packages and the locked requirements."""
    files = [path for package in packages for path in (root / package).rglob("*.py")]
    files += [root / lock for lock in locks]
    return folder_digest((str(path.relative_to(root)), path.stat().st_size, file_digest(path)) for path in files)
