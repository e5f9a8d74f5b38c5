"""How values stand in columns."""

from __future__ import annotations

import enum

from sqlalchemy import String, TypeDecorator
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
