"""Redis as the online store's server: its address, its password, who may write, and one error when it is away."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, LockError
from redis.retry import Retry

from artifacts.settings import Settings

PORT = 6379
WRITER_LOCK = "perennial:writer"
WRITE_SECONDS = 30.0  # thousands of entities in one trip; a server that is silent for longer is away
LOCK_SECONDS = 300  # a killed writer keeps the others waiting this long at most; a week of views is written in seconds


class OnlineUnavailable(ConnectionError):
    """The online store did not answer, or not with what was written there; the same read may work later."""


def is_server(online: str) -> bool:
    """Whether the online store is a server, rather than a folder."""
    return "://" in online


def address(online: str) -> dict[str, Any]:
    """What a Redis client needs to know, by redis-py's names; the password comes from ``PERENNIAL_ONLINE_PASSWORD``."""
    parts = urlsplit(online)
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname:
        raise ValueError(f"online={online!r} is neither a folder nor a redis://host:port URL")
    found: dict[str, Any] = {"host": parts.hostname, "port": parts.port or PORT}
    if parts.username:
        found["username"] = parts.username
    if password := Settings().online_password.get_secret_value():
        found["password"] = password
    if number := parts.path.strip("/"):
        found["db"] = int(number)
    return found | ({"ssl": True} if parts.scheme == "rediss" else {})


def connection_string(online: str) -> str:
    """The address in Feast's words. Feast cuts at commas and reads each value as JSON, so texts are quoted so."""
    found = address(online) | {"socket_timeout": WRITE_SECONDS, "socket_connect_timeout": WRITE_SECONDS}
    place = f"{found.pop('host')}:{found.pop('port')}"
    return ",".join([place, *(f"{name}={json.dumps(value)}".replace(",", "\\u002c") for name, value in found.items())])


def client(online: str, seconds: float) -> Redis:
    """A client that gives up after ``seconds``; it asks twice at most, since a restarted server closes connections."""
    return Redis(
        **address(online),
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
        retry=Retry(NoBackoff(), 1),
    )


@contextlib.contextmanager
def reachable(online: str) -> Iterator[None]:
    """Turns whatever Redis says against the block into one OnlineUnavailable that says where and what to do."""
    try:
        yield
    except (AuthenticationError, AuthorizationError) as error:
        raise OnlineUnavailable(f"{online}: {error} Set PERENNIAL_ONLINE_PASSWORD to the server's password") from error
    except RedisError as error:
        raise OnlineUnavailable(f"{online}: {error} Is the server up, and PERENNIAL_ONLINE its address?") from error


@contextlib.contextmanager
def only_writer(online: str) -> Iterator[None]:
    """Keeps every other writer of this server waiting, on any machine, until the block ends; not re-entrant."""
    with reachable(online):
        lock = client(online, WRITE_SECONDS).lock(WRITER_LOCK, timeout=LOCK_SECONDS, blocking_timeout=LOCK_SECONDS)
        if not lock.acquire():
            raise OnlineUnavailable(f"{online}: another writer has held it for {LOCK_SECONDS} s; is one stuck?")
        try:
            yield
        finally:
            with contextlib.suppress(LockError):  # it ran out: the next writer has it, and compares before it writes
                lock.release()
