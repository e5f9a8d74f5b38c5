"""Somebody at a desk: commands, run as processes against a service that is real."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import Process
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from tests.client.commands import Ran, clean, ran, started
from tests.client.runtime_double import WAIT_SECONDS
from tests.services.service import Service


class Desk:
    """The command line, under anybody's account."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service = service
        self.folder = folder

    def settings(self, who: str) -> dict[str, str]:
        return {"TUTELAGE_TO_RUNTIME": self.service.address, "TUTELAGE_TOKEN": self.service.token(who)}

    async def runs(self, *arguments: str, who: str = "gus", stdin: str = "", **terminal: str) -> Ran:
        """Run a command to its end."""
        return await ran(*arguments, cwd=self.folder, stdin=stdin, **self.settings(who), **terminal)

    async def done(self, *arguments: str, who: str = "gus", stdin: str = "") -> str:
        """Run a command to a good end, and return what it printed."""
        made = await self.runs(*arguments, who=who, stdin=stdin)
        assert made.code == 0, made
        return made.out

    async def told(self, *arguments: str, who: str = "gus") -> dict[str, Any]:
        """Run a command to a good end, and return the JSON object that it printed."""
        told: dict[str, Any] = json.loads(await self.done(*arguments, "--json", who=who))
        return told

    async def starts(self, agent: str, *options: str) -> str:
        """Give an agent work, and return the turn."""
        return str((await self.told("turn", "start", agent, "Go on.", *options))["id"])

    async def bash(self, script: str, who: str = "gus") -> Ran:
        """Run a script in bash, where `tutelage` is found."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        process = await asyncio.create_subprocess_exec(
            *("bash", "--norc", "-c", script),
            cwd=self.folder,
            env={**clean(), **self.settings(who), "PATH": path},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(4 * WAIT_SECONDS):
            out, err = await process.communicate()
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    def stays(self, *arguments: str, who: str = "gus") -> AbstractAsyncContextManager[Process]:
        """Start a command that stays."""
        return started(*arguments, cwd=self.folder, **self.settings(who))


def lines_of(said: str) -> list[dict[str, Any]]:
    """Read one JSON object a line."""
    return [json.loads(line) for line in said.splitlines()]


def found(pattern: str, said: str) -> str:
    """Return what a pattern's one group finds in what was said."""
    match = re.search(pattern, said, re.MULTILINE)
    assert match is not None, said
    return match[1]
