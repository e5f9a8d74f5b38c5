"""Where the story is told, and where the person sits. What was promised is held to here."""

from __future__ import annotations

import asyncio
import sys

from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from tutelage.shown import shown


class StoryError(Exception):
    """Something did not come out as told."""


def expect(true: bool, told: str) -> None:
    """Hold the story to what it tells."""
    if not true:
        raise StoryError(f"It should have been so, and was not: {told}")


class Terminal:
    """Where the story is told, and where the person sits. With `yes` it answers for them."""

    def __init__(self, yes: bool) -> None:
        self.yes = yes
        self._console = Console(highlight=False, soft_wrap=True)

    def title(self, words: str) -> None:
        """Begin a part of the story."""
        self._console.print()
        self._console.rule(Text(words, style="bold"), align="left")

    def tell(self, words: str) -> None:
        """Tell something in the story's own words."""
        self._console.print(Text(words))

    def quote(self, who: str, words: str) -> None:
        """Tell what somebody says, or a line of a journal: words of others, made fit to be shown."""
        self._console.print(Text(f"{who:>9}  ", style="bold").append(shown(words, 300), style="not bold"))

    def show(self, title: str, body: str) -> None:
        """Show what stands on somebody's screen."""
        self._console.print(Panel(Text(body), title=Text(title), title_align="left", expand=False))

    async def asks(self, question: str, meant: bool) -> bool:
        """Ask yes or no; `meant` is what the story would have, and what it takes where nobody sits here."""
        said = await self.ask(f"{question} (y/n)", "y" if meant else "n")
        return said.lower() in ("y", "yes")

    async def ask(self, question: str, default: str) -> str:
        """Ask for a line; an empty one is the default."""
        self._console.print(Text(f"  ? {question} [{shown(default)}] ", style="bold"), end="")
        if self.yes:
            self._console.print(Text(default))
            return default
        line = await _line()
        if not line:
            raise StoryError("Nobody answered at the prompt. Use --yes (make run YES=1) without a terminal.")
        return line.strip() or default


async def _line() -> str:
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    loop.add_reader(sys.stdin, typed.set)
    try:
        await typed.wait()
        return sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin)
