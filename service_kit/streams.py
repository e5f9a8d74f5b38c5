"""How a watch lives: it looks, sends what is new, waits to be told, and ends by itself.

Invariants: a bookmark comes from the stream's own generator, after everything that it covers; no database
transaction is open while a client reads (`look` returns a page); a stream ends with its caller's token
(R10), after about five minutes, and at shutdown, and a client goes on from its last cursor (R11).
"""

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar

from service_kit.errors import NotSignedIn
from service_kit.feeds import Bell, Hints

T = TypeVar("T")


class Streams:
    """The open streams of a server, and whether it shuts down. Belongs to the event loop's thread."""

    def __init__(
        self,
        *,
        poll_seconds: float = 1.0,
        bookmark_seconds: float = 15.0,
        longest_seconds: float = 300.0,
    ) -> None:
        self._poll_seconds = poll_seconds
        self._bookmark_seconds = bookmark_seconds
        self._longest_seconds = longest_seconds
        self._closing = asyncio.Event()
        self._open: set[Hints] = set()

    @property
    def closing(self) -> bool:
        """Whether the server shuts down: a stream of another make ends itself too."""
        return self._closing.is_set()

    def shut_down(self) -> None:
        """End every stream, each after what it is sending. Those that begin later end at once."""
        self._closing.set()
        for hints in self._open:
            hints.ring()

    async def wait_for_shutdown(self) -> None:
        """Wait until the server shuts down."""
        await self._closing.wait()

    async def follow(
        self,
        bell: Bell,
        topic: str,
        look: Callable[[], Awaitable[tuple[Sequence[T], bool]]],
        *,
        bookmark: Callable[[], T],
        expires_at: datetime,
        ends_by_itself: bool = True,
    ) -> AsyncGenerator[T, None]:
        """Yield what each `look` finds newer than the one before, until the stream has had its time.

        `look` returns a page, and whether it was cut: then it is asked again at once, else when the bell rings, and
        every second whether it rings or not. `bookmark` makes the event that says how far everything was sent: on a
        stream that was quiet for long, and at its end. Raises `NotSignedIn` when the token expires.
        """
        now = asyncio.get_running_loop().time
        # Jittered, so that not all end at once.
        longest = self._longest_seconds * random.uniform(0.9, 1.1) if ends_by_itself else math.inf  # noqa: S311
        end = now() + longest
        sent = now()
        with bell.listen(topic) as hints, self._ended_by_shutdown(hints):
            while True:
                news, cut = await look()
                for item in news:
                    _check_signed_in(expires_at)
                    yield item
                    sent = now()
                _check_signed_in(expires_at)
                if self.closing or now() >= end:
                    yield bookmark()
                    return
                if now() - sent >= self._bookmark_seconds:
                    yield bookmark()
                    sent = now()
                if not cut:
                    due = min(sent + self._bookmark_seconds, end) - now()
                    await hints.wait(max(0, min(self._poll_seconds, due, _seconds_until(expires_at))))

    @contextmanager
    def _ended_by_shutdown(self, hints: Hints) -> Iterator[None]:
        self._open.add(hints)
        try:
            yield
        finally:
            self._open.discard(hints)


def _check_signed_in(expires_at: datetime) -> None:
    if _seconds_until(expires_at) <= 0:
        raise NotSignedIn("The token has expired. Sign in again, and go on from the last cursor.")


def _seconds_until(moment: datetime) -> float:
    return (moment - datetime.now(UTC)).total_seconds()
