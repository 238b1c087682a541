"""The assets that join the DAGs, built in one place: Airflow matches an asset by name and URI, so both must agree."""

from __future__ import annotations

from airflow.sdk import Asset


def features(repo: str) -> Asset:
    """The features of a repo have been built for further hours."""
    return _asset(f"features/{repo}")


def retrain(model: str) -> Asset:
    """There is an open decision to retrain; which one, the ledger says."""
    return _asset(f"retrain/{model}")


def backfill(model: str) -> Asset:
    """There are partitions of the past that nobody has trained through; which, the ledger says."""
    return _asset(f"backfill/{model}")


def package(model: str) -> Asset:
    """A version has passed its gates and has been packaged and registered."""
    return _asset(f"package/{model}")


def deployment(model: str) -> Asset:
    """A release of the model has ended, with a new champion or without."""
    return _asset(f"deployment/{model}")


def predictions(model: str) -> Asset:
    """A partition of the prediction log has closed."""
    return _asset(f"predictions/{model}")


def alerts(model: str) -> Asset:
    """Something has come from outside about days that have been checked."""
    return _asset(f"alerts/{model}")


def _asset(name: str) -> Asset:
    return Asset(name=name, uri=f"perennial://{name}")
