"""`tutelage tools`: what the connected hosts offer."""

from __future__ import annotations

import typer

from tutelage.cli.arguments import AsJson
from tutelage.cli.commands import at_runtime
from tutelage.cli.layout import print_table, tell
from tutelage.cli.pages import listed
from tutelage.client import Tutelage
from tutelage.runtime.v1.effects_pb2 import EFFECTS_UNSPECIFIED, Effects
from tutelage.runtime.v1.tools_pb2 import ListToolsRequest, ListToolsResponse, Tool


@at_runtime
async def tools(runtime: Tutelage, as_json: AsJson = False) -> None:
    """List the tools that connected hosts offer, and what each does to the world."""
    tell(await listed(runtime.tools.ListTools, ListToolsRequest()), as_json, _print)


def _print(found: ListToolsResponse) -> None:
    if not found.tools:
        typer.echo("No host is connected that offers a tool.")
        return
    rows = [(one.name, _effects(one), _timeout(one), one.description) for one in found.tools]
    print_table("Tools on offer", ("tool", "effects", "time-out", "description"), rows)


def _effects(tool: Tool) -> str:
    """Name what a tool does as every rule takes it (`runtime.md` R1.1)."""
    if tool.effects == EFFECTS_UNSPECIFIED:
        return "CHANGES (not declared)"
    return Effects.Name(tool.effects).removeprefix("EFFECTS_")


def _timeout(tool: Tool) -> str:
    return f"{tool.timeout.ToTimedelta().total_seconds():g} s" if tool.HasField("timeout") else ""
