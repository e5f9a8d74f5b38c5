"""Everything that can be set, in one place: environment variables `TUTELAGE_RUNTIME_*`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from service_kit.settings import ServiceSettings, data_dir_field

PREFIX = "TUTELAGE_RUNTIME_"


class Settings(ServiceSettings):
    """The runtime's settings."""

    model_config = SettingsConfigDict(env_prefix=PREFIX)
    database_file: ClassVar[str] = "runtime.db"

    listen: str = Field(default="127.0.0.1:7420", description="Where to listen: HOST:PORT (port 0: any) or unix:PATH.")
    data_dir: Path = data_dir_field(PREFIX)
    teaching_address: str = Field(
        default="",
        description="The teaching service, HOST:PORT. Empty: nobody teaches, every block is empty.",
    )
    scripts_dir: Path | None = Field(
        default=None,
        description="The folder of scripted models, NAME.yaml each. None: there are no scripted models.",
    )
    approve: Literal["changes", "all", "nothing"] = Field(
        default="changes", description="Who is asked where nothing more specific is set (settled 1)."
    )
    lease_seconds: float = Field(default=30.0, gt=0, description="How long a writer's or a session's lease lasts.")
    lease_keep_seconds: float = Field(default=10.0, gt=0, description="How often a lease is kept.")
    reconnect_seconds: float = Field(
        default=60.0,
        gt=0,
        description="How long a host that went is waited for before its calls count as unfinished.",
    )
    tool_seconds: float = Field(
        default=600.0, gt=0, description="How long a tool may take where its host does not say."
    )
    model_seconds: float = Field(default=600.0, gt=0, description="How long a model's provider may take for a reply.")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.lease_keep_seconds * 2 > self.lease_seconds:
            raise ValueError(f"{PREFIX}LEASE_KEEP_SECONDS must be at most half of {PREFIX}LEASE_SECONDS")
        if self.teaching_address and self.auth_jwks_file:
            raise ValueError(
                f"{PREFIX}TEACHING_ADDRESS needs the embedded set-up in this release: the runtime signs in at teaching "
                "with the data folder's key"
            )
        return self
