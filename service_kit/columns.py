"""How moments and enums stand in columns."""

from __future__ import annotations

import enum
from datetime import UTC, datetime

from sqlalchemy import DateTime, String, TypeDecorator
from sqlalchemy.engine import Dialect


class Named(TypeDecorator[enum.Enum]):
    """An enum, by its name."""

    impl = String
    cache_ok = True

    def __init__(self, kind: type[enum.Enum]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: enum.Enum | None, dialect: Dialect) -> str | None:
        return None if value is None else value.name

    def process_result_value(self, value: str | None, dialect: Dialect) -> enum.Enum | None:
        return None if value is None else self.kind[value]


class UtcDateTime(TypeDecorator[datetime]):
    """A moment. Takes and gives times with a zone alone, in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("a time without a zone")
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value and (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC))
