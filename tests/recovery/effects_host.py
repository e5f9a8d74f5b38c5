"""A tool host in a process of its own whose effects are lines of a file: what ran can be counted whoever dies.

    python effects_host.py FOLDER

While FOLDER/die-before or FOLDER/die-after exists, the next tool that changes things kills this process: before its
effect, or between its effect and its result.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tutelage import CHANGES, READS, ToolHost, connect, current_call


def _nobody_looks(_crossing: str) -> None:
    """Nobody is told of what is crossed."""


def effects(folder: Path, cross: Callable[[str], None] = _nobody_looks) -> ToolHost:
    """Make the host. `cross` is told before and after each effect."""
    host = ToolHost(os.environ.get("HOST_NAME", "effects"))

    @host.tool(effects=READS)
    async def look() -> str:
        """Look, which changes nothing."""
        await asyncio.sleep(0.01)
        return "seen"

    @host.tool(effects=CHANGES, timeout=float(os.environ.get("HOST_TOOL_SECONDS", "60")))
    async def write(n: int) -> int:
        """Write a line."""
        _die(folder / "die-before")
        call = current_call()
        address = call.idempotency_key.partition("/")[2]
        cross(f"before the effect of {address}")
        line = {"key": call.idempotency_key, "call_id": call.call_id, "attempt": call.attempt, "n": n}
        file = os.open(folder / "effects.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, json.dumps(line).encode() + b"\n")
        os.close(file)
        cross(f"after the effect of {address}")
        _die(folder / "die-after")
        await asyncio.sleep(0.02)
        return n

    return host


def lines(folder: Path) -> list[dict[str, object]]:
    """Return the effects that there were."""
    path = folder / "effects.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _die(flag: Path) -> None:
    if flag.exists():
        flag.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


async def main(folder: Path, cross: Callable[[str], None] = _nobody_looks) -> None:
    """Serve until the process is ended."""
    async with connect(os.environ["TUTELAGE_TO_RUNTIME"], os.environ["TUTELAGE_TOKEN"]) as runtime:
        await effects(folder, cross).serve(runtime)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
