"""Lists read whole, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar


class _Page(Protocol):
    @property
    def next_page_token(self) -> str: ...


Page = TypeVar("Page", bound=_Page)


async def pages(ask: Callable[[str], Awaitable[Page]]) -> AsyncIterator[Page]:
    """Yield every page of a list, in order. `ask` is given the token of each: empty for the first."""
    page = await ask("")
    yield page
    while page.next_page_token:
        page = await ask(page.next_page_token)
        yield page
