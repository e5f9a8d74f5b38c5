"""Messages of the contract that people write as files: YAML, or JSON, which is YAML as well.

The fields have the contract's names. A value is read as its field's type says, never by how YAML would take it: the
version `2` and the name `no` are the texts that they look like. Everything that is wrong is named at once, each with
its line; so is what the service refuses of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import yaml
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tutelage.cli.exits import Exit
from tutelage.cli.problems import CommandError
from tutelage.cli.texts import called, text_of

Wanted = TypeVar("Wanted", bound=Message)


@dataclass(frozen=True, slots=True)
class Written(Generic[Wanted]):
    """A message as a file says it, and on which line each of its fields stands."""

    message: Wanted
    name: str
    lines: Mapping[str, int]

    def place(self, path: str) -> str:
        """Name a field with its line, or with that of the nearest one around it."""
        around = path
        while around and around not in self.lines:
            around = around[: max(around.rfind("."), around.rfind("["), 0)]
        return f"line {self.lines[around]}, {path}" if around else path


def message_of(name: str, message: Wanted) -> Written[Wanted]:
    """Read a file into a message. Raises CommandError naming everything that is wrong, and where."""
    text = text_of(name)
    if text.lstrip().startswith("{"):
        # YAML takes no tab between values. JSON does, and has none within them.
        text = text.replace("\t", " ")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise _refusal(name, [_yaml_problem(error)]) from None
    if root is None:
        raise _refusal(name, ["there is nothing in it"])
    reading = _Reading()
    reading.read(root, message, "")
    if reading.wrong:
        raise _refusal(name, reading.wrong)
    return Written(message, called(name), reading.lines)


@dataclass(slots=True)
class _Reading:
    """What was read of a file so far."""

    lines: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def read(self, node: Any, message: Message, path: str) -> None:
        """Read a mapping into a message. Nothing stands for a message without fields."""
        message.SetInParent()
        if _is_nothing(node):
            return
        if not isinstance(node, yaml.MappingNode):
            self._refuse(node, path, f"here stands {_kind(node)}, and not fields by name")
            return
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            where = f"{path}.{name}" if path else name
            known = message.DESCRIPTOR.fields_by_name.get(name)
            if known is None:
                self._refuse(key, where, _unknown(name, message.DESCRIPTOR.fields_by_name))
            elif name in seen or (other := _beside(known, message)):
                self._refuse(key, where, "it stands twice" if name in seen else f"it cannot stand beside {other}")
            else:
                self.lines[where] = _line(key)
                self._field(value, message, known, where)
            seen.add(name)

    def _field(self, node: Any, message: Message, known: Any, path: str) -> None:
        if not known.is_repeated:
            self._value(node, message, known, path)
        elif isinstance(node, yaml.SequenceNode):
            for place, each in enumerate(node.value):
                self.lines[f"{path}[{place}]"] = _line(each)
                self._item(each, message, known, f"{path}[{place}]")
        elif not _is_nothing(node):
            self._refuse(node, path, f"here stands {_kind(node)}, and not a list")

    def _item(self, node: Any, message: Message, known: Any, path: str) -> None:
        items = getattr(message, known.name)
        if known.message_type is not None:
            self.read(node, items.add(), path)
        elif (value := self._scalar(node, known, path)) is not None:
            items.append(value)

    def _value(self, node: Any, message: Message, known: Any, path: str) -> None:
        if known.message_type is not None:
            self.read(node, getattr(message, known.name), path)
        elif (value := self._scalar(node, known, path)) is not None:
            setattr(message, known.name, value)

    def _scalar(self, node: Any, known: Any, path: str) -> Any:
        """Return a value as its field's type takes it; None, and say why, where that does not."""
        if not isinstance(node, yaml.ScalarNode):
            self._refuse(node, path, f"here stands {_kind(node)}, and not one value")
            return None
        text = "" if _is_nothing(node) else node.value
        try:
            return _converted(text, known)
        except ValueError as error:
            self._refuse(node, path, str(error))
            return None

    def _refuse(self, node: Any, path: str, what: str) -> None:
        self.wrong.append(f"line {_line(node)}, {path or 'the whole'}: {what}")


def _converted(text: str, known: Any) -> Any:
    """Take a value as it was written. Raises ValueError with what is wrong of it."""
    match known.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            # JSON writes letters beyond the first 65,536 as two halves.
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        case FieldDescriptor.CPPTYPE_BOOL if text in ("true", "false"):
            return text == "true"
        case FieldDescriptor.CPPTYPE_BOOL:
            raise ValueError("it takes true or false")
        case FieldDescriptor.CPPTYPE_ENUM:
            return _enum_value(text, known)
        case _:
            if not text.isascii() or not text.isdigit() or int(text) >= 2**32:
                raise ValueError("it takes a whole number")
            return int(text)


def _enum_value(text: str, known: Any) -> int:
    values = {name: value.number for name, value in known.enum_type.values_by_name.items()}
    if text not in values:
        raise ValueError(f"it takes one of {', '.join(values)}")
    return int(values[text])


def _beside(known: Any, message: Message) -> str | None:
    """Name the field that is set where only one of them can be."""
    oneof = known.containing_oneof
    return message.WhichOneof(oneof.name) if oneof is not None else None


def _unknown(name: str, fields: Iterable[str]) -> str:
    known = list(fields)
    near = difflib.get_close_matches(name, known, 1)
    return (
        f"there is no such field; did you mean {near[0]}?"
        if near
        else f"there is no such field; there are {', '.join(known)}"
    )


def _is_nothing(node: Any) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _kind(node: Any) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else f"`{node.value}`"


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"line {mark.line + 1}: {what}" if mark is not None else what


def _refusal(name: str, wrong: Sequence[str]) -> CommandError:
    return CommandError(f"{called(name)} cannot be taken: {'; '.join(wrong)}.", Exit.USAGE)
