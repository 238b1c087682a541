"""Where this deployment runs things: one frozen value, read once from ``PERENNIAL_*``."""

from __future__ import annotations

import datetime as dt
import functools
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from artifacts.refs import Uri, file_uri
from artifacts.settings import Settings
from operators.jobs.budget import Budget
from serving.contract import TritonServer


class Platform(Settings):
    """The shared settings plus what only the control plane needs."""

    runner: Literal["process", "pod"] = Field(
        default="process", description="Where a step runs: a local process, or a pod."
    )
    schedule: str = Field(
        default="on",
        description="on: each row's own cron; off: only assets and people start runs; or one cron expression for all.",
    )
    training_api: Literal["job", "trainjob"] = Field(
        default="job", description="Controller for trainings on several nodes."
    )
    rack_label: str = Field(
        default="topology.kubernetes.io/rack", description="Node label that names the rack, for gpu_topology=same-rack."
    )
    budgets: tuple[Budget, ...] = Field(
        default=(),
        description="What each tenant may use in a rolling window, a JSON list of tenant, hours, unit (gpu or core), days.",
    )
    prometheus: str = Field(
        default="",
        description="Base URL of the Prometheus that scrapes DCGM; empty: no minimum-utilisation rule for pods.",
    )
    namespace: str = Field(default="perennial", description="Kubernetes namespace of the pods.")
    pod_template: Path | None = Field(default=None, description="A site's own pod template, merged under ours.")
    features_image: str = Field(
        default="", description="Image of the feature steps, with digest; needed when runner=pod."
    )
    training_image: str = Field(
        default="", description="Image of the training steps, with digest; needed when runner=pod."
    )
    serving_image: str = Field(
        default="", description="Image of the serving steps, with digest; needed when runner=pod."
    )
    monitoring_image: str = Field(
        default="", description="Image of the monitoring steps, with digest; needed when runner=pod."
    )
    attempt_grace: dt.timedelta = Field(
        default=dt.timedelta(hours=24),
        gt=dt.timedelta(0),
        description="Wall time after which `sweep` removes an attempt that no manifest names; no job may take longer, so "
        "neither its writer nor a reader of the version before is still there. ISO 8601 (`PT24H`) or `24:00:00`.",
    )
    triton_grpc: str = Field(default="127.0.0.1:8001", description="host:port of Triton's gRPC endpoint.")
    triton_http: str = Field(default="127.0.0.1:8000", description="host:port of Triton's HTTP endpoint.")
    triton_repository: Uri = Field(default="", validate_default=False, description="Triton's model repository.")
    triton_flavour: Literal["embedded", "cpu", "gpu"] = Field(
        default="embedded",
        description="The embedded server (Python backend), or a production server with Triton's own backends on that hardware.",
    )
    gateway: str = Field(default="http://127.0.0.1:8080", description="Base URL of the gateway.")
    airflow: str = Field(default="http://127.0.0.1:8080", description="Base URL of Airflow's API server, for links.")
    mlflow_ui: str = Field(default="", description="Base URL of an MLflow server to link to; empty for none.")

    alert_token_file: Path | None = Field(
        default=None, description="File with the bearer token for alerts from outside; without it they are refused."
    )
    notify: tuple[Literal["log", "webhook", "smtp"], ...] = Field(
        default=("log",),
        description="Who is told of each change of a model's drift state, a JSON list of log, webhook, smtp.",
    )
    notify_webhook_file: Path | None = Field(
        default=None, description="Absolute path of a file with the URL that messages are posted to."
    )
    notify_emails: tuple[str, ...] = Field(default=(), description="Who gets messages by mail, a JSON list.")
    notify_smtp: str = Field(default="smtp_default", description="Airflow connection that mail goes through.")

    @model_validator(mode="after")
    def _addressed(self) -> Platform:
        where = self.notify_webhook_file
        if "webhook" in self.notify and (where is None or not where.is_absolute()):
            raise ValueError(
                f"notify: has webhook, and notify_webhook_file is {where}; name a file by its absolute path"
            )
        if "smtp" in self.notify and not self.notify_emails:
            raise ValueError("notify: has smtp, and notify_emails is empty; name who gets the mail")
        return self

    def model_post_init(self, context: object) -> None:
        """Derives what was not set."""
        super().model_post_init(context)
        if not self.triton_repository:
            object.__setattr__(self, "triton_repository", file_uri(self.state.absolute() / "triton"))

    @property
    def triton(self) -> TritonServer:
        """The Triton server of this deployment."""
        return TritonServer(
            grpc=self.triton_grpc,
            http=self.triton_http,
            repository=self.triton_repository,
            flavour=self.triton_flavour,
        )


@functools.cache
def platform() -> Platform:
    """The platform of this process."""
    return Platform()
