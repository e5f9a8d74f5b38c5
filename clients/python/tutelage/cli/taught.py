"""What agents were told, read whole and printed for a person."""

from __future__ import annotations

from collections.abc import Sequence

from tutelage.cli.layout import print_line, print_named, print_table
from tutelage.cli.pages import pages
from tutelage.client import Teaching
from tutelage.journal_lines import time_of, who
from tutelage.shown import shown
from tutelage.teaching.v1.corrections_pb2 import Correction
from tutelage.teaching.v1.instructions_pb2 import (
    INSTRUCTION_CHANGE_UNSPECIFIED,
    INSTRUCTION_STATE_PROPOSED,
    GetInstructionSetRequest,
    Instruction,
    InstructionChange,
    InstructionDraft,
    InstructionSet,
    InstructionState,
    ListInstructionSetsRequest,
    ListInstructionsRequest,
)
from tutelage.teaching.v1.tasks_pb2 import ExplainTaskResponse

# Guidance is shown whole: 600 characters, some of them by number.
MOST_GUIDANCE = 6_000


async def sets_of(teaching: Teaching, agent: str) -> Sequence[InstructionSet]:
    """Read all of an agent's sets, newest first; set 0 at the end."""
    ask = teaching.instructions.ListInstructionSets
    listed = pages(lambda at: ask(ListInstructionSetsRequest(agent=agent, page_token=at)))
    sets = [one async for page in listed for one in page.sets]
    first = await teaching.instructions.GetInstructionSet(GetInstructionSetRequest(agent=agent, number=0))
    return [*sets, first.set]


async def instructions_of(teaching: Teaching, agent: str) -> Sequence[Instruction]:
    """Read all of an agent's instructions, in every state."""
    ask = teaching.instructions.ListInstructions
    listed = pages(lambda at: ask(ListInstructionsRequest(agent=agent, page_token=at)))
    return [one async for page in listed for one in page.instructions]


def print_correction(correction: Correction) -> None:
    """Print a correction."""
    named = (
        ("task", correction.task_id),
        ("wrong", correction.says.wrong),
        ("right", correction.says.right),
        ("because", correction.says.because),
        ("by", who(correction.by)),
    )
    print_named(f"correction  {correction.id}", named)


def print_instruction(instruction: Instruction) -> None:
    """Print all that there is to know of an instruction before it is made active."""
    says = instruction.says
    by = who(instruction.proposed_by)
    if instruction.proposed_by_agent:
        by += f", the model of {instruction.proposed_by_agent}"
    named = (
        ("agent", says.agent),
        ("for", _for(says)),
        ("state", _state(instruction)),
        ("guidance", says.guidance),
        ("why", says.why),
        ("proposed by", by),
        ("drafted by", instruction.drafted_by),
        ("drawn from", ", ".join(says.from_corrections)),
        ("reviewed by", f"{who(instruction.reviewed_by)} {instruction.review_why}".strip()),
        ("hash", instruction.guidance_hash),
    )
    print_named(f"instruction  {instruction.id}", named)


def print_set(one: InstructionSet) -> None:
    """Print what a set is, in a line."""
    parts = (f"set {one.number} of {one.agent}", _change(one), f"{len(one.members)} active", f"hash {one.hash}")
    print_line(shown("  ".join(part for part in parts if part)))


def print_taught(sets: Sequence[InstructionSet], instructions: Sequence[Instruction]) -> None:
    """Print what stands by an agent's newest set, what is proposed, and the sets. `sets` are newest first."""
    newest = sets[0]
    rows = {instruction.id: _row(instruction) for instruction in instructions}
    print_set(newest)
    if newest.number == 0 and not instructions:
        # A name that is mistyped looks the same: teaching does not know which agents there are.
        print_line("Nobody has taught it anything, and nothing is proposed.")
        return
    # What is for another person alone is not for everybody to see.
    told = [(str(number), *rows.get(one, (one, "", "", ""))) for number, one in enumerate(newest.members, 1)]
    if told:
        print_table("It is told, in this order", ("", *_COLUMNS), told, MOST_GUIDANCE)
    if proposed := [rows[one.id] for one in instructions if one.state == INSTRUCTION_STATE_PROPOSED]:
        print_table("Proposed, and sent to no model", _COLUMNS, proposed, MOST_GUIDANCE)
    history = [
        (str(one.number), _change(one), str(len(one.members)), who(one.by), time_of(one.time), one.why, one.hash)
        for one in sets
    ]
    print_table("Its sets", ("set", "change", "active", "by", "at", "why", "hash"), history)


def print_explanation(explained: ExplainTaskResponse) -> None:
    """Print what a task ran with: the sentence, then the instructions by id."""
    named = (
        ("set", str(explained.set_number)),
        ("sent", ", ".join(explained.sent)),
        ("not yet", ", ".join(explained.not_yet)),
        ("retired", ", ".join(explained.retired_since)),
    )
    print_named(explained.words, named)


_COLUMNS = ("instruction", "for", "guidance", "proposed by")


def _row(instruction: Instruction) -> tuple[str, ...]:
    return instruction.id, _for(instruction.says), instruction.says.guidance, who(instruction.proposed_by)


def _for(says: InstructionDraft) -> str:
    if says.skill:
        return f"skill {says.skill}"
    if says.on_scope:
        return f"scope {says.on_scope}"
    return f"person {says.for_person}" if says.for_person else "everything"


def _state(instruction: Instruction) -> str:
    return InstructionState.Name(instruction.state).removeprefix("INSTRUCTION_STATE_")


def _change(one: InstructionSet) -> str:
    if one.change == INSTRUCTION_CHANGE_UNSPECIFIED:
        return ""
    change = InstructionChange.Name(one.change).removeprefix("INSTRUCTION_CHANGE_")
    if one.instruction_id:
        return f"{change} {one.instruction_id}"
    return f"{change} to set {one.restored_from}" + (f", skill {one.restored_skill}" if one.restored_skill else "")
