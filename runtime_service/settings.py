"""Everything that can be set, in one place: environment variables `TUTELAGE_RUNTIME_*`.

`TUTELAGE_DATA_DIR` serves both services at once; a service's own `…_DATA_DIR` wins over it (settled 33).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import AliasChoices, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "TUTELAGE_RUNTIME_"


class Settings(BaseSettings):
    """The runtime's settings."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", populate_by_name=True)

    listen: str = Field(default="127.0.0.1:7420", description="Where to listen: HOST:PORT (port 0: any) or unix:PATH.")
    data_dir: Path = Field(
        default=Path("tutelage-data"),
        validation_alias=AliasChoices(f"{PREFIX}DATA_DIR", "TUTELAGE_DATA_DIR"),
        description="The folder that holds the database, the signing key of the embedded set-up and the address.",
    )
    database_url: str = Field(
        default="",
        description="The database, as sqlite+aiosqlite:///FILE. Empty: runtime.db in the data folder.",
    )
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
    auth_jwks_file: Path | None = Field(
        default=None,
        description="A JSON Web Key Set of the issuer to trust. None: the data folder's own key is trusted.",
    )
    auth_issuer: str = Field(
        default="", description="The issuer (`iss`) of the tokens to trust. Needed with a key set."
    )
    auth_audience: str = Field(default="tutelage", description="The audience (`aud`) that tokens must be for.")
    auth_interactive_clients: tuple[str, ...] = Field(
        default=(),
        description="The clients (`azp`, `client_id`) that people sit at, as a JSON list (settled 3).",
    )
    tls_cert_file: Path | None = Field(default=None, description="The server's certificate chain, PEM.")
    tls_key_file: Path | None = Field(default=None, description="The server's private key, PEM.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="From which level on.")
    log_format: Literal["json", "console"] = Field(default="json", description="JSON lines, or lines for a person.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.auth_jwks_file and not self.auth_issuer:
            raise ValueError(f"{PREFIX}AUTH_JWKS_FILE needs {PREFIX}AUTH_ISSUER")
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            raise ValueError(f"{PREFIX}TLS_CERT_FILE and {PREFIX}TLS_KEY_FILE go together")
        if self.lease_keep_seconds * 2 > self.lease_seconds:
            raise ValueError(f"{PREFIX}LEASE_KEEP_SECONDS must be at most half of {PREFIX}LEASE_SECONDS")
        return self

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir / 'runtime.db'}"


def reference() -> str:
    """Return every setting with its meaning and its default, for `--help`."""
    lines = []
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f" [{field.default or 'empty'}]"
        lines.append(f"  {PREFIX}{name.upper()}{default}\n      {field.description}")
    return "\n".join(lines)
