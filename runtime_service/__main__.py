"""`python -m runtime_service`: serve until told to stop. With `migrate`: bring the database up to date, and end."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from pydantic import ValidationError

from runtime_service.domain.problems import RuntimeProblem
from runtime_service.server import running
from runtime_service.settings import PREFIX, Settings, reference
from runtime_service.store.migrations import migrate
from service_kit import logs
from service_kit.data_folder import DataFolder
from service_kit.errors import KitProblem, SetupProblem


def main() -> int:
    """Run the command; a problem with the set-up is one line on standard error and exit code 1."""
    parser = argparse.ArgumentParser(
        prog="python -m runtime_service",
        description="The Tutelage runtime: runs agents' turns, and asks a person before a tool changes the world.",
        epilog="Settings, from the environment:\n" + reference(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=["serve", "migrate"], default="serve", help="what to do [serve]")
    command = parser.parse_args().command
    try:
        settings = Settings()
        logs.configure(settings.log_level, settings.log_format)
        if command == "migrate":
            DataFolder(settings.data_dir)
            migrate(settings.database)
        else:
            asyncio.run(_serve(settings))
    except ValidationError as problem:
        for wrong in problem.errors():
            name = ".".join(str(part) for part in wrong["loc"]).upper()
            print(f"{PREFIX}{name}: {wrong['msg']}" if name else wrong["msg"], file=sys.stderr)  # noqa: T201
        return 1
    except (SetupProblem, KitProblem, RuntimeProblem) as problem:
        print(problem, file=sys.stderr)  # noqa: T201
        return 1
    return 0


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop.set)
    async with running(settings):
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
