"""Real servers, one of each for all tests: an S3 server, where each test works below its own prefix, and an empty Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from artifacts import store
from artifacts.refs import Uri
from artifacts.settings import settings
from tests.make import s3
from tests.make.redis_server import RedisServer, redis_server
from tests.make.stores import declare


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Server]:
    with s3.serve(tmp_path_factory.mktemp("weed")) as running:
        yield running


@pytest.fixture
def lake(s3_server: s3.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Uri]:
    """An S3 URI to work below, in a declared store named 'lake'."""
    declare(monkeypatch, tmp_path / "cache", s3_server.store(), **s3_server.env())
    yield f"s3://{s3.BUCKET}/{tmp_path.name}"
    settings.cache_clear()
    store._cache.cache_clear()


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(shared_redis: RedisServer) -> RedisServer:
    shared_redis.client().flushall()
    return shared_redis
