"""`tutelage teach`: tell agents something, and take it back. What they were told is read in `teach_reading.py`."""

from __future__ import annotations

from typing import Annotated

import typer

from tutelage.cli import teach_reading, teach_sets
from tutelage.cli.arguments import AgentName, AsJson, CorrectionId, InstructionId, TaskId, Why, Yes
from tutelage.cli.commands import at_teaching, examples, once
from tutelage.cli.layout import tell
from tutelage.cli.prompt import agreed
from tutelage.cli.taught import print_correction, print_instruction, print_set
from tutelage.client import Teaching
from tutelage.teaching.v1.corrections_pb2 import CorrectionDraft, CorrectWorkRequest, WithdrawCorrectionRequest
from tutelage.teaching.v1.instructions_pb2 import (
    ActivateInstructionRequest,
    GetInstructionRequest,
    GetInstructionSetRequest,
    InstructionDraft,
    ProposeInstructionRequest,
    RejectInstructionRequest,
    RetireInstructionRequest,
    ReviseInstructionRequest,
    RollBackInstructionsRequest,
)

app = typer.Typer(no_args_is_help=True, help="Tell agents something, and see what they were told.")

Guidance = Annotated[str, typer.Option(help="The words that the model would be sent: one line.")]
OfSkill = Annotated[str, typer.Option(help="For one skill alone.")]


@app.command(
    epilog=examples(
        'tutelage teach correct 5f3a/hello --wrong "In English." --right "Salve, munde." --because "We teach Latin."'
    )
)
@at_teaching
async def correct(
    teaching: Teaching,
    task_id: TaskId,
    wrong: Annotated[str, typer.Option(help="What was wrong.")],
    right: Annotated[str, typer.Option(help="What it should have been.")],
    because: Annotated[str, typer.Option(help="Why: so that the next work comes out right.")],
    as_json: AsJson = False,
) -> None:
    """Correct a piece of work. It changes nothing that the agent does."""
    says = CorrectionDraft(wrong=wrong, right=right, because=because)
    request = CorrectWorkRequest(task_id=task_id, correction=says, request_id=once())
    tell((await teaching.corrections.CorrectWork(request)).correction, as_json, print_correction)


@app.command(epilog=examples('tutelage teach withdraw 5f3a --why "It was another turn."'))
@at_teaching
async def withdraw(teaching: Teaching, correction_id: CorrectionId, why: Why, as_json: AsJson = False) -> None:
    """Take a correction of your own back. What it said stays to be read."""
    request = WithdrawCorrectionRequest(correction_id=correction_id, why=why)
    tell((await teaching.corrections.WithdrawCorrection(request)).correction, as_json, print_correction)


@app.command(
    epilog=examples(
        'tutelage teach propose hello --guidance "Greet in Latin." --why "We teach Latin."',
        'tutelage teach propose hello --guidance "Call her Ms Hale." --why "She asked." --for hale --from 5f3a',
    )
)
@at_teaching
async def propose(
    teaching: Teaching,
    agent: AgentName,
    guidance: Guidance,
    why: Why,
    skill: OfSkill = "",
    for_person: Annotated[str, typer.Option("--for", help="For the work done for one person, by account id.")] = "",
    on_scope: Annotated[str, typer.Option(help="For work charged to one thing: team:42.")] = "",
    corrections: Annotated[
        list[str] | None, typer.Option("--from", help="A correction that it is drawn from; may be given again.")
    ] = None,
    as_json: AsJson = False,
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
    request = ProposeInstructionRequest(draft=draft, request_id=once())
    tell((await teaching.instructions.ProposeInstruction(request)).instruction, as_json, print_instruction)


@app.command(epilog=examples('tutelage teach revise 5f3a --guidance "Greet in Latin, briefly." --why "It was long."'))
@at_teaching
async def revise(
    teaching: Teaching, instruction_id: InstructionId, guidance: Guidance, why: Why, as_json: AsJson = False
) -> None:
    """Change a proposal's words and its reason, while it is proposed."""
    request = ReviseInstructionRequest(instruction_id=instruction_id, guidance=guidance, why=why)
    tell((await teaching.instructions.ReviseInstruction(request)).instruction, as_json, print_instruction)


@app.command(epilog=examples("tutelage teach activate 5f3a", 'tutelage teach activate 5f3a --yes --why "We teach it."'))
@at_teaching
async def activate(
    teaching: Teaching, instruction_id: InstructionId, why: Why = "", yes: Yes = False, as_json: AsJson = False
) -> None:
    """Show a proposal, and have the agent be sent exactly that from now on."""
    found = await teaching.instructions.GetInstruction(GetInstructionRequest(instruction_id=instruction_id))
    instruction = found.instruction
    newest = GetInstructionSetRequest(agent=instruction.says.agent)
    seen = (await teaching.instructions.GetInstructionSet(newest)).set
    if not as_json:
        print_instruction(instruction)
        print_set(seen)
    otherwise = "Nothing was activated. To turn it down, use `tutelage teach reject`."
    await agreed(yes, as_json, "Make exactly this active?", otherwise)
    request = ActivateInstructionRequest(
        instruction_id=instruction_id,
        why=why,
        guidance_hash=instruction.guidance_hash,
        expected_set=seen.number,
        request_id=once(),
    )
    tell((await teaching.instructions.ActivateInstruction(request)).set, as_json, print_set)


@app.command(epilog=examples('tutelage teach reject 5f3a --why "We do not greet."'))
@at_teaching
async def reject(teaching: Teaching, instruction_id: InstructionId, why: Why, as_json: AsJson = False) -> None:
    """Turn a proposal down, for good."""
    request = RejectInstructionRequest(instruction_id=instruction_id, why=why)
    tell((await teaching.instructions.RejectInstruction(request)).instruction, as_json, print_instruction)


@app.command(epilog=examples('tutelage teach retire 5f3a --why "No longer so."'))
@at_teaching
async def retire(teaching: Teaching, instruction_id: InstructionId, why: Why, as_json: AsJson = False) -> None:
    """Take an active instruction out of use."""
    request = RetireInstructionRequest(instruction_id=instruction_id, why=why, request_id=once())
    tell((await teaching.instructions.RetireInstruction(request)).set, as_json, print_set)


@app.command(
    epilog=examples(
        'tutelage teach rollback hello 0 --why "English again."',
        'tutelage teach rollback hello 3 --why "It wrote too long." --skill write',
    )
)
@at_teaching
async def rollback(
    teaching: Teaching,
    agent: AgentName,
    to_set: Annotated[int, typer.Argument(min=0, metavar="TO_SET", help="The set to restore; 0: nothing taught.")],
    why: Why,
    skill: OfSkill = "",
    as_json: AsJson = False,
) -> None:
    """Make what was active in an earlier set active again, and retire what came since."""
    request = RollBackInstructionsRequest(agent=agent, to_set=to_set, why=why, skill=skill, request_id=once())
    tell((await teaching.instructions.RollBackInstructions(request)).set, as_json, print_set)


app.command(epilog=examples("tutelage teach show hello"))(teach_reading.show)
app.command("list", epilog=examples("tutelage teach list hello --state proposed"))(teach_reading.list_instructions)
app.command(
    epilog=examples("tutelage teach corrections --agent hello", "tutelage teach corrections --drawn-into 5f3a")
)(teach_reading.corrections)
app.command(epilog=examples("tutelage teach explain 5f3a/hello"))(teach_reading.explain)
app.command(epilog=examples("tutelage teach effect 5f3a"))(teach_reading.effect)
app.command(epilog=examples("tutelage teach preview hello --for gus --with 5f3a"))(teach_reading.preview)
app.command(epilog=examples("tutelage teach sets hello"))(teach_sets.sets)
app.command(epilog=examples("tutelage teach diff hello 1 3"))(teach_sets.diff)
