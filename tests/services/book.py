"""Tools on a notebook that keep a book of their own: each run is a line of a file, so that what ran can be counted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tutelage.tools import CHANGES, READS, Tool, current_call, tool


class Book:
    """The tools, and the file in which they write down each run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Held shut by a test that needs `slow_write` to be under way.
        self.slow_may_end = asyncio.Event()
        self.slow_began = asyncio.Event()

    def write(self, tool: str, **input: Any) -> None:
        line = {"tool": tool, "input": input, "attempt": current_call().attempt, "address": current_call().address}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def runs(self, *tools: str) -> list[dict[str, Any]]:
        """Every run, or those of some tools, in their order."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [run for run in map(json.loads, lines) if not tools or run["tool"] in tools]

    def tools(self) -> list[Tool]:
        """`read_note` reads, `write_note` changes, `poke` says nothing of what it does."""
        book = self

        @tool(effects=READS)
        def read_note(name: str) -> str:
            """Read a note."""
            book.write("read_note", name=name)
            return f"{name}: water on Mondays"

        @tool(effects=CHANGES)
        def write_note(name: str, text: str) -> str:
            """Replace a note's text."""
            book.write("write_note", name=name, text=text)
            return f"wrote {name}"

        @tool
        def poke(name: str) -> dict[str, str]:
            """Poke a note."""
            book.write("poke", name=name)
            return {"poked": name}

        return [read_note, write_note, poke]

    def slow_write(self, timeout: float | None = None) -> Tool:
        """`slow_write` changes things, and does not return before the test lets it."""
        book = self

        @tool(effects=CHANGES, timeout=timeout)
        async def slow_write(name: str) -> str:
            """Replace a note's text, slowly."""
            book.write("slow_write", name=name)
            book.slow_began.set()
            await book.slow_may_end.wait()
            return f"wrote {name} slowly"

        return slow_write
