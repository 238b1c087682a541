from __future__ import annotations

import pytest

from artifacts.settings import settings
from training.mlflow_store import Registry


def test_the_password_of_the_registry_comes_from_this_process_and_goes_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PERENNIAL_MLFLOW", "http://trainer:pa55@127.0.0.1:9/mlflow")
    settings.cache_clear()
    try:
        mine = Registry("http://trainer@127.0.0.1:9/mlflow")
        assert mine._client.tracking_uri == "http://trainer:pa55@127.0.0.1:9/mlflow"
        assert "pa55" not in mine._shown
        other = Registry("http://trainer@127.0.0.1:8/mlflow")
        assert other._client.tracking_uri == "http://trainer@127.0.0.1:8/mlflow"
    finally:
        settings.cache_clear()
