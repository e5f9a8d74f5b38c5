"""Pages of lists: how much a page has, and where the next one goes on.

A list is ordered by the number in which things were made (settled 17), so a page token is the last number
or name that was shown, bound to the request that it was given for.
"""

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from service_kit.errors import InvalidField
from service_kit.messages import MOST_LIST_BYTES, within

T = TypeVar("T")
M = TypeVar("M", bound=Message)

MOST_ON_A_PAGE = 1_000
USUAL_ON_A_PAGE = 100


def page_size(asked: int, field: str = "page_size") -> int:
    """Tell how many a page has: 100 where nothing was asked, never more than 1,000.

    Raises `InvalidField` below 0.
    """
    if asked < 0:
        raise InvalidField([(field, "must not be below 0")])
    return min(asked, MOST_ON_A_PAGE) if asked else USUAL_ON_A_PAGE


class PageCodec:
    """Makes page tokens of places in a list, and places of page tokens."""

    @staticmethod
    def encode(filter_key: str, last: int | str) -> str:
        """Make the token of the page after `last`, for this request alone."""
        place = json.dumps(last).encode()
        return urlsafe_b64encode(_check(filter_key, place) + place).decode().rstrip("=")

    @staticmethod
    def decode(filter_key: str, token: str) -> int | str | None:
        """Tell after what the page begins; None, with an empty token: at the start of the list.

        Raises `InvalidField` for a token that was never given, or given for another request.
        """
        if not token:
            return None
        try:
            raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        except ValueError:
            raw = b""
        check, place = raw[:8], raw[8:]
        if check != _check(filter_key, place):
            raise InvalidField([("page_token", "was not given for this request")])
        last: int | str = json.loads(place)
        return last


def page(
    found: Sequence[T], most: int, key: str, message_of: Callable[[T], M], place_of: Callable[[T], int | str]
) -> tuple[Sequence[M], str]:
    """Return the messages of a page, cut by number and by bytes (R12), and the token of the next one.

    No token where `found`, of which there may be `most`, was all.
    """
    shown = within([message_of(one) for one in found], MOST_LIST_BYTES)
    more = len(shown) < len(found) or len(found) == most
    return shown, PageCodec.encode(key, place_of(found[len(shown) - 1])) if shown and more else ""


def _check(filter_key: str, place: bytes) -> bytes:
    digest = hashlib.sha256(b"tutelage.page\0" + hashlib.sha256(filter_key.encode()).digest() + place)
    return digest.digest()[:8]
