"""Lists, read page by page."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from tutelage.cli.layout import print_aside

ALL = sys.maxsize
MOST_IN_A_PAGE = 1_000


class _Asks(Protocol):
    page_size: int
    page_token: str


class _Answers(Protocol):
    next_page_token: str


Request = TypeVar("Request", bound=_Asks)
Page = TypeVar("Page", bound=_Answers)


async def pages(ask: Callable[[Request], Awaitable[Page]], request: Request, most: int = ALL) -> AsyncIterator[Page]:
    """Yield a list's pages in order, until it ends or has brought `most`."""
    while most > 0:
        request.page_size = min(most, MOST_IN_A_PAGE)
        page = await ask(request)
        yield page
        if not page.next_page_token:
            return
        most -= _length(page)
        request.page_token = page.next_page_token


async def listed(ask: Callable[[Request], Awaitable[Page]], request: Request, most: int = ALL) -> Page:
    """Read a list as one answer. Its `next_page_token` is empty where that is all there is."""
    whole: Page | None = None
    async for page in pages(ask, request, most):
        if whole is None:
            whole = page
        else:
            whole.MergeFrom(page)  # type: ignore[attr-defined]
            whole.next_page_token = page.next_page_token
    assert whole is not None
    return whole


def say_of_more(page: _Answers) -> None:
    """Say that a list goes on, where it does."""
    if page.next_page_token:
        print_aside("There are more: say --most.")


def _length(page: object) -> int:
    assert isinstance(page, Message)
    [items] = [field.name for field in page.DESCRIPTOR.fields if field.is_repeated]
    return len(getattr(page, items))
