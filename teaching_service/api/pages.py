"""Pages of lists: cut by number and by bytes, never within an item (R12, settled 17)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from service_kit.messages import MOST_LIST_BYTES, within
from service_kit.paging import PageCodec

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def page(
    found: Sequence[T], most: int, key: str, message_of: Callable[[T], M], place_of: Callable[[T], int | str]
) -> tuple[Sequence[M], str]:
    """Return the messages of a page, and the token of the next one; none where that was all."""
    shown = within([message_of(one) for one in found], MOST_LIST_BYTES)
    more = len(shown) < len(found) or len(found) == most
    return shown, PageCodec.encode(key, place_of(found[len(shown) - 1])) if shown and more else ""
