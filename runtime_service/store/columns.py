"""How domain values stand in columns: as JSON text.

So a row's columns are its dataclass's fields, and nothing has to be carried over by hand.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Text, TypeDecorator
from sqlalchemy.engine import Dialect

from runtime_service.domain.plain import from_plain, to_plain


class Value(TypeDecorator[Any]):
    """A frozen dataclass, or nothing, as JSON text."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else _text(to_plain(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else from_plain(self.kind, json.loads(value))


class Values(TypeDecorator[Any]):
    """A tuple of frozen dataclasses or texts, as JSON text."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else _text([to_plain(one) for one in value])

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else tuple(from_plain(self.kind, one) for one in json.loads(value))


def _text(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
