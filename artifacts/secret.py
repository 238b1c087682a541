"""References to secrets, and URLs that travel without them: a spec, a record or a manifest holds a name, never a password."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from artifacts.faults import CredentialsRefused

SECRET_WORDS = frozenset({
    *("password", "passwd", "pwd", "secret", "token", "sslpassword", "access_key", "secret_key", "api_key"),
    *("x-amz-signature", "x-amz-security-token", "x-goog-signature", "signature", "sig"),  # a signed URL is a key
})


class SecretRef(BaseModel):
    """Where a secret is read, at the place of use: a variable of the environment, or a file. Exactly one of the two."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _reference(cls, value: object) -> object:
        if isinstance(value, str):  # not even its length may be in an error
            raise ValueError(  # noqa: TRY004  pydantic wants it so
                'a secret itself stands here; write {"env": "NAME"} or {"file": "/path"}'
            )
        return value

    @model_validator(mode="after")
    def _one_place(self) -> SecretRef:
        if bool(self.env) == bool(self.file) or (self.file and not self.file.is_absolute()):
            raise ValueError('write {"env": "NAME"} or {"file": "/absolute/path"}, one of the two')
        return self

    def __str__(self) -> str:
        return f"${self.env}" if self.env else str(self.file)

    def value(self, owner: str) -> str:
        """The secret; raises CredentialsRefused, naming ``owner`` and the reference, when it is not there or empty."""
        if self.env:
            found = os.environ.get(self.env, "")
        else:
            try:
                found = Path(str(self.file)).read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise CredentialsRefused(f"{owner}: {self} cannot be read ({type(error).__name__})") from None
        if not found.strip():
            raise CredentialsRefused(f"{owner}: {self} is {'not set' if self.env else 'empty'}; put the secret there")
        return found.strip()


def has_password(url: str) -> bool:
    """Whether a URL holds a password, before the host or in its query."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no URL at all
        return False
    return parts.password is not None or any(name.lower() in SECRET_WORDS for name, _ in parse_qsl(parts.query))


def without_password(url: str) -> str:
    """The same URL as it may travel: user, host, path and harmless options stay, passwords go."""
    if not has_password(url):
        return url
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    user = user.partition(":")[0]
    kept = [one for one in parts.query.split("&") if one and one.partition("=")[0].lower() not in SECRET_WORDS]
    return SplitResult(parts.scheme, f"{user}@{host}" if user else host, parts.path, "&".join(kept), "").geturl()


def with_password(url: str, own: str) -> str:
    """``own``, the URL from this process's settings, when it is ``url`` with its password; else ``url``."""
    return own if without_password(own) == url else url


def passwords_in(value: object, place: str = "") -> list[str]:
    """Where a JSON value holds a URL with a password: the paths of the fields, never what stands there."""
    if isinstance(value, str):
        return [place] if has_password(value) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in passwords_in(item, f"{place}.{key}".lstrip("."))]


def _open_url(value: str) -> str:
    if has_password(value):
        raise ValueError(
            f"'{without_password(value)}' holds a password, and a spec is read by many; write it without, and give the "
            "whole URL to the process that uses it by its PERENNIAL_* setting"
        )
    return value


OpenUrl = Annotated[str, AfterValidator(_open_url)]
"""A URL that anybody may read: it holds no password."""
