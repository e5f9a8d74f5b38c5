"""`tutelage turn start`: work for an agent, given once however often the command is repeated.

A turn stands in a conversation. Without one of the caller's choice it gets its own, under the request's id, so that
the same command with the same `--request-id` is the same turn.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tutelage.cli.arguments import AgentName, Approve, AsJson, RequestId, Timeout
from tutelage.cli.commands import at_runtime, once
from tutelage.cli.exits import Exit
from tutelage.cli.following import show_to_its_end, wait_for
from tutelage.cli.layout import print_aside, print_json_line, print_named, tell
from tutelage.cli.problems import CommandError, code_of, told
from tutelage.cli.setting_words import setting_of
from tutelage.cli.texts import STDIN, text_of
from tutelage.client import Tutelage
from tutelage.errors import TutelageError
from tutelage.journal_lines import state_name
from tutelage.runtime.v1.conversations_pb2 import OpenConversationRequest
from tutelage.runtime.v1.turns_pb2 import IfBusy, StartTurnRequest, Turn, TurnEvent, Work


class Busy(StrEnum):
    """What a turn does where its branch has one that has not ended."""

    queue = "queue"
    refuse = "refuse"
    branch = "branch"


@at_runtime
async def start(
    runtime: Tutelage,
    agent: AgentName,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS|-", help="What it is asked; -: standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="What it is asked, from a file.")] = None,
    conversation: Annotated[
        str, typer.Option(metavar="ID", help="In this one, opened where it is new. None: under the request's id.")
    ] = "",
    skill: Annotated[str, typer.Option(help="The skill. None: the agent's only one.")] = "",
    scope: Annotated[str, typer.Option(help="What it is charged to: team:42.")] = "",
    work_for: Annotated[str, typer.Option("--for", metavar="ACCOUNT", help="For whom it is. None: you.")] = "",
    approve: Approve = "",
    after: Annotated[str, typer.Option(metavar="TURN", help="The turn that it follows. None: the newest done.")] = "",
    if_busy: Annotated[Busy | None, typer.Option(help="Where another turn has not ended yet.")] = None,
    request_id: RequestId = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Until it has ended or needs a person; print its output.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show what it does, to its end.")] = False,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Give an agent work: start a turn, and say which it is."""
    if wait and watch:
        raise CommandError("Say --wait or --watch, not both.", Exit.USAGE)
    if timeout is not None and not (wait or watch):
        raise CommandError("--timeout goes with --wait or --watch.", Exit.USAGE)
    work = Work(skill=skill, input=_input(words or [], file), work_for=work_for, scope=scope)
    asked = once(request_id)
    request = StartTurnRequest(
        conversation_id=conversation or asked,
        work=work,
        approve=setting_of(approve),
        request_id=asked,
        after_turn_id=after,
        if_busy=IfBusy.Value(f"IF_BUSY_{if_busy.name.upper()}") if if_busy else 0,  # type: ignore[arg-type]
    )
    turn = await _started(runtime, agent, request)
    if wait:
        print_aside(f"turn {turn.id}")
        await wait_for(runtime, turn.id, timeout, as_json)
    elif watch:
        _print_begun(turn, asked, as_json)
        await show_to_its_end(runtime, turn.id, "", timeout, as_json)
    else:
        tell(turn, as_json, lambda begun: _print(begun, asked))


def _input(words: list[str], file: Path | None) -> str:
    """Return what is asked: words, or a file's text, but for the line's end that closes it."""
    if bool(words) == bool(file):
        raise CommandError("Say what is asked, once: in words, by - from standard input, or by --file.", Exit.USAGE)
    if file is None and words != [STDIN]:
        return " ".join(words)
    return text_of(str(file or STDIN)).removesuffix("\n")


async def _started(runtime: Tutelage, agent: str, request: StartTurnRequest) -> Turn:
    opening = OpenConversationRequest(agent=agent, conversation_id=request.conversation_id)
    try:
        await runtime.conversations.OpenConversation(opening)
        return (await runtime.turns.StartTurn(request)).turn
    except TutelageError as error:
        code = code_of(error)
        if code is not Exit.UNREACHABLE:
            raise
        again = f"To be sure that it is given once, say it again with --request-id {request.request_id}"
        raise CommandError(f"{told(error, 'runtime')} {again}", code) from None


def _print_begun(turn: Turn, request_id: str, as_json: bool) -> None:
    """Print which turn it is that will be followed: as the first event, as `StreamAgent` does."""
    if as_json:
        print_json_line(TurnEvent(turn=turn))
    else:
        _print(turn, request_id)


def _print(turn: Turn, request_id: str) -> None:
    facts = (
        ("state", state_name(turn.state)),
        ("stands in", f"{turn.conversation_id}, turn {turn.number} of it"),
        ("request", request_id),
        ("to watch", f"tutelage turn watch {turn.id}"),
    )
    print_named(f"turn  {turn.id}", facts)
