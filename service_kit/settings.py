"""What can be set alike for every service: where it listens, where its data is, whom it trusts, what it logs.

A service's own settings derive from `ServiceSettings`, with the prefix of its environment variables.
`TUTELAGE_DATA_DIR` serves both services at once; a service's own `…_DATA_DIR` wins over it (settled 33).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import AliasChoices, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

COMMON_DATA_DIR = "TUTELAGE_DATA_DIR"


class ServiceSettings(BaseSettings):
    """The settings that every service has. A service says its prefix, its port and its database's file."""

    model_config = SettingsConfigDict(extra="ignore", populate_by_name=True)
    database_file: ClassVar[str]

    listen: str = Field(description="Where to listen: HOST:PORT (port 0: any) or unix:PATH.")
    data_dir: Path = Field(
        description="The folder that holds the database, the signing key of the embedded set-up and the address."
    )
    database_url: str = Field(
        default="",
        description="The database: sqlite:///FILE, or postgresql://USER:PASSWORD@HOST/NAME for more than one replica. "
        "Empty: a file of its own in the data folder.",
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

    @classmethod
    def prefix(cls) -> str:
        """Return what the names of its environment variables begin with."""
        return str(cls.model_config["env_prefix"])

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.auth_jwks_file and not self.auth_issuer:
            raise ValueError(f"{self.prefix()}AUTH_JWKS_FILE needs {self.prefix()}AUTH_ISSUER")
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            raise ValueError(f"{self.prefix()}TLS_CERT_FILE and {self.prefix()}TLS_KEY_FILE go together")
        return self

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.data_dir / self.database_file}"

    @classmethod
    def reference(cls) -> str:
        """Return every setting with its meaning and its default, for `--help`."""
        lines = []
        for name, field in cls.model_fields.items():
            default = "" if field.default is None else f" [{field.default or 'empty'}]"
            lines.append(f"  {cls.prefix()}{name.upper()}{default}\n      {field.description}")
        return "\n".join(lines)


def data_dir_field(prefix: str) -> Any:
    """Return the field of a service's data folder, under its own name and the common one."""
    return Field(
        default=Path("tutelage-data"),
        validation_alias=AliasChoices(f"{prefix}DATA_DIR", COMMON_DATA_DIR),
        description=ServiceSettings.model_fields["data_dir"].description,
    )
