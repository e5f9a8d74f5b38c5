"""`tutelage records`: a turn's journal, line by line."""

from __future__ import annotations

from tutelage.cli.arguments import AsJsonLines, TurnId
from tutelage.cli.commands import at_runtime
from tutelage.cli.layout import print_json_line, print_line
from tutelage.cli.pages import pages
from tutelage.cli.turn_layout import record_line
from tutelage.client import Tutelage
from tutelage.runtime.v1.turns_pb2 import ListRecordsRequest


@at_runtime
async def records(runtime: Tutelage, turn_id: TurnId, as_json: AsJsonLines = False) -> None:
    """Print a turn's journal, from its first line to its last."""
    async for page in pages(runtime.turns.ListRecords, ListRecordsRequest(turn_id=turn_id)):
        for record in page.records:
            if as_json:
                print_json_line(record)
            else:
                print_line(record_line(record))
