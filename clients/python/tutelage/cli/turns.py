"""`tutelage turn`: work that agents are given, where it stands, and its end."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tutelage.cli import following, giving, resuming
from tutelage.cli.arguments import SOME, AsJson, Most, OfAgent, RequestId, TurnId, Why
from tutelage.cli.commands import at_runtime, examples, once
from tutelage.cli.following import turn_of
from tutelage.cli.layout import message_dict, print_json_value, tell
from tutelage.cli.pages import listed, say_of_more
from tutelage.cli.turn_layout import print_facts, print_may_have_run, print_turn, print_turns
from tutelage.client import Tutelage
from tutelage.runtime.v1.turns_pb2 import (
    AbandonTurnRequest,
    ListRecordsRequest,
    ListTurnsRequest,
    ListTurnsResponse,
    Turn,
    TurnState,
)

app = typer.Typer(no_args_is_help=True, help="Give agents work, follow it, go on with it, end it.")


class State(StrEnum):
    """Where a turn stands."""

    ready = "ready"
    running = "running"
    waiting = "waiting"
    interrupted = "interrupted"
    done = "done"
    failed = "failed"
    abandoned = "abandoned"
    queued = "queued"


app.command(
    epilog=examples(
        'tutelage turn start hello "Greet the world."',
        "tutelage turn start hello - --wait < letter.txt",
        "tutelage turn start hello --file letter.txt --conversation gus-1 --request-id letter-17 --watch",
        'tutelage turn start hello "Greet the world." --wait --timeout 60 --json',
    )
)(giving.start)
app.command(epilog=examples("tutelage turn watch 5f3a", "tutelage turn watch 5f3a --json"))(following.watch)
app.command(epilog=examples("tutelage turn wait 5f3a --timeout 600"))(following.wait)


@app.command("list", epilog=examples("tutelage turn list --state waiting --state interrupted"))
@at_runtime
async def list_turns(
    runtime: Tutelage,
    agent: OfAgent = "",
    conversation: Annotated[str, typer.Option(help="Of this conversation.")] = "",
    state: Annotated[list[State] | None, typer.Option(help="In this state; may be given again.")] = None,
    most: Most = SOME,
    as_json: AsJson = False,
) -> None:
    """List turns, newest first."""
    states = [TurnState.Value(f"TURN_STATE_{one.name.upper()}") for one in state or ()]
    request = ListTurnsRequest(agent=agent, conversation_id=conversation, states=states)
    tell(await listed(runtime.turns.ListTurns, request, most), as_json, _print_all)


@app.command(epilog=examples("tutelage turn show 5f3a", "tutelage turn show 5f3a --json"))
@at_runtime
async def show(runtime: Tutelage, turn_id: TurnId, as_json: AsJson = False) -> None:
    """Show a turn: its state, who, what waits, what is unfinished, what it ran with, and its records."""
    turn = await turn_of(runtime, turn_id)
    journal = await listed(runtime.turns.ListRecords, ListRecordsRequest(turn_id=turn_id))
    if as_json:
        records = [message_dict(record) for record in journal.records]
        print_json_value({**message_dict(turn), "records": records})
    else:
        print_turn(turn, journal.records)


app.command(
    epilog=examples(
        "tutelage turn resume 5f3a",
        "tutelage turn resume 5f3a --returned 'c7=\"written\"' --failed 'c8=The disk is full.' --run-again c9",
    )
)(resuming.resume)


@app.command(epilog=examples('tutelage turn abandon 5f3a --why "Asked twice."'))
@at_runtime
async def abandon(
    runtime: Tutelage,
    turn_id: TurnId,
    why: Why,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """End a turn without going on. What it asked is withdrawn, and what may have run is listed."""
    request = AbandonTurnRequest(turn_id=turn_id, why=why, request_id=once(request_id))
    turn = (await runtime.turns.AbandonTurn(request)).turn
    tell(turn, as_json, _print_ended)


def _print_all(found: ListTurnsResponse) -> None:
    if not found.turns:
        typer.echo("There are no such turns.")
        return
    print_turns(found.turns)
    say_of_more(found)


def _print_ended(turn: Turn) -> None:
    print_facts(turn)
    print_may_have_run(turn.unfinished)
