"""Domain values as plain data (mappings, lists, text, numbers) and back, for what is stored or hashed as JSON.

What is empty, 0 or none is left out: a field that is added later changes no older text and no older hash. Where a field
may be one of several dataclasses, `is` names which.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from datetime import datetime
from typing import Any, TypeVar

from runtime_service.domain.times import from_rfc3339, rfc3339

T = TypeVar("T")

UNSET: tuple[Any, ...] = (None, "", 0, [], {}, "UNSPECIFIED")


def to_plain(value: Any) -> Any:
    """Return a domain value as plain data."""
    return _write(type(value), value)


def from_plain(kind: type[T], plain: Any) -> T:
    """Return the value of a type that plain data stands for."""
    return typing.cast("T", _read(kind, plain))


@functools.cache
def _fields(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@functools.cache
def _one_of(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, without None; a type that is none stands alone."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(member for member in typing.get_args(kind) if member is not type(None))
    return (kind,)


def _write(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        (item, _) = typing.get_args(_one_of(kind)[0])
        return [_write(item, one) for one in value]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, datetime):
        return rfc3339(value)
    own: Any = type(value)
    if not dataclasses.is_dataclass(value):
        return value
    written = {name: _write(hint, getattr(value, name)) for name, hint in _fields(own).items()}
    plain = {name: one for name, one in written.items() if one not in UNSET}
    return {"is": own.__name__, **plain} if len(_one_of(kind)) > 1 else plain


def _read(kind: Any, plain: Any) -> Any:
    members = _one_of(kind)
    if plain is None and members != (kind,):
        return None
    kind = members[0]
    if len(members) > 1:
        kind = next(member for member in members if member.__name__ == plain["is"])
    if isinstance(kind, typing.NewType):
        kind = kind.__supertype__
    if typing.get_origin(kind) is tuple:
        (item, _) = typing.get_args(kind)
        return tuple(_read(item, one) for one in plain or ())
    if dataclasses.is_dataclass(kind):
        present = plain or {}
        make: Any = kind
        return make(**{name: _read(hint, present.get(name)) for name, hint in _fields(make).items()})
    if issubclass(kind, enum.Enum):
        return kind[plain or "UNSPECIFIED"]
    if kind is datetime:
        return from_rfc3339(plain)
    return kind() if plain is None else plain
