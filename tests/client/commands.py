"""The command line as a person runs it: a process, its output, its exit code."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tutelage.cli.exits import Exit

from tests.client.forks import Forks
from tests.client.runtime_double import WAIT_SECONDS

FORKS = Forks()


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command came to."""

    code: int
    out: str
    err: str

    def refused(self, code: int = 1) -> str:
        """Return the one line on stderr of a command that failed."""
        assert self.code == code, self
        assert self.out == "" or code != Exit.USAGE
        assert "Traceback" not in self.err
        lines = self.err.strip().split("\n")
        assert len(lines) == 1, lines
        assert lines[0].startswith("tutelage: ")
        return lines[0]


def started(*arguments: str, cwd: Path, **settings: str) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Start the command without a terminal."""
    return started_at(asyncio.subprocess.DEVNULL, *arguments, cwd=cwd, **settings)


@asynccontextmanager
async def started_at(
    terminal: int, *arguments: str, cwd: Path, **settings: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the command; what it reads comes from this file descriptor."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("tutelage")),
        *arguments,
        cwd=cwd,
        env={**clean(), **settings},
        stdin=terminal,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def heard(process: asyncio.subprocess.Process, words: str) -> str:
    """Read what the process says until it has said this."""
    assert process.stdout is not None
    said = ""
    async with asyncio.timeout(WAIT_SECONDS):
        while words not in said:
            line = (await process.stdout.readline()).decode()
            assert line, f"it ended without {words}: {said}"
            said += line
    return said


async def finished(process: asyncio.subprocess.Process) -> Ran:
    async with asyncio.timeout(WAIT_SECONDS):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


async def ran(*arguments: str, cwd: Path, stdin: str = "", **settings: str) -> Ran:
    """Run the command to its end, without a terminal; it reads this."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / name for name in ("stdin", "stdout", "stderr")}
        files["stdin"].write_text(stdin)
        request = {
            "arguments": arguments,
            "cwd": str(cwd),
            "settings": {**clean(), **settings},
            "seconds": WAIT_SECONDS,
            **{name: str(path) for name, path in files.items()},
        }
        code = await asyncio.to_thread(FORKS.run, request)
        return Ran(code, files["stdout"].read_text(), files["stderr"].read_text())


def clean() -> dict[str, str]:
    """Return the environment of somebody who has set nothing up."""
    unset = {name: value for name, value in os.environ.items() if not name.startswith("TUTELAGE_")}
    return {**unset, "COLUMNS": "200"}
