"""`tutelage up`: both services for real use, on this machine alone."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from tutelage.cli.problems import CommandError, run
from tutelage.cli.reach import DEFAULT_DATA_DIR, UP_FILE, DataDir, token_command
from tutelage.service_process import ServiceProcess, StartError
from tutelage.token import signing_key

LISTEN = "127.0.0.1:7420"
TEACHING_LISTEN = "127.0.0.1:7421"
# Ten together. The runtime goes first and has the longer part: what it does ends with words of teaching's.
RUNTIME_STOP_SECONDS = 7.0
TEACHING_STOP_SECONDS = 3.0

Result = TypeVar("Result")


def up(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    listen: Annotated[str, typer.Option(help="Where the runtime listens; port 0: any free one.")] = LISTEN,
    teaching_listen: Annotated[str, typer.Option(help="Where the teaching service listens.")] = TEACHING_LISTEN,
) -> None:
    """Start both services on the data folder, say how to sign in, and stay until Ctrl-C."""
    run(_up(data_dir, listen, teaching_listen))


class _Stopped(Exception):
    """Somebody asked to stop."""


async def _up(data_dir: Path, listen: str, teaching_listen: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    signing_key(data_dir)
    try:
        teaching = await _unless(stop, ServiceProcess.start("teaching", data_dir, teaching_listen))
        async with _stopped_after(teaching, TEACHING_STOP_SECONDS):
            told = {"TUTELAGE_RUNTIME_TEACHING_ADDRESS": teaching.address}
            runtime = await _unless(stop, ServiceProcess.start("runtime", data_dir, listen, told))
            async with _stopped_after(runtime, RUNTIME_STOP_SECONDS):
                await _serve(data_dir, runtime, teaching, stop)
    except _Stopped:
        return
    except StartError as error:
        raise CommandError(str(error)) from None


async def _serve(data_dir: Path, runtime: ServiceProcess, teaching: ServiceProcess, stop: asyncio.Event) -> None:
    """Tell where the services are, until somebody asks to stop.

    Raises CommandError as soon as one of them ends by itself.
    """
    left = data_dir / UP_FILE
    found = {
        "runtime": runtime.address,
        "teaching": teaching.address,
        "pid": os.getpid(),
        "runtime_pid": runtime.pid,
        "teaching_pid": teaching.pid,
    }
    try:
        _leave(left, found)
        _greet(data_dir, runtime, teaching)
        await _unless(stop, _ended(runtime, teaching))
    finally:
        left.unlink(missing_ok=True)


@asynccontextmanager
async def _stopped_after(service: ServiceProcess, within: float) -> AsyncIterator[None]:
    """Stop a service at the end of the block, also where somebody asked to. Raises CommandError for a bad end."""
    try:
        with suppress(_Stopped):
            yield
    finally:
        code = await service.stop(within)
    if code != 0:
        raise CommandError(_end(service, code))


async def _unless(stop: asyncio.Event, wanted: Coroutine[Any, Any, Result]) -> Result:
    """Wait for what is wanted. Raises _Stopped where somebody asks to stop first."""
    wanting = asyncio.create_task(wanted)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((wanting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not wanting.done():
            raise _Stopped
        return await wanting
    finally:
        wanting.cancel()
        stopping.cancel()
        await asyncio.gather(wanting, stopping, return_exceptions=True)


async def _ended(*services: ServiceProcess) -> NoReturn:
    """Wait until one of the services has ended, and raise CommandError."""
    ends = {asyncio.create_task(service.ended()): service for service in services}
    try:
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
    end = done.pop()
    raise CommandError(_end(ends[end], end.result()))


def _end(service: ServiceProcess, code: int) -> str:
    return f"The {service.name} ended with {code}. Its log is {service.log}."


def _leave(path: Path, found: dict[str, object]) -> None:
    """Write what other commands look for; whole, or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    draft.write_text(json.dumps(found) + "\n")
    draft.rename(path)


def _greet(data_dir: Path, runtime: ServiceProcess, teaching: ServiceProcess) -> None:
    typer.echo(f"The runtime serves at {runtime.address}, the teaching service at {teaching.address}.")
    typer.echo(f"Their data is in {data_dir}. To sign in, in another terminal:")
    typer.echo(f"  export TUTELAGE_TO_RUNTIME={runtime.address}")
    typer.echo(f"  export TUTELAGE_TO_TEACHING={teaching.address}")
    typer.echo(f"  export TUTELAGE_TOKEN=$({token_command(data_dir)})")
    typer.echo("Ctrl-C stops them.")
