"""The one place that talks to MLflow: versions keyed by training key, and aliases. Telemetry is off."""

from __future__ import annotations

import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the import, which reads it

import datetime as dt
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import ErrorCode

from artifacts.refs import Digest, file_uri
from artifacts.secret import with_password, without_password
from artifacts.settings import settings
from artifacts.step import TryAgain

T = TypeVar("T")

TRAINING_KEY = "training_key"
PACKAGE_URI, PACKAGE_DIGEST = "package_uri", "package_digest"
CHAMPION, CHALLENGER, PREVIOUS = "champion", "challenger", "previous"
PROJECTED = "projected_"
"""Tag of a registered model: where the last projection has left an alias, ``NONE`` for nowhere."""
NONE = "none"
DUPLICATE = "duplicate_of"
SQLITE = "sqlite:///"
ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.05
PASSING = {"TEMPORARILY_UNAVAILABLE", "INTERNAL_ERROR", "REQUEST_LIMIT_EXCEEDED"}
ABSENT = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}  # the second is what a missing alias gives
PARAM_LENGTH = 6000
MOST_MODELS = 1000


class NotPrepared(RuntimeError):
    """The SQLite store is not there; set-up makes it once, with ``prepare``."""


def prepare(tracking_uri: str) -> None:
    """Migrates a SQLite store once, in set-up; two first connections at the same time would race.

    With a server's URI it only asks whether the server answers; raises TryAgain when it does not.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)
    if tracking_uri.startswith(SQLITE):
        path = Path(tracking_uri.removeprefix(SQLITE))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()  # an empty file is an empty SQLite database
    Registry(tracking_uri).ping()


def error_name(error: MlflowException) -> str:
    """The name of MLflow's error code."""
    code = error.error_code
    return code if isinstance(code, str) else str(ErrorCode.Name(code))


def _passing(error: MlflowException) -> bool:
    """Whether the next try may work: a locked database, or another writer that inserted the same row first."""
    name = error_name(error)
    return name in PASSING or (name == "BAD_REQUEST" and "IntegrityError" in str(error))


@dataclass(frozen=True)
class Version:
    """One registered version as MLflow holds it."""

    number: int
    run_id: str
    created_at: dt.datetime
    tags: Mapping[str, str]


class Registry:
    """MLflow's tracking and registry behind one URI."""

    def __init__(self, tracking_uri: str) -> None:
        tracking_uri = with_password(tracking_uri, settings().mlflow)  # a spec holds none
        path = Path(tracking_uri.removeprefix(SQLITE))
        if tracking_uri.startswith(SQLITE) and not path.is_file():  # MLflow itself would try for 100 s
            raise NotPrepared(f"{tracking_uri}: there is no store at {path}; run `make setup`, which makes it")
        self._uri, self._shown = tracking_uri, without_password(tracking_uri)
        self._client = MlflowClient(tracking_uri, tracking_uri)

    def _retried(self, call: Callable[[], T]) -> T:
        """The call's answer; locked databases and racing writers get some more tries, with jitter."""
        for attempt in range(ATTEMPTS):
            try:
                return call()
            except (MlflowException, sa.exc.OperationalError) as error:
                if isinstance(error, MlflowException) and not _passing(error):
                    raise
                if attempt == ATTEMPTS - 1:
                    raise TryAgain(f"MLflow at {self._shown}: {error}; is the store there and not locked?") from error
                time.sleep(FIRST_PAUSE_SECONDS * 2**attempt * (1 + random.random()))  # noqa: S311  jitter
        raise AssertionError("unreachable: the last attempt returns or raises")

    def ping(self) -> None:
        """Asks for anything; the first question migrates a SQLite store."""
        self._retried(lambda: self._client.search_experiments(max_results=1))

    def experiment(self, name: str) -> str:
        """The id of the experiment of a model, made when it is not there yet."""
        found = self._retried(lambda: self._client.get_experiment_by_name(name))
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self._retried(lambda: self._client.create_experiment(name, self._artifact_root())))
        except MlflowException:  # somebody else was faster, or it was deleted by hand
            found = self._retried(lambda: self._client.get_experiment_by_name(name))
            if found is None:
                raise
            return str(found.experiment_id)

    def _artifact_root(self) -> str | None:
        """Beside a SQLite file, since MLflow's own default is relative to the working folder; a server knows its own."""
        if not self._uri.startswith(SQLITE):
            return None
        return file_uri(Path(self._uri.removeprefix(SQLITE)).absolute().parent / "mlflow-artifacts")

    def run(self, model: str, key: Digest, tags: Mapping[str, str]) -> str:
        """The run of a training key, made when it is not there yet; of several the first one counts."""
        experiment = self.experiment(model)

        def find() -> list[str]:
            found = self._client.search_runs(
                [experiment], f"tags.{TRAINING_KEY} = '{key}'", order_by=["attributes.start_time ASC"]
            )
            return [str(run.info.run_id) for run in found]

        if not (known := self._retried(find)):
            self._retried(lambda: self._client.create_run(experiment, tags={**tags, TRAINING_KEY: key}))
            known = self._retried(find)
        return known[0]

    def log(
        self, run_id: str, params: Mapping[str, object], metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> None:
        """Writes params, metrics (step 0) and tags of a run; doing it twice changes nothing."""
        self._retried(
            lambda: self._client.log_batch(
                run_id,
                metrics=[Metric(name, value, 0, 0) for name, value in metrics.items()],
                params=[Param(name, str(value)[:PARAM_LENGTH]) for name, value in params.items()],
                tags=[RunTag(name, value) for name, value in tags.items()],
            )
        )

    def attach(self, run_id: str, name: str, content: object) -> None:
        """Stores a JSON value as an artifact of a run."""
        self._retried(lambda: self._client.log_dict(run_id, content, name))

    def finish(self, run_id: str) -> None:
        """Marks a run as finished."""
        self._retried(lambda: self._client.set_terminated(run_id, "FINISHED"))

    def by_training_key(self, model: str, key: Digest) -> Version | None:
        """The version of a training key; of several (two writers at once) the lowest one counts."""
        query = f"name = '{model}' and tags.{TRAINING_KEY} = '{key}'"
        found = self._retried(lambda: self._client.search_model_versions(query))
        return min((_version(version) for version in found), key=lambda version: version.number, default=None)

    def create(self, model: str, source: str, run_id: str, tags: Mapping[str, str]) -> Version:
        """Registers a version with its tags, then says which one counts for its training key."""
        try:
            self._retried(lambda: self._client.create_registered_model(model))
        except MlflowException as error:
            if error_name(error) != "RESOURCE_ALREADY_EXISTS":
                raise
        made = self._retried(
            lambda: self._client.create_model_version(model, source, run_id, dict(tags), await_creation_for=None)
        )
        counts = self.by_training_key(model, tags[TRAINING_KEY])
        if counts is None:
            raise TryAgain(f"MLflow at {self._shown}: version {made.version} of '{model}' was written and is not found")
        if counts.number != int(made.version):
            self.tag_version(model, int(made.version), DUPLICATE, str(counts.number))
        return counts

    def version(self, model: str, number: int) -> Version | None:
        """One version, or None when there is none of that number."""
        return self._or_none(lambda: _version(self._client.get_model_version(model, str(number))))

    def tag_version(self, model: str, number: int, key: str, value: str) -> None:
        """Sets a tag of a version."""
        self._retried(lambda: self._client.set_model_version_tag(model, str(number), key, value))

    def aliases(self, model: str) -> dict[str, int]:
        """Aliases of a model and the versions that they name; empty when there is no such model."""
        found = self._or_none(lambda: self._client.get_registered_model(model))
        return {alias: int(number) for alias, number in found.aliases.items()} if found is not None else {}

    def models(self) -> tuple[str, ...]:
        """The names of all registered models."""
        found = self._retried(lambda: self._client.search_registered_models(max_results=MOST_MODELS))
        return tuple(str(model.name) for model in found)

    def model_tags(self, model: str) -> dict[str, str] | None:
        """Tags of a registered model, or None when there is no such model."""
        found = self._or_none(lambda: self._client.get_registered_model(model))
        return dict(found.tags) if found is not None else None

    def tag_model(self, model: str, key: str, value: str) -> None:
        """Sets a tag of a registered model."""
        self._retried(lambda: self._client.set_registered_model_tag(model, key, value))

    def point(self, model: str, alias: str, number: int | None) -> None:
        """Moves an alias, or deletes it; deleting what is not there is success."""
        if number is not None:
            self._retried(lambda: self._client.set_registered_model_alias(model, alias, str(number)))
        elif alias in self.aliases(model):
            self._retried(lambda: self._client.delete_registered_model_alias(model, alias))

    def _or_none(self, call: Callable[[], T]) -> T | None:
        try:
            return self._retried(call)
        except MlflowException as error:
            if error_name(error) in ABSENT:
                return None
            raise


def _version(found: ModelVersion) -> Version:
    created = dt.datetime.fromtimestamp(found.creation_timestamp / 1000, dt.UTC)
    return Version(int(found.version), str(found.run_id or ""), created, dict(found.tags))


if __name__ == "__main__":
    prepare(settings().mlflow)
