"""Declared stores: what lies below which URI, how it is reached, and by which reference its secret is found. Pure,
except that a mount is looked for.

A ``DataStore`` is declared in ``PERENNIAL_STORES`` and found by the longest root that a URI begins with; artifacts and
specs hold plain URIs and know nothing of it. A URI below no declared store is opened with what the environment gives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from artifacts.faults import BadAddress, ReadOnlyStore, StoreAway
from artifacts.refs import Uri, file_uri
from artifacts.secret import SecretRef


def _address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or "@" in parts.netloc:
        raise ValueError("write http://host:port or https://host/path, without user, password or query")
    if value.endswith("/"):
        raise ValueError("ends in a slash; write it without the slash")
    return value


def _prefix(value: str) -> str:
    if value.strip("/") != value or "//" in value:
        raise ValueError("begins or ends in a slash, or has two in a row; write it as one/two")
    return value


def _absolute(value: Path) -> Path:
    if not value.is_absolute() or ".." in value.parts:
        raise ValueError("is no absolute path; write it from the root, without '..'")
    return value


Address = Annotated[str, AfterValidator(_address)]
Prefix = Annotated[str, AfterValidator(_prefix)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]


class _Store(BaseModel):
    """What every store says."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="What errors call it.")
    read_only: bool = Field(default=False, description="Whether writing to it is refused.")

    def check(self) -> None:
        """Raises StoreAway when the store is not there on this machine."""


class FileStore(_Store):
    """A folder of this machine, or of a file system that is always there."""

    type: Literal["file"]
    path: AbsolutePath = Field(description="The folder; it is made by the first write.")

    @property
    def root(self) -> Uri:
        """The URI that everything in it begins with."""
        return file_uri(self.path)


class NfsStore(_Store):
    """A mounted file system. While it is not mounted, nothing is read or written: the files would land beneath it."""

    type: Literal["nfs"]
    path: AbsolutePath = Field(description="The mount point.")
    cache: bool = Field(default=False, description="Whether what is read is copied into the cache of this machine.")

    @property
    def root(self) -> Uri:
        """The URI that everything in it begins with."""
        return file_uri(self.path)

    def check(self) -> None:
        """Raises StoreAway when nothing is mounted at its path."""
        if not os.path.ismount(self.path):
            raise StoreAway(f"store '{self.name}': nothing is mounted at {self.path}; mount it on this machine")


class S3Store(_Store):
    """A bucket, or a part of one, of S3 or of a server that speaks S3. Without keys, the machine's own identity is used."""

    type: Literal["s3"]
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", description="The bucket; it has to exist.")
    prefix: Prefix = Field(default="", description="The part of the bucket that is meant; empty for all of it.")
    endpoint: Address | None = Field(default=None, description="URL of a server that speaks S3; none for AWS.")
    region: str | None = Field(default=None, description="Region of the bucket; none for the environment's.")
    ca_file: AbsolutePath | None = Field(default=None, description="PEM file of the CA of the endpoint's certificate.")
    access_key: SecretRef | None = Field(default=None, description="Where the access key id is read.")
    secret_key: SecretRef | None = Field(default=None, description="Where the secret access key is read.")
    session_token: SecretRef | None = Field(default=None, description="Where the token of a session is read.")

    @model_validator(mode="after")
    def _both_keys(self) -> S3Store:
        if (self.access_key is None) != (self.secret_key is None) or (self.session_token and not self.access_key):
            raise ValueError("access_key and secret_key go together, and session_token goes with both")
        return self

    @property
    def root(self) -> Uri:
        """The URI that everything in it begins with."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


class HttpStore(_Store):
    """Artifacts behind a web server, which are read by their URIs; it can be neither written nor listed."""

    type: Literal["http"]
    url: Address = Field(description="What its artifacts' URIs begin with.")
    read_only: Literal[True] = Field(default=True, description="Always: the protocol has no atomic write.")
    token: SecretRef | None = Field(default=None, description="Where the bearer token is read.")

    @property
    def root(self) -> Uri:
        """The URI that everything in it begins with."""
        return self.url


DataStore: TypeAlias = Annotated[FileStore | NfsStore | S3Store | HttpStore, Field(discriminator="type")]


def declared(value: Any) -> Any:
    """The declarations that ``PERENNIAL_STORES`` holds: a JSON list, or the absolute path of a file that holds one."""
    if not isinstance(value, str):
        return value
    try:
        text = Path(value).read_text() if value.startswith("/") else value
        return json.loads(text) if text.strip() else ()
    except OSError as error:
        raise ValueError(f"{value}: cannot be read ({type(error).__name__})") from None
    except ValueError as error:
        where = f"{value}: " if value.startswith("/") else ""
        raise ValueError(f"{where}is no JSON ({error}); write a list of stores, or the path of a file") from None


def distinct(stores: tuple[DataStore, ...]) -> tuple[DataStore, ...]:
    """The stores as they are; raises ValueError when two have one name or one root."""
    for field in ("name", "root"):
        values = [getattr(store, field) for store in stores]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise ValueError(f"two stores have the {field} '{twice[0]}'; each needs its own")
    return stores


def store_of(uri: Uri, stores: Iterable[DataStore]) -> DataStore | None:
    """The store that a URI lies in: of all whose root it begins with, the one with the longest."""
    holding = [store for store in stores if uri == store.root or uri.startswith(f"{store.root}/")]
    return max(holding, key=lambda store: len(store.root), default=None)


def check_address(uri: Uri) -> None:
    """Raises BadAddress for a URI that ends in a slash or has an empty part: it would name another object, silently."""
    path = urlsplit(uri).path
    if path.endswith("/") or "//" in path:
        fixed = uri.removesuffix(path) + str(PurePosixPath(path.replace("//", "/")))
        raise BadAddress(f"'{uri}' ends in a slash or has two in a row, and names nothing; write '{fixed.rstrip('/')}'")


def check_writable(uri: Uri, store: DataStore | None) -> None:
    """Raises ReadOnlyStore when nothing may be written there."""
    if store is not None and store.read_only:
        raise ReadOnlyStore(
            f"store '{store.name}': {uri} cannot be written: the store is read-only; write to PERENNIAL_STORE"
        )
