"""The nursery's tool host: a folder of notes, to be read and written, and a printer of tags.

    TUTELAGE_TO_RUNTIME=127.0.0.1:7420 TUTELAGE_TOKEN=… python tools.py NOTES_FOLDER

Each run of a tool is a line in `tool-runs.jsonl` beside the folder, written as it begins: so that the story
can count what really ran. Each printed tag is a line in `tags.txt` there. SIGTERM drains the host.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field
from tutelage import CHANGES, READS, ToolHost, connect, current_call

# The story's accident. While the file that this names exists, the next note that was written kills this
# process: after its effect, and before anybody was told its result.
DIE_AFTER_EFFECT = "NURSERY_DIE_AFTER_EFFECT"

Name = Annotated[str, Field(description="The note's file name, like todo.md.")]


def nursery(notes: Path) -> ToolHost:
    """Make the host for a folder of notes."""
    host = ToolHost("nursery")

    @host.tool(effects=READS)
    def list_notes() -> list[str]:
        """List the notes by their file names."""
        _count("list_notes")
        return sorted(path.name for path in notes.glob("*.md"))

    @host.tool(effects=READS)
    def read_note(name: Name) -> str:
        """Read the text of one note."""
        _count("read_note")
        return _path(name).read_text()

    @host.tool(effects=CHANGES, timeout=20)
    def write_note(name: Name, text: Annotated[str, Field(description="The whole new text.")]) -> str:
        """Replace the text of one note, or make it."""
        _count("write_note")
        path = _path(name)
        draft = path.with_suffix(".draft")
        draft.write_text(text)
        draft.rename(path)
        _die_if_told_to()
        return f"wrote {name}, {len(text)} characters"

    @host.tool(effects=CHANGES, timeout=20)
    def print_tag(words: Annotated[str, Field(description="What the tag says.", pattern=r"^[^\n]+$")]) -> str:
        """Print the tag that hangs on a plant."""
        _count("print_tag")
        with (notes.parent / "tags.txt").open("a") as printer:
            printer.write(words + "\n")
        return f"printed {words}"

    def _path(name: str) -> Path:
        if not re.fullmatch(r"[a-z0-9_-]+\.md", name):
            raise ValueError(f"{name!r} is no note's name: small letters, digits, - and _, then .md")
        return notes / name

    def _count(tool: str) -> None:
        run = {"tool": tool, "key": current_call().idempotency_key, "attempt": current_call().attempt}
        with (notes.parent / "tool-runs.jsonl").open("a") as file:
            file.write(json.dumps(run) + "\n")

    return host


def _die_if_told_to() -> None:
    flag = os.environ.get(DIE_AFTER_EFFECT)
    if flag and Path(flag).exists():
        Path(flag).unlink()
        os.kill(os.getpid(), signal.SIGKILL)


async def main(notes: Path) -> None:
    """Serve until SIGTERM."""
    host = nursery(notes)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, host.drain)
    async with connect(os.environ["TUTELAGE_TO_RUNTIME"], os.environ["TUTELAGE_TOKEN"]) as runtime:
        await host.serve(runtime)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(main(Path(sys.argv[1])))
