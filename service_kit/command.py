"""A service as a command: serve until told to stop; or do one thing to its database, and end.

`migrate` brings it up to date, `check` says what of it does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from pydantic import ValidationError

from service_kit import logs
from service_kit.checking import Wrong, report
from service_kit.data_folder import DataFolder
from service_kit.errors import Problem, SetupProblem
from service_kit.settings import ServiceSettings

S = TypeVar("S", bound=ServiceSettings)


def run(
    name: str,
    description: str,
    settings_of: type[S],
    migrate: Callable[[str], None],
    check: Callable[[str], AsyncIterator[Wrong]],
    running: Callable[[S], AbstractAsyncContextManager[object]],
) -> int:
    """Run the command and return its exit code.

    A problem with the set-up is one line on standard error and 1; 1 as well where `check` finds anything.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=description,
        epilog="Settings, from the environment:\n" + settings_of.reference(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = ["serve", "migrate", "check"]
    parser.add_argument("command", nargs="?", choices=commands, default="serve", help="what to do [serve]")
    parser.add_argument("--json", action="store_true", help="with check: one JSON object, not a line for each thing")
    arguments = parser.parse_args()
    if arguments.json and arguments.command != "check":
        parser.error("--json goes with check alone")
    try:
        settings = settings_of()  # type: ignore[call-arg]  # from the environment
        logs.configure(settings.log_level, settings.log_format)
        match arguments.command:
            case "migrate":
                DataFolder(settings.data_dir)
                migrate(settings.database)
            case "check":
                return asyncio.run(report(check(settings.database), as_json=arguments.json))
            case _:
                asyncio.run(_serve(running(settings)))
    except ValidationError as problem:
        for wrong in problem.errors():
            setting = ".".join(str(part) for part in wrong["loc"]).upper()
            print(f"{settings_of.prefix()}{setting}: {wrong['msg']}" if setting else wrong["msg"], file=sys.stderr)  # noqa: T201
        return 1
    except Exception as problem:
        if not isinstance(problem, SetupProblem | Problem):
            raise
        print(problem, file=sys.stderr)  # noqa: T201
        return 1
    return 0


async def _serve(service: AbstractAsyncContextManager[object]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop.set)
    async with service:
        await stop.wait()
