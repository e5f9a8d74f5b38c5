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

_WHAT_TO_DO = {
    "NOT_SIGNED_IN": "Make a token with `tutelage token` and set TUTELAGE_TOKEN to it.",
    "NOT_ADMITTED": "Use a token with the role that this needs: `tutelage token --role …`.",
    "PERSON_REQUIRED": "Sign in as a person: `tutelage token --kind person …`.",
    "NO_SUCH_THING": "Look at the id, and whether this account may see it.",
    "FINGERPRINT_CHANGED": "What waits has changed: look at it again with `tutelage approvals list`.",
    "INSTRUCTIONS_CHANGED": "It is asked anew: look at `tutelage approvals list`.",
    "NOT_PUT_TO_YOU": "`tutelage approvals list` says whom it was put to.",
    "WORDS_CHANGED": "Look at it again with `tutelage teach show`.",
    "SET_MOVED_ON": "Look at it again with `tutelage teach show`.",
    "INSTRUCTION_STATE": "`tutelage teach show` says where it stands.",
    "ALREADY_DECIDED": "`tutelage turn show` says what became of it.",
    "APPROVAL_EXPIRED": "The agent was told that nobody answered.",
    "PART_UNAVAILABLE": "Nothing was done; try again.",
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
    parts = [error.message.rstrip(".") + "."]
    parts += [f"{field}: {wrong}." for field, wrong in error.fields]
    parts += [_WHAT_TO_DO[error.reason]] if error.reason in _WHAT_TO_DO else []
    return " ".join(parts)
