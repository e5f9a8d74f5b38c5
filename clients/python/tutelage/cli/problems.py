"""What went wrong, in one line that also says what to do about it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn

import grpc
import typer

from tutelage.errors import TutelageError
from tutelage.service_process import NAMES, Service
from tutelage.shown import shown

# What the services' own sentences do not say: which command helps.
_WHAT_TO_DO = {
    "NOT_SIGNED_IN": "Make a token with `tutelage token` and set TUTELAGE_TOKEN to it.",
    "NOT_ADMITTED": "Sign in with such a role: `tutelage token --role …`.",
    "PERSON_REQUIRED": "Sign in as a person: `tutelage token --kind person …`.",
    "FINGERPRINT_CHANGED": "`tutelage approvals list` shows it.",
    "INSTRUCTIONS_CHANGED": "`tutelage approvals list` shows it.",
    "NOT_PUT_TO_YOU": "`tutelage approvals list` says whom it was put to.",
    "WORDS_CHANGED": "Look at it again with `tutelage teach show`.",
    "SET_MOVED_ON": "Look at it again with `tutelage teach show`.",
    "INSTRUCTION_STATE": "`tutelage teach show` says where it stands.",
    "ALREADY_DECIDED": "`tutelage turn show` says what became of it.",
    "DEFECT": "The service's log says more.",
}


class CommandError(Exception):
    """A command cannot be done. `str(problem)` is one line: what is wrong, and what to do."""


def run(command: Coroutine[Any, Any, None], at: Service = "runtime") -> None:
    """Run a command that speaks to a service. What goes wrong becomes one line on stderr and exit code 1."""
    try:
        asyncio.run(command)
    except TutelageError as error:
        fail(told(error, at))
    except CommandError as problem:
        fail(str(problem))
    except OSError as error:
        fail(f"{error.strerror or error}: {error.filename or ''}")


def fail(line: str, code: int = 1) -> NoReturn:
    """Say what went wrong and exit."""
    typer.echo(f"tutelage: {shown(line)}", err=True)
    raise SystemExit(code)


def told(error: TutelageError, at: Service) -> str:
    """Put a service's refusal into one line."""
    if error.code is grpc.StatusCode.UNAVAILABLE and not error.reason:
        return f"The {NAMES[at]} cannot be reached. Start it with `tutelage up`, or set TUTELAGE_TO_{at.upper()}."
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"The {NAMES[at]} did not answer in time. Try again."
    said = error.message.rstrip(".") + "."
    if error.reason == "NO_SUCH_THING" and error.metadata.get("kind") == "task":
        return f"{said} `tutelage turn show TURN` names a turn's tasks: TURN/AGENT, and those below it."
    return f"{said} {_WHAT_TO_DO.get(error.reason, '')}".rstrip()
