"""What the nursery story needs around it: the processes and the people.

All of it is real: both services on SQLite, a tool host in a process of its own, a token for each person, and a folder
of notes.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tutelage import Teaching, Tutelage, connect, connect_teaching
from tutelage.runtime.v1.tools_pb2 import ListToolsRequest
from tutelage.service_process import ServiceProcess
from tutelage.token import Kind, make_token, signing_key

HERE = Path(__file__).parent
MODELS = ("gardener", "tagger")
# How long anything may take that no person is asked about.
DEADLINE_SECONDS = 120.0
# A host that is gone for so long has left its calls unfinished. Short, for the telling.
RECONNECT_SECONDS = "3"


class Host:
    """The tool host's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, stage: Stage) -> Self:
        """Start it on the stage's notes."""
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


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who is signed in at both services."""

    runtime: Tutelage
    teaching: Teaching


class Stage:
    """A folder with two services that serve from it."""

    host: Host

    def __init__(
        self, folder: Path, runtime: ServiceProcess, teaching: ServiceProcess, cleanup: AsyncExitStack, model: str = ""
    ) -> None:
        self.folder = folder
        self._model = model
        self.runtime = runtime
        self.teaching = teaching
        self.notes = folder / "notes"
        self.accident = folder / "die-after-effect"
        self._cleanup = cleanup
        self._replies_before = {model: len(self._requests(model)) for model in MODELS}
        self._runs_before = len(lines_of(self._runs))
        self._tags_before = len(lines_of(self._tags))

    def token(self, who: str, kind: Kind, *roles: str) -> str:
        """Sign somebody in, with the folder's own key."""
        return make_token(signing_key(self.folder), sub=who, kind=kind, roles=roles)

    async def person(self, who: str, *roles: str) -> Person:
        """Sign a person in, over connections of their own."""
        token = self.token(who, "person", *roles)
        return Person(
            await self._cleanup.enter_async_context(connect(self.runtime.address, token)),
            await self._cleanup.enter_async_context(connect_teaching(self.teaching.address, token)),
        )

    async def start_host(self) -> None:
        """Start the tool host, or another one where it has died."""
        self.host = await Host.start(self)
        self._cleanup.push_async_callback(self.host.stop)

    async def tools_on_offer(self, runtime: Tutelage) -> None:
        """Look until the host's hello has been taken: no event tells of tools."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (await runtime.tools.ListTools(ListToolsRequest())).tools:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    @property
    def scripted(self) -> bool:
        """Whether the models say what their files say, so that their words and their steps are known beforehand."""
        return not self._model

    def model(self, name: str) -> str:
        """Return the model of one of the story's agents."""
        return self._model or f"scripted:{name}"

    def note(self, name: str) -> str:
        """Return a note as it is on disk."""
        return (self.notes / name).read_text()

    def replies_paid(self, model: str) -> int:
        """Count the replies in a scripted model's own file."""
        return len(self._requests(model)) - self._replies_before[model]

    def system_sent(self, model: str) -> list[str]:
        """Return the system prompt that a model was sent last, part by part, by its own file."""
        system: str = json.loads(self._requests(model)[-1])["system"]
        return system.split("\n\n")

    def tool_runs(self) -> list[str]:
        """Name the tools that ran, by the tools' own file."""
        return [json.loads(line)["tool"] for line in lines_of(self._runs)[self._runs_before :]]

    def tags(self) -> list[str]:
        """Return the tags that were printed."""
        return lines_of(self._tags)[self._tags_before :]

    def _requests(self, model: str) -> list[str]:
        return lines_of(self.folder / "scripts" / f"{model}.requests.jsonl")

    @property
    def _runs(self) -> Path:
        return self.folder / "tool-runs.jsonl"

    @property
    def _tags(self) -> Path:
        return self.folder / "tags.txt"


def lines_of(path: Path) -> list[str]:
    """Return a file's lines; none where there is no file."""
    return path.read_text().splitlines() if path.exists() else []


@asynccontextmanager
async def set_up(folder: Path, model: str = "") -> AsyncIterator[Stage]:
    """Lay out the notes and the scripts, and start the services; stop all that was started at the end.

    `model` is what both agents run on instead of their scripts.
    """
    _lay_out(folder)
    async with AsyncExitStack() as cleanup:
        teaching = await ServiceProcess.start("teaching", folder)
        cleanup.push_async_callback(teaching.stop)
        settings = {
            "TUTELAGE_RUNTIME_SCRIPTS_DIR": str(folder / "scripts"),
            "TUTELAGE_RUNTIME_RECONNECT_SECONDS": RECONNECT_SECONDS,
            "TUTELAGE_RUNTIME_TEACHING_ADDRESS": teaching.address,
        }
        runtime = await ServiceProcess.start("runtime", folder, settings=settings)
        cleanup.push_async_callback(runtime.stop)
        yield Stage(folder, runtime, teaching, cleanup, model)


def _lay_out(folder: Path) -> None:
    shutil.copytree(HERE / "notes", folder / "notes", dirs_exist_ok=True)
    (folder / "scripts").mkdir(exist_ok=True)
    for model in MODELS:
        shutil.copy(HERE / f"{model}.yaml", folder / "scripts" / f"{model}.yaml")
    (folder / "die-after-effect").unlink(missing_ok=True)
