"""A command is a coroutine function over a connection; here it becomes one of the command line.

    @at_runtime
    async def show(runtime: Tutelage, turn_id: TurnId, as_json: AsJson = False) -> None: ...

The command has the function's parameters but for the connection, which is opened for it, and `--data-dir`. What the
service refuses becomes one line and an exit code (`problems.py`).
"""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from tutelage.cli.problems import run
from tutelage.cli.reach import DEFAULT_DATA_DIR, DataDir, reach, reach_teaching
from tutelage.client import Connection, Teaching, Tutelage
from tutelage.service_process import Service

Given = ParamSpec("Given")
Speaks = TypeVar("Speaks", bound=Connection)


def at_runtime(command: Callable[Concatenate[Tutelage, Given], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a command of a function that speaks to the runtime."""
    return _command("runtime", reach, command)


def at_teaching(command: Callable[Concatenate[Teaching, Given], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a command of a function that speaks to the teaching service."""
    return _command("teaching", reach_teaching, command)


def once(request_id: str = "") -> str:
    """Return what makes a repeated call the same call."""
    return request_id or uuid.uuid4().hex


def examples(*lines: str) -> str:
    """Return a command's epilogue: what stands under its options, a line each, also in docs/cli.md."""
    return "\n\n".join(lines)


def _command(
    service: Service,
    connected: Callable[[Path], Speaks],
    command: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)
    _, *options = signature.parameters.values()
    folder = inspect.Parameter("data_dir", inspect.Parameter.KEYWORD_ONLY, default=DEFAULT_DATA_DIR, annotation=DataDir)

    async def spoken(data_dir: Path, given: dict[str, Any]) -> None:
        async with connected(data_dir) as connection:
            await command(connection, **given)

    @functools.wraps(command)
    def typed(data_dir: Path, **given: Any) -> None:
        run(spoken(data_dir, given), service)

    # What typer reads of it.
    shown: Any = typed
    shown.__signature__ = signature.replace(parameters=[*options, folder])
    shown.__annotations__ = {each.name: each.annotation for each in (*options, folder)}
    shown.speaks_to = service
    return typed
