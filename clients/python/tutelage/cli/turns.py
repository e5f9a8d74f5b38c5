"""`tutelage turn show`: where a turn stands, what it waits for, and its journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToDict
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tutelage.cli.layout import print_line, print_table
from tutelage.cli.pages import pages
from tutelage.cli.problems import run
from tutelage.cli.reach import DEFAULT_DATA_DIR, DataDir, reach
from tutelage.client import Tutelage
from tutelage.journal_lines import line_of, state_name, time_of, who
from tutelage.runtime.v1.journal_pb2 import Record
from tutelage.runtime.v1.turns_pb2 import GetTurnRequest, ListRecordsRequest, Turn
from tutelage.shown import shown

app = typer.Typer(no_args_is_help=True, help="Look at turns.")


@app.callback()
def turn() -> None:
    """Look at turns."""


@app.command()
def show(
    turn_id: Annotated[str, typer.Argument(metavar="ID", help="The turn.")],
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object, to the letter.")] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Show a turn: its state, who, what waits, what is unfinished, what it ran with, and its records."""
    run(_show(turn_id, as_json, data_dir))


async def _show(turn_id: str, as_json: bool, data_dir: Path) -> None:
    async with reach(data_dir) as runtime:
        turn = (await runtime.turns.GetTurn(GetTurnRequest(turn_id=turn_id))).turn
        records = await records_of(runtime, turn_id)
    if as_json:
        told = MessageToDict(turn, preserving_proto_field_name=True)
        told["records"] = [MessageToDict(record, preserving_proto_field_name=True) for record in records]
        typer.echo(json.dumps(told, indent=2))
    else:
        _print(turn, records)


async def records_of(runtime: Tutelage, turn_id: str) -> list[Record]:
    """Read a turn's whole journal."""
    listed = pages(lambda at: runtime.turns.ListRecords(ListRecordsRequest(turn_id=turn_id, page_token=at)))
    return [record async for page in listed for record in page.records]


def _print(turn: Turn, records: list[Record]) -> None:
    Console(highlight=False).print(_facts(turn))
    if turn.waiting:
        rows = [(each.id, each.tool, each.input_json, ", ".join(each.put_to)) for each in turn.waiting]
        print_table("It waits for", ("approval", "tool", "input", "put to"), rows)
    if turn.unfinished:
        calls = [(each.call_id, each.tool, each.input_json, each.host) for each in turn.unfinished]
        print_table("May have run", ("call", "tool", "input", "host"), calls)
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


def _facts(turn: Turn) -> Table:
    facts = Table.grid(padding=(0, 2))
    told = {
        "turn": turn.id,
        "state": state_name(turn.state) + (f", {turn.waiting_count} waiting" if turn.waiting_count else ""),
        "agent": f"{turn.agent} {turn.agent_version[:12]}",
        "for": who(turn.work_for),
        "given by": who(turn.given_by),
        "given at": time_of(turn.create_time),
        "writer": str(turn.writer),
        "asked": turn.work.input,
        "output": turn.output,
        "cause": turn.cause,
    }
    for name, value in told.items():
        if value:
            facts.add_row(Text(name, style="bold"), Text(shown(value)))
    return facts
