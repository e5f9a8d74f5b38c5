"""What `tutelage teach` reads: instructions, corrections, what work ran with and would run with."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tutelage.cli.arguments import SOME, AgentName, AsJson, InstructionId, Most, OfAgent, TaskId
from tutelage.cli.commands import at_teaching
from tutelage.cli.layout import message_dict, print_json_value, print_line, tell
from tutelage.cli.pages import listed, say_of_more
from tutelage.cli.taught import print_corrections, print_effect, print_explanation, print_instructions, print_taught
from tutelage.cli.teach_sets import instructions_of, sets_of
from tutelage.client import Teaching
from tutelage.shown import shown
from tutelage.teaching.v1.corrections_pb2 import ListCorrectionsRequest
from tutelage.teaching.v1.instructions_pb2 import (
    GetEffectRequest,
    InstructionState,
    ListInstructionsRequest,
    PreviewBlockRequest,
    PreviewBlockResponse,
)
from tutelage.teaching.v1.tasks_pb2 import ExplainTaskRequest


class State(StrEnum):
    """Where an instruction stands."""

    proposed = "proposed"
    active = "active"
    rejected = "rejected"
    retired = "retired"


@at_teaching
async def show(teaching: Teaching, agent: AgentName, as_json: AsJson = False) -> None:
    """Show what an agent is told now, in order, what is proposed, and every set it has had."""
    sets = await sets_of(teaching, agent)
    instructions = await instructions_of(teaching, agent)
    if as_json:
        told = {"sets": sets, "instructions": instructions}
        print_json_value({name: [message_dict(one) for one in each] for name, each in told.items()})
    else:
        print_taught(sets, instructions)


@at_teaching
async def list_instructions(
    teaching: Teaching,
    agent: AgentName,
    state: Annotated[list[State] | None, typer.Option(help="In this state; may be given again.")] = None,
    skill: Annotated[str, typer.Option(help="For this skill.")] = "",
    as_json: AsJson = False,
) -> None:
    """List an agent's instructions: active ones in the order in which they are sent, then the others."""
    states = [InstructionState.Value(f"INSTRUCTION_STATE_{one.name.upper()}") for one in state or ()]
    request = ListInstructionsRequest(agent=agent, states=states, skill=skill)
    found = await listed(teaching.instructions.ListInstructions, request)
    tell(found, as_json, lambda all_of_it: print_instructions(all_of_it.instructions))


@at_teaching
async def corrections(
    teaching: Teaching,
    task: Annotated[str, typer.Option(metavar="TASK", help="Of this task.")] = "",
    agent: OfAgent = "",
    skill: Annotated[str, typer.Option(help="Of this skill.")] = "",
    drawn_into: Annotated[str, typer.Option(metavar="ID", help="That this instruction is drawn from.")] = "",
    withdrawn_too: Annotated[bool, typer.Option("--withdrawn-too", help="Also those taken back.")] = False,
    most: Most = SOME,
    as_json: AsJson = False,
) -> None:
    """List corrections that you may read, newest first."""
    request = ListCorrectionsRequest(
        task_id=task, agent=agent, skill=skill, instruction_id=drawn_into, withdrawn_too=withdrawn_too
    )
    found = await listed(teaching.corrections.ListCorrections, request, most)
    tell(found, as_json, lambda all_of_it: print_corrections(all_of_it.corrections))
    if not as_json:
        say_of_more(found)


@at_teaching
async def explain(teaching: Teaching, task_id: TaskId, as_json: AsJson = False) -> None:
    """Say what a piece of work ran with, and what its agent has been told since."""
    tell(await teaching.tasks.ExplainTask(ExplainTaskRequest(task_id=task_id)), as_json, print_explanation)


@at_teaching
async def effect(teaching: Teaching, instruction_id: InstructionId, as_json: AsJson = False) -> None:
    """Count how often people corrected work before an instruction, and with it: work that you may read."""
    found = await teaching.instructions.GetEffect(GetEffectRequest(instruction_id=instruction_id))
    tell(found, as_json, print_effect)


@at_teaching
async def preview(
    teaching: Teaching,
    agent: AgentName,
    skill: Annotated[str, typer.Option(help="In work by this skill.")] = "",
    work_for: Annotated[str, typer.Option("--for", metavar="ACCOUNT", help="In work for this person.")] = "",
    scope: Annotated[str, typer.Option(help="In work charged to this.")] = "",
    with_instruction: Annotated[
        str, typer.Option("--with", metavar="ID", help="As if this proposal were active.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show what a piece of work would be sent now, to the letter. Nothing is recorded."""
    request = PreviewBlockRequest(
        agent=agent, skill=skill, work_for=work_for, scope=scope, with_instruction_id=with_instruction
    )

    def print_block(block: PreviewBlockResponse) -> None:
        text = block.then if with_instruction else block.now
        print_line(shown(text, len(text), lines=True) or "Nothing is sent.")
        if block.left_out:
            print_line(f"{block.left_out} more would apply, and be left out.")

    tell(await teaching.instructions.PreviewBlock(request), as_json, print_block)
