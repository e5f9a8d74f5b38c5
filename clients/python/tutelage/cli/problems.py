"""What went wrong, in one line that also says what to do about it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import grpc
import typer

from tutelage.cli.exits import Exit
from tutelage.errors import TutelageError
from tutelage.service_process import NAMES, Service
from tutelage.shown import shown

# What the services' own sentences do not say: which command helps.
_WHAT_TO_DO = {
    "NOT_SIGNED_IN": "Make a token with `tutelage token` and set TUTELAGE_TOKEN to it.",
    "NOT_ADMITTED": "Sign in with such a role: `tutelage token --role …`.",
    "PERSON_REQUIRED": "Sign in as a person: `tutelage token --kind person …`.",
    "REQUEST_ID_REUSED": "Give another --request-id, or another id.",
    "FINGERPRINT_CHANGED": "`tutelage approvals list` shows it.",
    "INSTRUCTIONS_CHANGED": "`tutelage approvals list` shows it.",
    "NOT_PUT_TO_YOU": "`tutelage approvals list` says whom it was put to.",
    "WORDS_CHANGED": "Look at it again with `tutelage teach show`.",
    "SET_MOVED_ON": "Look at it again with `tutelage teach show`.",
    "INSTRUCTION_STATE": "`tutelage teach show` says where it stands.",
    "ALREADY_DECIDED": "`tutelage turn show` says what became of it.",
    "TURN_UNFINISHED": "`tutelage turn resume TURN` lists each call that may have run.",
    "TURN_WAITING": "Answer what it asks (`tutelage approvals list`), or abandon it.",
    "TURN_ENDED": "`tutelage turn show` says how.",
    "CONVERSATION_BUSY": "Wait for that turn, abandon it, or say --if-busy queue or --if-busy branch.",
    "CURSOR_EXPIRED": "Watch again without --after.",
    "DEFECT": "The service's log says more.",
}


class CommandError(Exception):
    """A command cannot be done. `str(problem)` is one line: what is wrong, and what to do. It ends with `code`."""

    def __init__(self, line: str, code: Exit = Exit.REFUSED) -> None:
        super().__init__(line)
        self.code = code


def run(command: Coroutine[Any, Any, None], at: Service = "runtime") -> None:
    """Run a command that speaks to a service. Raises CommandError for what the service refuses.

    Where whoever reads its output has read enough (`| head`), it is done.
    """
    try:
        asyncio.run(command)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be written goes nowhere
        raise SystemExit(Exit.DONE) from None
    except TutelageError as error:
        raise CommandError(told(error, at), code_of(error)) from None


def fail(line: str, code: int = Exit.REFUSED) -> NoReturn:
    """Say what went wrong and exit."""
    typer.echo(f"tutelage: {shown(line)}", err=True)
    raise SystemExit(int(code))


def code_of(error: TutelageError) -> Exit:
    """Return what a command ends with that a service did not do."""
    no_answer = error.code is grpc.StatusCode.DEADLINE_EXCEEDED and not error.reason
    return Exit.UNREACHABLE if error.passing or no_answer else Exit.REFUSED


def told(error: TutelageError, at: Service) -> str:
    """Put a service's refusal into one line."""
    if error.code is grpc.StatusCode.UNAVAILABLE and not error.reason:
        return f"The {NAMES[at]} cannot be reached. Start it with `tutelage up`, or set TUTELAGE_TO_{at.upper()}."
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"The {NAMES[at]} did not answer in time. Try again."
    return f"{_said(error)} {_what_to_do(error)}".rstrip()


def fields_line(error: TutelageError, called: Callable[[str], str] = str) -> str:
    """Name every wrong field in a line, as it is `called` here; also how many the service had no room for."""
    wrong = [f"{called(path)}: {what.rstrip('.')}" for path, what in error.fields]
    more = error.metadata.get("fields_left_out")
    return "; ".join([*wrong, f"and {more} more"] if more else wrong) + "."


def _said(error: TutelageError) -> str:
    return fields_line(error) if error.fields else error.message.rstrip(".") + "."


def _what_to_do(error: TutelageError) -> str:
    if error.retry_after is not None:
        return f"Try again in {error.retry_after:g} s."
    if error.reason == "NO_SUCH_THING" and error.metadata.get("kind") == "task":
        return "`tutelage turn show TURN` names a turn's tasks: TURN/AGENT, and those below it."
    return _WHAT_TO_DO.get(error.reason, "")
