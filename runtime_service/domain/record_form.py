"""How a record becomes two texts, facts and words, and is read back from them.

Facts are ids, numbers, names, states, times, principals, proofs, rules and hashes; words are what somebody
wrote or a tool was handed or gave back. They are stored apart, so that words can be erased while facts
stay, and stay proven (R5.4). A field is words where its type says `Words`; docs/journal.md has the table
and the encoding.

- Facts are canonical JSON of the fields by their names in the contract. What is empty, zero or not there is
  left out, so a field that is added later changes no old digest.
- Words are one flat JSON object: the path of each field that is not empty, and its text.
- The texts are written straight from the fields, by writers made once for each class: sealing is on the hot
  path.
"""

import enum
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from datetime import datetime
from json.encoder import encode_basestring as _quoted
from operator import attrgetter
from typing import Annotated, Any, NewType, Union, get_args, get_origin, get_type_hints

from runtime_service.domain import canonical_json
from runtime_service.domain.rules import (
    ApprovalRule,
    Setting,
    rule_fields,
    rule_of,
    setting_fields,
    setting_of,
)
from runtime_service.domain.times import from_rfc3339, rfc3339

# Marks a field as words. Everything else is a fact.
Words = Annotated[str, "words"]

_Found = list[tuple[str, str]]
_Write = Callable[[Any], str]  # the fact as JSON text; empty: left out
_Gather = Callable[[Any, str, _Found], None]  # value, path, what was found so far
_Read = Callable[[Any, Mapping[str, str], str], Any]  # fact or None, all words, path


class Form:
    """One class's two texts."""

    def __init__(self, cls: type) -> None:
        self._cls = cls
        hints = get_type_hints(cls, include_extras=True)
        parts = {name: _part(hint) for name, hint in hints.items()}
        self._read = [(name, part.read) for name, part in parts.items()]
        self._gather = [(attrgetter(name), name, part.gather) for name, part in parts.items() if part.gather]
        self._write = [
            (attrgetter(name), f'"{name}":', part.write) for name, part in sorted(parts.items()) if part.write
        ]

    def facts(self, value: Any) -> str:
        """Write the facts, as canonical JSON."""
        found = []
        for get, name, write in self._write:
            text = write(get(value))
            if text:
                found.append(name + text)
        return "{" + ",".join(found) + "}"

    def words(self, value: Any) -> str:
        """Write the words, as canonical JSON. Empty: it has none."""
        found: _Found = []
        self.gather(value, "", found)
        if not found:
            return ""
        return "{" + ",".join([f'"{path}":{_quoted(text)}' for path, text in sorted(found)]) + "}"

    def read(self, facts: str, words: str) -> Any:
        """Read the value back. Without words (none, or erased) they are empty."""
        return self.build(json.loads(facts), json.loads(words) if words else {}, "")

    def gather(self, value: Any, path: str, found: _Found) -> None:
        """Find a value's words below a path."""
        for get, name, gather in self._gather:
            gather(get(value), path + name, found)

    def build(self, facts: Mapping[str, Any], words: Mapping[str, str], path: str) -> Any:
        """Build a value from its facts, and its words below a path. Facts not known here are passed over."""
        return self._cls(**{name: read(facts.get(name), words, path + name) for name, read in self._read})

    @property
    def has_words(self) -> bool:
        """Some field, at any depth, is words."""
        return bool(self._gather)


class _Part:
    """How one field is written and read. No `write`: it has no facts. No `gather`: it has no words."""

    __slots__ = ("gather", "read", "write")

    def __init__(self, write: _Write | None, read: _Read, gather: _Gather | None = None) -> None:
        self.write, self.read, self.gather = write, read, gather


def _part(hint: Any) -> _Part:
    if isinstance(hint, NewType):
        return _part(hint.__supertype__)
    if hint == Words:
        return _Part(None, lambda _, words, path: words.get(path, ""), _gather_text)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) is tuple:
        return _list_part(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (each for each in get_args(hint) if each is not type(None))
        return _optional_words() if inner == Words else _optional_part(_part(inner))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum_part(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return _message_part(hint)
    raise TypeError(f"a record cannot hold {hint}")


def _gather_text(value: str | None, path: str, found: _Found) -> None:
    if value:
        found.append((path, value))


def _optional_words() -> _Part:
    """One of several outcomes: that it was chosen is a fact, and outlives its words."""
    return _Part(
        lambda value: "" if value is None else '""',
        lambda fact, words, path: None if fact is None else words.get(path, ""),
        _gather_text,
    )


def _optional_part(part: _Part) -> _Part:
    write, read, inner = part.write, part.read, part.gather
    assert write is not None

    def gather(value: Any, path: str, found: _Found) -> None:
        if inner and value is not None:
            inner(value, path, found)

    return _Part(
        lambda value: "" if value is None else write(value),
        lambda fact, words, path: None if fact is None else read(fact, words, path),
        gather if inner else None,
    )


def _list_part(hint: Any) -> _Part:
    """Of texts or messages. Nothing in it is left out: a place in a list counts."""
    part = _part(hint)
    write, read, inner = _quoted if hint is str else part.write, part.read, part.gather
    assert write is not None

    def gather(value: tuple[Any, ...], path: str, found: _Found) -> None:
        if inner:
            for place, item in enumerate(value):
                inner(item, f"{path}/{place}", found)

    return _Part(
        lambda value: "[" + ",".join([write(item) for item in value]) + "]" if value else "",
        lambda fact, words, path: tuple(read(item, words, f"{path}/{place}") for place, item in enumerate(fact or ())),
        gather if inner else None,
    )


def _message_part(cls: type) -> _Part:
    form = Form(cls)
    return _Part(
        form.facts,
        lambda fact, words, path: form.build(fact or {}, words, path + "/"),
        (lambda value, path, found: form.gather(value, path + "/", found)) if form.has_words else None,
    )


def _enum_part(cls: type[enum.Enum]) -> _Part:
    """By its value where that is a text, else by its name. What is unspecified is left out."""
    names = {member: member.value if isinstance(member.value, str) else member.name for member in cls}
    texts = {member: "" if name == "UNSPECIFIED" else f'"{name}"' for member, name in names.items()}
    members: dict[str | None, enum.Enum] = {name: member for member, name in names.items()}
    if "UNSPECIFIED" in members:
        members[None] = members["UNSPECIFIED"]
    return _Part(texts.__getitem__, lambda fact, *_: members[fact])


def _own_part(fields: Callable[[Any], Any], of: Callable[[Any], Any]) -> _Part:
    return _Part(lambda value: canonical_json.encode(fields(value)), lambda fact, *_: of(fact or {}))


_PLAIN: dict[Any, _Part] = {
    str: _Part(lambda value: _quoted(value) if value else "", lambda fact, *_: fact or ""),
    int: _Part(lambda value: str(value) if value else "", lambda fact, *_: fact or 0),
    bool: _Part(lambda value: "true" if value else "", lambda fact, *_: bool(fact)),
    datetime: _Part(lambda value: f'"{rfc3339(value)}"', lambda fact, *_: from_rfc3339(fact)),
    ApprovalRule: _own_part(rule_fields, rule_of),
    Setting: _own_part(setting_fields, setting_of),
}
