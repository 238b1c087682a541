"""What can be set on a gateway, beside the settings that everybody shares."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from artifacts.refs import Uri
from artifacts.secret import OpenUrl
from artifacts.settings import Settings
from serving.contract import Announcement


class GatewaySettings(Settings):
    """The shared settings plus what only the gateway needs."""

    triton_grpc: str = Field(default="127.0.0.1:8001", description="host:port of Triton's gRPC endpoint.")
    gateway_models: tuple[str, ...] = Field(default=("flight_delay",), description="Models served, a JSON list.")
    gateway_token_file: Path | None = Field(
        default=None, description="File with the bearer token, mode 0600; <state>/gateway.token, made when absent."
    )
    gateway_log: Path | None = Field(default=None, description="Folder of the log's segments; <state>/log.")
    gateway_concurrency: int = Field(default=64, gt=0, description="Requests in flight before 429.")
    gateway_body_bytes: int = Field(default=8 << 20, gt=0, description="Largest body, packed and unpacked.")
    gateway_open: int = Field(
        default=256, gt=0, description="Requests open, bodies still arriving included, before 429."
    )
    gateway_body_seconds: float = Field(default=5.0, gt=0, description="How long a body may take to arrive before 408.")
    gateway_deadline_seconds: float = Field(default=1.0, gt=0, description="How long Triton may take.")
    gateway_follow_seconds: float = Field(default=1.0, gt=0, description="Between two looks at the routing record.")
    gateway_log_bytes: int = Field(
        default=8 << 30, gt=0, description="Most that the log's segments may hold; beyond it nothing is answered (503)."
    )
    gateway_log_free_bytes: int = Field(
        default=256 << 20, ge=0, description="Free bytes that the log leaves on its disk."
    )
    gateway_log_keep_days: int = Field(default=45, gt=0, description="Days after which compacted segments may go.")
    gateway_log_sink: Uri | None = Field(
        default=None,
        description="Where closed hours of the log are put as Parquet, such as s3://bucket/log; none: nowhere.",
    )
    gateway_hourly_seconds: float = Field(
        default=300.0, gt=0, description="Between two runs of ``serving.hourly`` (wall clock only)."
    )
    gateway_announce: OpenUrl | None = Field(
        default=None, description="Airflow's base URL, where closed partitions are announced; none: nowhere."
    )
    gateway_announce_user: str = Field(default="watcher", description="As whom.")
    gateway_announce_passwords: Path | None = Field(default=None, description="Airflow's JSON file of passwords.")
    gateway_sync_seconds: float = Field(default=1.0, gt=0, description="Between two fsyncs of the log.")

    @property
    def token_file(self) -> Path:
        """The token file in force."""
        return self.gateway_token_file or self.state / "gateway.token"

    @property
    def log(self) -> Path:
        """The log folder in force."""
        return self.gateway_log or self.state.absolute() / "log"

    def announcement(self, model: str) -> Announcement | None:
        """Where a closed partition of the model is announced; None where that was not set."""
        if self.gateway_announce is None or self.gateway_announce_passwords is None:
            return None
        return Announcement(
            airflow=self.gateway_announce,
            username=self.gateway_announce_user,
            password_file=self.gateway_announce_passwords,
            asset=f"predictions/{model}",
        )
