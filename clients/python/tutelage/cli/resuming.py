"""`tutelage turn resume`: go on with a turn that stopped, and say what became of the calls that may have run.

Nobody but a person can know that, so nothing is guessed: without a word on them the command lists the calls, with the
commands to choose from, and changes nothing (`runtime.md` R6.5).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated

import typer

from tutelage.cli.arguments import AsJson, RequestId, Timeout, TurnId
from tutelage.cli.commands import at_runtime, once
from tutelage.cli.exits import Exit
from tutelage.cli.following import turn_of, wait_for
from tutelage.cli.layout import tell
from tutelage.cli.problems import CommandError, fields_line
from tutelage.cli.turn_layout import print_facts, print_unfinished
from tutelage.client import Tutelage
from tutelage.errors import TutelageError
from tutelage.runtime.v1.turns_pb2 import Resolution, ResumeTurnRequest, RunAgain, Turn

Words = list[str] | None


@at_runtime
async def resume(
    runtime: Tutelage,
    turn_id: TurnId,
    returned: Annotated[Words, typer.Option(metavar="CALL=JSON", help="It ran and returned this.")] = None,
    failed: Annotated[Words, typer.Option(metavar="CALL=TEXT", help="It ran and failed; the model is told so.")] = None,
    run_again: Annotated[Words, typer.Option(metavar="CALL", help="It did not run, or may run again.")] = None,
    request_id: RequestId = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Until it has ended or needs a person; print its output.")
    ] = False,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a turn. Each call that may have run must be named once; without any they are listed."""
    resolutions = _resolutions(returned or [], failed or [], run_again or [])
    turn = await turn_of(runtime, turn_id)
    if turn.unfinished and not resolutions:
        _ask_of(turn, as_json)
    request = ResumeTurnRequest(turn_id=turn_id, resolutions=resolutions, request_id=once(request_id))
    resumed = await _resumed(runtime, request)
    if wait:
        await wait_for(runtime, turn_id, timeout, as_json)
    else:
        tell(resumed, as_json, print_facts)


async def _resumed(runtime: Tutelage, request: ResumeTurnRequest) -> Turn:
    def called(path: str) -> str:
        place = re.match(r"resolutions\[(\d+)\]", path)
        return request.resolutions[int(place[1])].call_id if place else "the turn"

    try:
        return (await runtime.turns.ResumeTurn(request)).turn
    except TutelageError as error:
        if not error.fields:
            raise
        raise CommandError(fields_line(error, called)) from None


def _ask_of(turn: Turn, as_json: bool) -> None:
    """List the calls that may have run, and end with the exit code of a turn that needs a person's word."""
    tell(turn, as_json, lambda stopped: print_unfinished(stopped.id, stopped.unfinished))
    raise CommandError("Nothing was done: say of each call what became of it.", Exit.INTERRUPTED)


def _resolutions(returned: Sequence[str], failed: Sequence[str], run_again: Sequence[str]) -> list[Resolution]:
    outputs = [_split("--returned", each) for each in returned]
    errors = [_split("--failed", each) for each in failed]
    for call_id, output in outputs:
        _check_json(call_id, output)
    return [
        *(Resolution(call_id=call_id, output_json=output) for call_id, output in outputs),
        *(Resolution(call_id=call_id, error=error) for call_id, error in errors),
        *(Resolution(call_id=call_id, run_again=RunAgain()) for call_id in run_again),
    ]


def _split(option: str, word: str) -> tuple[str, str]:
    call_id, equals, outcome = word.partition("=")
    if not (call_id and equals):
        raise CommandError(f"{option} takes a call and what became of it: {option} 'CALL=…'.", Exit.USAGE)
    return call_id, outcome


def _check_json(call_id: str, output: str) -> None:
    try:
        json.loads(output)
    except ValueError as error:
        line = (
            f"What {call_id} returned is no JSON ({error}). A text stands in quotes: --returned '{call_id}=\"done\"'."
        )
        raise CommandError(line, Exit.USAGE) from None
