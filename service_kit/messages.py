"""Values as the contract's messages, and back where names suffice.

A dataclass's fields have the names of its message's, so one function fills them all; what differs is told by who calls.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

M = TypeVar("M", bound=Message)

# What makes the message of a value that has a form of its own, by the value's type.
OwnForms = Mapping[type, Callable[[Any], Message]]

# Lists are cut by bytes as well as by number, never within an item (R12).
MOST_LIST_BYTES = 3 * 1024 * 1024


def filled(
    message: M, value: DataclassInstance, own_forms: OwnForms = MappingProxyType({}), but: Collection[str] = ()
) -> M:
    """Fill a message with a dataclass's fields of the same names.

    Fields that the message has not are passed over, and those that its caller fills: `but`.
    """
    known = message.DESCRIPTOR.fields_by_name
    for described in dataclasses.fields(value):
        name, content = described.name, getattr(value, described.name)
        if name in but or name not in known or content is None or content == ():
            continue
        # Of several outcomes only the one that was chosen is set.
        if content is not False or known[name].containing_oneof is None:
            _fill(message, known[name], content, own_forms)
    return message


def _fill(message: Message, field: Any, content: Any, own_forms: OwnForms) -> None:
    name = field.name
    if own_form := own_forms.get(type(content)):
        getattr(message, name).CopyFrom(own_form(content))
    elif isinstance(content, datetime):
        getattr(message, name).FromDatetime(content)
    elif isinstance(content, enum.Enum):
        number = content.value if field.enum_type is None else number_of(field.enum_type, content)
        setattr(message, name, number)
    elif isinstance(content, tuple):
        for one in content:
            if _is_a_message(one):
                filled(getattr(message, name).add(), one, own_forms)
            else:
                getattr(message, name).append(one)
    elif _is_a_message(content):
        getattr(message, name).SetInParent()
        filled(getattr(message, name), content, own_forms)
    else:
        setattr(message, name, content)


def _is_a_message(content: object) -> TypeGuard[DataclassInstance]:
    return dataclasses.is_dataclass(content)


def number_of(kind: EnumDescriptor, member: enum.Enum) -> int:
    """Return the contract's number of an enum's member: its names carry their enum's prefix."""
    prefix = kind.values[0].name.removesuffix("UNSPECIFIED")
    number: int = kind.values_by_name[prefix + member.name].number
    return number


def by_name(kind: Any, message_enum: Any, number: int) -> Any:
    """Return an enum's member by the contract's number; UNSPECIFIED where this release does not know it."""
    if number not in message_enum.values():
        return kind.UNSPECIFIED
    prefix = message_enum.Name(0).removesuffix("UNSPECIFIED")
    return kind[message_enum.Name(number).removeprefix(prefix)]


def within(messages: Sequence[M], most_bytes: int) -> Sequence[M]:
    """Return the first messages that together stay within a size: at least one, never a part of one."""
    size = 0
    for place, message in enumerate(messages):
        size += message.ByteSize()
        if size > most_bytes and place > 0:
            return messages[:place]
    return messages
