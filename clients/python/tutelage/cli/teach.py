"""`tutelage teach`: tell agents something, and see what they were told."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Annotated

import typer

from tutelage.cli import taught
from tutelage.cli.problems import run
from tutelage.cli.prompt import confirm
from tutelage.cli.reach import DEFAULT_DATA_DIR, DataDir, reach_teaching
from tutelage.teaching.v1.corrections_pb2 import CorrectionDraft, CorrectWorkRequest
from tutelage.teaching.v1.instructions_pb2 import (
    ActivateInstructionRequest,
    GetInstructionRequest,
    GetInstructionSetRequest,
    InstructionDraft,
    ProposeInstructionRequest,
    RejectInstructionRequest,
    RetireInstructionRequest,
    RollBackInstructionsRequest,
)
from tutelage.teaching.v1.tasks_pb2 import ExplainTaskRequest

app = typer.Typer(no_args_is_help=True, help="Tell agents something, and see what they were told.")

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task, TURN/AGENT: `tutelage turn show` names it.")]
Agent = Annotated[str, typer.Argument(metavar="AGENT", help="The agent.")]
InstructionId = Annotated[str, typer.Argument(metavar="ID", help="The instruction.")]
Why = Annotated[str, typer.Option(help="Why, for the people who read it.")]


@app.command()
def correct(
    task_id: TaskId,
    wrong: Annotated[str, typer.Option(help="What was wrong.")],
    right: Annotated[str, typer.Option(help="What it should have been.")],
    because: Annotated[str, typer.Option(help="Why: so that the next work comes out right.")],
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Correct a piece of work. It changes nothing that the agent does."""
    says = CorrectionDraft(wrong=wrong, right=right, because=because)
    run(_correct(CorrectWorkRequest(task_id=task_id, correction=says, request_id=_once()), data_dir), "teaching")


@app.command()
def propose(
    agent: Agent,
    guidance: Annotated[str, typer.Option(help="The words that the model would be sent: one line.")],
    why: Why,
    skill: Annotated[str, typer.Option(help="For one skill alone.")] = "",
    for_person: Annotated[str, typer.Option("--for", help="For the work done for one person, by account id.")] = "",
    on_scope: Annotated[str, typer.Option(help="For work charged to one thing: team:42.")] = "",
    corrections: Annotated[
        list[str] | None, typer.Option("--from", help="A correction that it is drawn from; may be given again.")
    ] = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Propose an instruction. No model is sent it before a person who teaches makes it active."""
    draft = InstructionDraft(
        agent=agent,
        guidance=guidance,
        why=why,
        skill=skill,
        for_person=for_person,
        on_scope=on_scope,
        from_corrections=corrections,
    )
    run(_propose(ProposeInstructionRequest(draft=draft, request_id=_once()), data_dir), "teaching")


@app.command()
def activate(
    instruction_id: InstructionId,
    why: Why = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask again at the prompt.")] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Show a proposal, and have the agent be sent exactly that from now on."""
    run(_activate(instruction_id, why, yes, data_dir), "teaching")


@app.command()
def reject(instruction_id: InstructionId, why: Why, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Turn a proposal down, for good."""
    run(_reject(RejectInstructionRequest(instruction_id=instruction_id, why=why), data_dir), "teaching")


@app.command()
def retire(instruction_id: InstructionId, why: Why, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Take an active instruction out of use."""
    request = RetireInstructionRequest(instruction_id=instruction_id, why=why, request_id=_once())
    run(_retire(request, data_dir), "teaching")


@app.command()
def rollback(
    agent: Agent,
    to_set: Annotated[int, typer.Argument(min=0, metavar="TO_SET", help="The set to restore; 0: nothing taught.")],
    why: Why,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Make what was active in an earlier set active again, and retire what came since."""
    request = RollBackInstructionsRequest(agent=agent, to_set=to_set, why=why, request_id=_once())
    run(_roll_back(request, data_dir), "teaching")


@app.command()
def show(agent: Agent, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Show what an agent is told now, in order, what is proposed, and every set it has had."""
    run(_show(agent, data_dir), "teaching")


@app.command()
def explain(task_id: TaskId, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Say what a piece of work ran with, and what its agent has been told since."""
    run(_explain(task_id, data_dir), "teaching")


async def _correct(request: CorrectWorkRequest, data_dir: Path) -> None:
    async with reach_teaching(data_dir) as teaching:
        taught.print_correction((await teaching.corrections.CorrectWork(request)).correction)


async def _propose(request: ProposeInstructionRequest, data_dir: Path) -> None:
    async with reach_teaching(data_dir) as teaching:
        taught.print_instruction((await teaching.instructions.ProposeInstruction(request)).instruction)


async def _activate(instruction_id: str, why: str, yes: bool, data_dir: Path) -> None:
    async with reach_teaching(data_dir) as teaching:
        found = await teaching.instructions.GetInstruction(GetInstructionRequest(instruction_id=instruction_id))
        instruction = found.instruction
        newest = GetInstructionSetRequest(agent=instruction.says.agent)
        seen = (await teaching.instructions.GetInstructionSet(newest)).set
        taught.print_instruction(instruction)
        taught.print_set(seen)
        if not yes:
            await confirm(
                "Make exactly this active?", "Nothing was activated. To turn it down, use `tutelage teach reject`."
            )
        request = ActivateInstructionRequest(
            instruction_id=instruction_id,
            why=why,
            guidance_hash=instruction.guidance_hash,
            expected_set=seen.number,
            request_id=_once(),
        )
        taught.print_set((await teaching.instructions.ActivateInstruction(request)).set)


async def _reject(request: RejectInstructionRequest, data_dir: Path) -> None:
    async with reach_teaching(data_dir) as teaching:
        taught.print_instruction((await teaching.instructions.RejectInstruction(request)).instruction)


async def _retire(request: RetireInstructionRequest, data_dir: Path) -> None:
    async with reach_teaching(data_dir) as teaching:
        taught.print_set((await teaching.instructions.RetireInstruction(request)).set)


async def _roll_back(request: RollBackInstructionsRequest, data_dir: Path) -> None:
    async with reach_teaching(data_dir) as teaching:
        taught.print_set((await teaching.instructions.RollBackInstructions(request)).set)


async def _show(agent: str, data_dir: Path) -> None:
    async with reach_teaching(data_dir) as teaching:
        sets = await taught.sets_of(teaching, agent)
        taught.print_taught(sets, await taught.instructions_of(teaching, agent))


async def _explain(task_id: str, data_dir: Path) -> None:
    async with reach_teaching(data_dir) as teaching:
        taught.print_explanation(await teaching.tasks.ExplainTask(ExplainTaskRequest(task_id=task_id)))


def _once() -> str:
    return uuid.uuid4().hex
