"""Declared stores for one test: settings, secrets and a cache of its own, and artifacts to put into them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from artifacts import store
from artifacts.refs import Ref, Uri
from artifacts.settings import settings


def declare(monkeypatch: pytest.MonkeyPatch, cache: Path, *stores: Mapping[str, Any], **env: str) -> None:
    """Makes this process, and those it starts, see these stores and an empty cache."""
    variables = {"PERENNIAL_STORES": json.dumps(stores), "PERENNIAL_CACHE": str(cache), **env}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    store._cache.cache_clear()


def put(uri: Uri, **files: str | bytes) -> Ref:
    """Publishes some files; ``__`` in a name stands for a slash."""
    with store.publish(uri, "toy") as draft:
        for name, content in files.items():
            path = draft.path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.facts["files"] = len(files)
    assert draft.manifest is not None
    return Ref(uri=uri, digest=draft.manifest.digest)
