"""`tutelage turn watch` and `turn wait`: what a turn does as it does it, and what it came to.

A watch shows every event and ends with the turn. A wait shows nothing, and ends with the turn or with its need of a
person: an answer, or a word on a call that may have run. Both end with the exit code of what the turn came to.
"""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import Annotated

import typer

from tutelage.cli.arguments import AsJson, AsJsonLines, Timeout, TurnId
from tutelage.cli.asked import print_question
from tutelage.cli.commands import at_runtime
from tutelage.cli.exits import Exit
from tutelage.cli.layout import print_json_line, print_line, tell
from tutelage.cli.problems import CommandError
from tutelage.cli.turn_layout import print_unfinished, record_line
from tutelage.cli.waits import Progress, waiting
from tutelage.client import Tutelage
from tutelage.journal_lines import state_name
from tutelage.runtime.v1 import turns_pb2
from tutelage.runtime.v1.turns_pb2 import GetTurnRequest, Turn, TurnEvent
from tutelage.shown import shown


@at_runtime
async def watch(
    runtime: Tutelage,
    turn_id: TurnId,
    after: Annotated[str, typer.Option(metavar="CURSOR", help="From after this event. None: from its start.")] = "",
    timeout: Timeout = None,
    as_json: AsJsonLines = False,
) -> None:
    """Show what a turn does, from its start to its end, with what it asks and how to answer."""
    # A watch waits for a service that is away. That there is one, and that it has this turn, is asked first.
    await turn_of(runtime, turn_id)
    await show_to_its_end(runtime, turn_id, after, timeout, as_json)


@at_runtime
async def wait(runtime: Tutelage, turn_id: TurnId, timeout: Timeout = None, as_json: AsJson = False) -> None:
    """Wait until a turn has ended or needs a person, and print its output alone."""
    await turn_of(runtime, turn_id)
    await wait_for(runtime, turn_id, timeout, as_json)


async def turn_of(runtime: Tutelage, turn_id: str) -> Turn:
    """Read a turn as it stands."""
    return (await runtime.turns.GetTurn(GetTurnRequest(turn_id=turn_id))).turn


async def show_to_its_end(runtime: Tutelage, turn_id: str, after: str, timeout: float | None, as_json: bool) -> None:
    """Show each event of a turn until it has ended. Raises CommandError where that is not DONE."""
    cursor = after
    unseen = ("bookmark",) if as_json else ("bookmark", "text")

    def to_go_on() -> str:
        return f"tutelage turn watch {turn_id} --after {cursor}" if cursor else f"tutelage turn watch {turn_id}"

    async with waiting(timeout, to_go_on) as progress, aclosing(runtime.watch_turn(turn_id, after)) as events:
        async for event in events:
            _report(event, progress)
            if event.WhichOneof("event") not in unseen:
                with progress.hidden():
                    _print_event(event, as_json)
            cursor = event.cursor or cursor
    check_end(event.ended)


async def wait_for(runtime: Tutelage, turn_id: str, timeout: float | None, as_json: bool) -> None:
    """Wait until a turn has ended or needs a person; print its output. Raises CommandError where it is not DONE."""
    async with waiting(timeout, lambda: f"tutelage turn wait {turn_id}") as progress:
        turn = await _at_rest(runtime, turn_id, progress)
    tell(turn, as_json, _print_output)
    check_end(turn)


def check_end(turn: Turn) -> None:
    """Raise CommandError, with the exit code of what a turn came to, unless it is DONE."""
    match turn.state:
        case turns_pb2.TURN_STATE_DONE:
            return
        case turns_pb2.TURN_STATE_FAILED:
            line = f"The turn FAILED: {_cause(turn)} To go on with it: `tutelage turn resume {turn.id}`"
            raise CommandError(line, Exit.FAILED)
        case turns_pb2.TURN_STATE_ABANDONED:
            raise CommandError(f"The turn was ABANDONED: {_cause(turn)}", Exit.ABANDONED)
    if turn.unfinished:
        line = (
            f"A call may have run ({len(turn.unfinished)}). `tutelage turn resume {turn.id}` lists what to say of it."
        )
        raise CommandError(line, Exit.INTERRUPTED)
    ids = ", ".join(each.id for each in turn.waiting)
    raise CommandError(f"The turn waits for a person: {ids}. `tutelage approvals list` shows it.", Exit.WAITING)


async def _at_rest(runtime: Tutelage, turn_id: str, progress: Progress) -> Turn:
    """Follow a turn until it has ended or needs a person, and return it as it stands then."""
    async with aclosing(runtime.watch_turn(turn_id)) as events:
        async for event in events:
            _report(event, progress)
            match event.WhichOneof("event"):
                case "ended":
                    return event.ended
                # What was asked or stopped long ago may be settled by now.
                case "waiting" | "interrupted":
                    turn = await turn_of(runtime, turn_id)
                    if turn.waiting or turn.unfinished:
                        return turn
    raise AssertionError("a watch ends with the turn")


def _report(event: TurnEvent, progress: Progress) -> None:
    """Say beside what is printed what the turn does now."""
    match event.WhichOneof("event"):
        case "record":
            progress.say(f"{event.record.line} {event.record.WhichOneof('what')}")
        case "text":
            progress.say(f"{event.text.address} writes: {event.text.text}")
        case "waiting":
            progress.say("It waits for a person")
        case "interrupted":
            progress.say(f"INTERRUPTED {event.interrupted.cause}")


def _print_event(event: TurnEvent, as_json: bool) -> None:
    if as_json:
        print_json_line(event)
        return
    match event.WhichOneof("event"):
        case "record":
            print_line(record_line(event.record))
        case "waiting":
            for approval in event.waiting.approvals:
                print_question(approval)
        case "interrupted":
            _print_stop(event.interrupted)
        case "ended":
            print_line(shown(f"{state_name(event.ended.state)}  {event.ended.output or event.ended.cause}"))
    sys.stdout.flush()


def _print_output(turn: Turn) -> None:
    """Print what a turn handed back, and nothing else: a script reads it."""
    if turn.state == turns_pb2.TURN_STATE_DONE:
        typer.echo(shown(turn.output, len(turn.output), lines=True))


def _print_stop(turn: Turn) -> None:
    """Print why a turn stopped, unless it has gone on since."""
    if turn.state == turns_pb2.TURN_STATE_INTERRUPTED:
        print_line(shown(f"{state_name(turn.state)}  {turn.cause}"))
        print_unfinished(turn.id, turn.unfinished)


def _cause(turn: Turn) -> str:
    return (turn.cause or "no cause was given").rstrip(".") + "."
