"""Everything that can be set, in one place: environment variables `TUTELAGE_TEACHING_*`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from service_kit.settings import ServiceSettings, data_dir_field
from teaching_service.domain.block import Limits
from teaching_service.domain.sets import Policy

PREFIX = "TUTELAGE_TEACHING_"


class Settings(ServiceSettings):
    """The teaching service's settings."""

    model_config = SettingsConfigDict(env_prefix=PREFIX)
    database_file: ClassVar[str] = "teaching.db"

    listen: str = Field(default="127.0.0.1:7421", description="Where to listen: HOST:PORT (port 0: any) or unix:PATH.")
    data_dir: Path = data_dir_field(PREFIX)
    most_instructions: int = Field(
        default=Limits().most_instructions, ge=1, description="The most instructions that one piece of work is sent."
    )
    most_characters: int = Field(
        default=Limits().most_characters, ge=1, description="The most characters of the text that it is sent."
    )
    two_people: bool = Field(
        default=False,
        description="Whether whoever proposed or last revised an instruction may not make it active.",
    )

    @property
    def policy(self) -> Policy:
        """What these settings say about teaching."""
        return Policy(Limits(self.most_instructions, self.most_characters), self.two_people)
