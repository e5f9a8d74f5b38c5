"""`tutelage up`: the runtime for real use, on this machine alone."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from pathlib import Path
from typing import Annotated

import typer

from tutelage.cli.problems import CommandError, run
from tutelage.cli.reach import DEFAULT_DATA_DIR, UP_FILE, DataDir, token_command
from tutelage.runtime_process import RuntimeProcess, StartError
from tutelage.token import signing_key

LISTEN = "127.0.0.1:7420"


def up(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    listen: Annotated[str, typer.Option(help="Where the runtime listens; port 0: any free one.")] = LISTEN,
) -> None:
    """Start the runtime on the data folder, say how to sign in, and stay until Ctrl-C."""
    run(_up(data_dir, listen))


async def _up(data_dir: Path, listen: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    signing_key(data_dir)
    runtime = await _started(data_dir, listen, stop)
    if runtime is None:
        return
    left = data_dir / UP_FILE
    try:
        _leave(left, {"runtime": runtime.address, "pid": os.getpid(), "runtime_pid": runtime.pid})
        _greet(data_dir, runtime)
        await _until_stopped(runtime, stop)
    finally:
        left.unlink(missing_ok=True)
        code = await runtime.stop()
    if code != 0:
        raise CommandError(f"The runtime ended with {code}. Its log is {data_dir / 'runtime.log'}.")


async def _started(data_dir: Path, listen: str, stop: asyncio.Event) -> RuntimeProcess | None:
    """Start the runtime; None where somebody asked to stop before it served."""
    starting = asyncio.create_task(RuntimeProcess.start(data_dir, listen))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        return await starting if starting.done() else None
    except StartError as error:
        raise CommandError(str(error)) from None
    finally:
        starting.cancel()
        stopping.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)


async def _until_stopped(runtime: RuntimeProcess, stop: asyncio.Event) -> None:
    ended = asyncio.create_task(runtime.ended())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
        stopping.cancel()
        await asyncio.gather(ended, stopping, return_exceptions=True)


def _leave(path: Path, found: dict[str, object]) -> None:
    """Write what other commands look for; whole, or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    draft.write_text(json.dumps(found) + "\n")
    draft.rename(path)


def _greet(data_dir: Path, runtime: RuntimeProcess) -> None:
    typer.echo(f"The runtime serves at {runtime.address}; its data is in {data_dir}.")
    typer.echo("To sign in, in another terminal:")
    typer.echo(f"  export TUTELAGE_TO_RUNTIME={runtime.address}")
    typer.echo(f"  export TUTELAGE_TOKEN=$({token_command(data_dir)})")
    typer.echo("Ctrl-C stops it.")
