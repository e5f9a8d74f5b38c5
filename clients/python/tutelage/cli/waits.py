"""Waiting: for how long, what is said meanwhile, and how to go on after it was stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from rich.console import Console
from rich.text import Text

from tutelage.cli.exits import Exit
from tutelage.cli.problems import CommandError
from tutelage.shown import shown

PROGRESS_CHARACTERS = 100


@asynccontextmanager
async def waiting(timeout: float | None, to_go_on: Callable[[], str]) -> AsyncIterator[Progress]:
    """Bound a wait. Raises CommandError where its time is over or Ctrl-C ends it, with the command to go on by."""
    progress = Progress()
    try:
        async with asyncio.timeout(timeout):
            with progress.shown():
                yield progress
    except TimeoutError:
        raise CommandError(f"{timeout:g} s are over. To go on: `{to_go_on()}`", Exit.TIMED_OUT) from None
    except asyncio.CancelledError:
        raise CommandError(f"Stopped. To go on: `{to_go_on()}`", Exit.STOPPED) from None


class Progress:
    """A line on standard error that says what goes on, while it does; nothing where that is no terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self._status = console.status("") if console.is_terminal else None

    def say(self, line: str) -> None:
        """Say what goes on now."""
        if self._status:
            self._status.update(Text(shown(line, PROGRESS_CHARACTERS)))

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show it for as long as the block lasts."""
        if self._status:
            self._status.start()
        try:
            yield
        finally:
            if self._status:
                self._status.stop()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Take it away for as long as the block prints something."""
        if self._status:
            self._status.stop()
        yield
        if self._status:
            self._status.start()
