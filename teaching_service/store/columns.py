"""How domain values stand in columns: as JSON text."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Text, TypeDecorator
from sqlalchemy.engine import Dialect


class Value(TypeDecorator[Any]):
    """A value of a type, a frozen dataclass or a tuple, or nothing."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind
        self._adapter = TypeAdapter(kind)

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else self._adapter.dump_json(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else self._adapter.validate_json(value)
