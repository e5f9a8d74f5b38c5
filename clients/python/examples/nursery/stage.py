"""What the nursery story needs around it: the processes, the people, the terminal.

All of it is real: a runtime service on SQLite, a tool host in a process of its own, a token for each person,
and a folder of notes.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from tutelage import Tutelage, connect
from tutelage.service_process import ServiceProcess
from tutelage.shown import shown
from tutelage.token import Kind, make_token, signing_key

HERE = Path(__file__).parent
# How long anything may take that no person is asked about.
DEADLINE_SECONDS = 60.0
# A host that is gone for so long has left its calls unfinished. Short, for the telling.
RECONNECT_SECONDS = "3"


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
        self._console.print()
        self._console.rule(Text(words, style="bold"), align="left")

    def tell(self, words: str) -> None:
        self._console.print(Text(words))

    def quote(self, who: str, words: str) -> None:
        self._console.print(Text(f"{who:>9}  ", style="bold").append(shown(words, 300), style="not bold"))

    def show(self, title: str, body: str) -> None:
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


class Host:
    """The tool host's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, stage: Stage) -> Self:
        own = {
            "TUTELAGE_TO_RUNTIME": stage.runtime.address,
            "TUTELAGE_TOKEN": stage.token("nursery-host", "service", "hosts"),
            "NURSERY_DIE_AFTER_EFFECT": str(stage.accident),
        }
        with (stage.folder / "host.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(HERE / "tools.py"),
                str(stage.notes),
                env={**os.environ, **own},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return cls(process)

    async def died(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self._process.wait()

    async def stop(self) -> None:
        """Let it finish, or end it by force."""
        if self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class Stage:
    """A folder with a runtime that serves from it."""

    def __init__(self, folder: Path, runtime: ServiceProcess, cleanup: AsyncExitStack) -> None:
        self.folder = folder
        self.runtime = runtime
        self.notes = folder / "notes"
        self.accident = folder / "die-after-effect"
        self._cleanup = cleanup
        self._replies_before = len(lines_of(self._requests))
        self._runs_before = len(lines_of(self._runs))

    def token(self, who: str, kind: Kind, *roles: str) -> str:
        return make_token(signing_key(self.folder), sub=who, kind=kind, roles=roles)

    async def person(self, who: str, *roles: str) -> Tutelage:
        """Sign a person in, over a connection of their own."""
        return await self._cleanup.enter_async_context(connect(self.runtime.address, self.token(who, "person", *roles)))

    async def host(self) -> Host:
        """Start a tool host."""
        host = await Host.start(self)
        self._cleanup.push_async_callback(host.stop)
        return host

    def note(self, name: str) -> str:
        return (self.notes / name).read_text()

    def replies_paid(self) -> int:
        """Count the replies in the scripted model's own file."""
        return len(lines_of(self._requests)) - self._replies_before

    def tool_runs(self) -> list[str]:
        """Name the tools that ran, by the tools' own file."""
        return [json.loads(line)["tool"] for line in lines_of(self._runs)[self._runs_before :]]

    @property
    def _requests(self) -> Path:
        return self.folder / "scripts" / "gardener.requests.jsonl"

    @property
    def _runs(self) -> Path:
        return self.folder / "tool-runs.jsonl"


def lines_of(path: Path) -> list[str]:
    """Return a file's lines; none where there is no file."""
    return path.read_text().splitlines() if path.exists() else []


@asynccontextmanager
async def set_up(folder: Path) -> AsyncIterator[Stage]:
    """Lay out the notes and the script, and start the runtime; stop all that was started at the end."""
    _lay_out(folder)
    settings = {
        "TUTELAGE_RUNTIME_SCRIPTS_DIR": str(folder / "scripts"),
        "TUTELAGE_RUNTIME_RECONNECT_SECONDS": RECONNECT_SECONDS,
    }
    async with AsyncExitStack() as cleanup:
        runtime = await ServiceProcess.start("runtime", folder, settings=settings)
        cleanup.push_async_callback(runtime.stop)
        yield Stage(folder, runtime, cleanup)


def _lay_out(folder: Path) -> None:
    shutil.copytree(HERE / "notes", folder / "notes", dirs_exist_ok=True)
    (folder / "scripts").mkdir(exist_ok=True)
    shutil.copy(HERE / "gardener.yaml", folder / "scripts" / "gardener.yaml")
    (folder / "die-after-effect").unlink(missing_ok=True)
