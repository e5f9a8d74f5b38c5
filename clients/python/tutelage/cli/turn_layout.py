"""Turns as a person is shown them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tutelage.cli.layout import print_below, print_line, print_named, print_table
from tutelage.journal_lines import line_of, state_name, time_of, who
from tutelage.runtime.v1.journal_pb2 import Record
from tutelage.runtime.v1.turns_pb2 import Turn, UnfinishedCall
from tutelage.shown import shown, shown_json

MOST_ASKED = 60


def print_turn(turn: Turn, records: Sequence[Record]) -> None:
    """Print all that there is to know of a turn."""
    print_facts(turn)
    if turn.waiting:
        rows = [(each.id, each.tool, each.input_json, ", ".join(each.put_to)) for each in turn.waiting]
        print_table("It waits for", ("approval", "tool", "input", "put to"), rows)
    print_may_have_run(turn.unfinished)
    if turn.receipts:
        receipts = [
            (each.task_id, str(each.instruction_set), ", ".join(each.instructions_sent), each.instructions_hash)
            for each in turn.receipts
        ]
        print_table("It ran with", ("task", "set", "instructions", "hash"), receipts)
    lines = [(str(each.line), str(each.writer), time_of(each.time), each.address, line_of(each)) for each in records]
    print_table("Records", ("line", "writer", "time", "address", "what"), lines)
    if records:
        print_line(f"chain head  {records[-1].chain}")


def print_facts(turn: Turn) -> None:
    """Print what a turn is and where it stands."""
    place = f"{turn.conversation_id}, turn {turn.number} of it" if turn.conversation_id else ""
    facts = (
        ("state", state_name(turn.state) + (f", {turn.waiting_count} waiting" if turn.waiting_count else "")),
        ("stands in", place),
        ("agent", turn.agent),
        ("version", turn.agent_version),
        ("for", who(turn.work_for)),
        ("given by", who(turn.given_by)),
        ("given at", time_of(turn.create_time)),
        ("scope", turn.work.scope),
        ("writer", str(turn.writer)),
        ("asked", turn.work.input),
        ("output", turn.output),
        ("cause", turn.cause),
    )
    print_named(f"turn  {turn.id}", facts)


def print_may_have_run(calls: Sequence[UnfinishedCall]) -> None:
    """Print the calls that may have run, where there are any."""
    if calls:
        rows = [(each.call_id, each.tool, each.input_json, each.host) for each in calls]
        print_table("May have run", ("call", "tool", "input", "host"), rows)


def print_turns(turns: Iterable[Turn]) -> None:
    """Print turns as a table."""
    rows = [
        (turn.id, state_name(turn.state), turn.agent, who(turn.work_for), time_of(turn.create_time),
         shown(turn.work.input, MOST_ASKED))
        for turn in turns
    ]  # fmt: skip
    print_table("Turns", ("turn", "state", "agent", "for", "given at", "asked"), rows)


def record_line(record: Record) -> str:
    """Tell a record in a line."""
    return f"{record.line:>4}  {time_of(record.time)}  {shown(record.address):<20}  {shown(line_of(record))}"


def print_unfinished(turn_id: str, calls: Sequence[UnfinishedCall]) -> None:
    """Print each call that may have run, with what it was to do, and the commands that say what became of it."""
    resume = f"tutelage turn resume {turn_id}"
    for call in calls:
        facts = (
            ("call", call.address),
            ("host", call.host),
            ("started", time_of(call.start_time)),
        )
        print_named(f"{call.tool}  {call.call_id}  may have run", facts)
        print_below("input", shown_json(call.input_json))
        alone = f"{resume} " if len(calls) == 1 else ""
        print_line(f"  returned    {alone}--returned '{call.call_id}=JSON'")
        print_line(f"  failed      {alone}--failed '{call.call_id}=TEXT'")
        print_line(f"  run again   {alone}--run-again {call.call_id}")
    if len(calls) > 1:
        again = " ".join(f"--run-again {call.call_id}" for call in calls)
        print_line("Each of them must be named, in one command. To run them all again:")
        print_line(f"  {resume} {again}")
