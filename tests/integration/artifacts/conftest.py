"""Tests that declare stores leave no trace of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from artifacts import store
from artifacts.settings import settings


@pytest.fixture(autouse=True)
def settings_of_this_test() -> Iterator[None]:
    yield
    settings.cache_clear()
    store._cache.cache_clear()
