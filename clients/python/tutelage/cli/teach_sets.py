"""`tutelage teach sets` and `teach diff`: how what an agent is told came about, change by change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from tutelage.cli.arguments import AgentName, AsJson
from tutelage.cli.commands import at_teaching
from tutelage.cli.layout import message_dict, print_json_value, tell
from tutelage.cli.pages import listed
from tutelage.cli.taught import print_difference, print_sets
from tutelage.client import Teaching
from tutelage.teaching.v1.instructions_pb2 import (
    GetInstructionSetRequest,
    Instruction,
    InstructionSet,
    ListInstructionSetsRequest,
    ListInstructionSetsResponse,
    ListInstructionsRequest,
)

Number = Annotated[int, typer.Argument(min=0, help="A set's number; 0: before all teaching.")]


@at_teaching
async def sets(teaching: Teaching, agent: AgentName, as_json: AsJson = False) -> None:
    """List every set that an agent has had, newest first, with who made it and why."""
    found = ListInstructionSetsResponse(sets=await sets_of(teaching, agent))
    tell(found, as_json, lambda all_of_it: print_sets(all_of_it.sets))


@at_teaching
async def diff(teaching: Teaching, agent: AgentName, one: Number, other: Number, as_json: AsJson = False) -> None:
    """Say what the second of two sets has that the first has not, and the other way round."""
    before, after = [await _set_of(teaching, agent, number) for number in (one, other)]
    known = {each.id: each for each in await instructions_of(teaching, agent)}
    added = [_known(known, each) for each in after.members if each not in before.members]
    removed = [_known(known, each) for each in before.members if each not in after.members]
    if as_json:
        told = {"added": added, "removed": removed}
        print_json_value({name: [message_dict(each) for each in some] for name, some in told.items()})
    else:
        print_difference(added, removed)


async def sets_of(teaching: Teaching, agent: str) -> Sequence[InstructionSet]:
    """Read all of an agent's sets, newest first; set 0 at the end."""
    found = await listed(teaching.instructions.ListInstructionSets, ListInstructionSetsRequest(agent=agent))
    return [*found.sets, await _set_of(teaching, agent, 0)]


async def instructions_of(teaching: Teaching, agent: str) -> Sequence[Instruction]:
    """Read all of an agent's instructions, in every state."""
    found = await listed(teaching.instructions.ListInstructions, ListInstructionsRequest(agent=agent))
    return found.instructions


async def _set_of(teaching: Teaching, agent: str, number: int) -> InstructionSet:
    request = GetInstructionSetRequest(agent=agent, number=number)
    return (await teaching.instructions.GetInstructionSet(request)).set


def _known(known: dict[str, Instruction], instruction_id: str) -> Instruction:
    """Return an instruction; of one that is for another person alone there is nothing but its id."""
    return known.get(instruction_id) or Instruction(id=instruction_id)
