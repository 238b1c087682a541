"""The settings that payloads and control plane share; read once, from ``PERENNIAL_*`` in the environment."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from artifacts.data_store import DataStore, declared, distinct
from artifacts.refs import OnlineStore, Uri, file_uri

ROOT = Path(__file__).resolve().parent.parent


class Settings(BaseSettings):
    """Where this deployment keeps things, and which clock it lives by."""

    model_config = SettingsConfigDict(env_prefix="PERENNIAL_", frozen=True, extra="ignore", hide_input_in_errors=True)

    state: Path = Field(
        default=ROOT / "var", description="Folder for local state: databases, logs, the Triton repository."
    )
    store: Uri = Field(
        default="", validate_default=False, description="Root of all artifacts; s3://bucket/prefix in a cluster."
    )
    stores: Annotated[tuple[DataStore, ...], NoDecode, BeforeValidator(declared), AfterValidator(distinct)] = Field(
        default=(), description="Declared stores: a JSON list, or the path of a file with one; see stores.md."
    )
    cache: Path | None = Field(default=None, description="Folder that remote artifacts are read through; a local disk.")
    cache_gb: float = Field(
        default=0, ge=0, description="Most that the cache holds, in GB; 0: 6 per GPU, at most half the disk."
    )
    database: str = Field(default="", description="SQLAlchemy URL of records and ledger; PostgreSQL in production.")
    mlflow: str = Field(default="", description="MLflow tracking URI.")
    online: OnlineStore = Field(
        default="", description="Online store: a folder (embedded SQLite) or redis[s]://[user@]host:port/number."
    )
    online_password: SecretStr = Field(
        default=SecretStr(""), description="Password of a Redis online store; never part of its URL."
    )
    clock: Literal["wall", "replay"] = Field(
        default="wall", description="The data clock: the wall's, or the replay tool's."
    )

    def model_post_init(self, _context: object) -> None:
        """Derives what was not set from the state folder."""
        state = self.state.absolute()
        for name, value in {
            "store": file_uri(state / "store"),
            "database": f"sqlite:///{state / 'perennial.db'}",
            "mlflow": f"sqlite:///{state / 'mlflow.db'}",
            "online": str(state / "online"),
        }.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)

    @property
    def stores_json(self) -> str:
        """The declared stores as ``PERENNIAL_STORES`` holds them, for another process; empty when there are none."""
        stores = [store.model_dump(mode="json", exclude_defaults=True) for store in self.stores]
        return json.dumps(stores, separators=(",", ":")) if stores else ""

    @property
    def cache_folder(self) -> Path:
        """Where remote artifacts are read through."""
        return (self.cache or self.state / "cache").absolute()


@functools.cache
def settings() -> Settings:
    """The settings of this process."""
    return Settings()
