"""Where this deployment runs things: one frozen value, read once from ``PERENNIAL_*``."""

from __future__ import annotations

import datetime as dt
import functools
from pathlib import Path
from typing import Literal

from pydantic import Field

from artifacts.refs import Uri, file_uri
from artifacts.settings import Settings
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
    gateway: str = Field(default="http://127.0.0.1:8080", description="Base URL of the gateway.")
    airflow: str = Field(default="http://127.0.0.1:8080", description="Base URL of Airflow's API server, for links.")
    mlflow_ui: str = Field(default="", description="Base URL of an MLflow server to link to; empty for none.")

    alert_token_file: Path | None = Field(
        default=None, description="File with the bearer token for alerts from outside; without it they are refused."
    )

    def model_post_init(self, context: object) -> None:
        """Derives what was not set."""
        super().model_post_init(context)
        if not self.triton_repository:
            object.__setattr__(self, "triton_repository", file_uri(self.state.absolute() / "triton"))

    @property
    def triton(self) -> TritonServer:
        """The Triton server of this deployment."""
        return TritonServer(grpc=self.triton_grpc, http=self.triton_http, repository=self.triton_repository)


@functools.cache
def platform() -> Platform:
    """The platform of this process."""
    return Platform()
