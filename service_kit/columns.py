"""How texts, numbers, moments and enums stand in columns, the same in SQLite and PostgreSQL."""

from __future__ import annotations

import enum
import re
from datetime import UTC, datetime

from sqlalchemy import BigInteger, DateTime, Integer, String, Text, TypeDecorator
from sqlalchemy.engine import Dialect


class _WithoutNul(TypeDecorator[str]):
    """A text in PostgreSQL, which keeps no NUL: it stands there as SUB and 0, and SUB twice. Equal texts stay equal."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or ("\0" not in value and "\x1a" not in value):
            return value
        return value.replace("\x1a", "\x1a\x1a").replace("\0", "\x1a0")

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return value if value is None or "\x1a" not in value else _SUB.sub(_was, value)


_SUB = re.compile("\x1a(.)")


def _was(found: re.Match[str]) -> str:
    return "\0" if found[1] == "0" else "\x1a"


class _WordsWithoutNul(_WithoutNul):
    impl = Text


# Any text that a caller may ask for or a model write: what is short, and what is long.
TEXT = String().with_variant(_WithoutNul(), "postgresql")
WORDS = Text().with_variant(_WordsWithoutNul(), "postgresql")
# Any number that counts: 64 bits in every database.
NUMBER = BigInteger().with_variant(Integer(), "sqlite")


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
