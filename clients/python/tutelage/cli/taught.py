"""What agents were told, printed for a person."""

from __future__ import annotations

from collections.abc import Sequence

from tutelage.cli.layout import print_line, print_named, print_table
from tutelage.journal_lines import time_of, who
from tutelage.shown import shown
from tutelage.teaching.v1.corrections_pb2 import Correction, Severity
from tutelage.teaching.v1.instructions_pb2 import (
    INSTRUCTION_CHANGE_UNSPECIFIED,
    INSTRUCTION_STATE_PROPOSED,
    GetEffectResponse,
    Instruction,
    InstructionChange,
    InstructionDraft,
    InstructionSet,
    InstructionState,
)
from tutelage.teaching.v1.tasks_pb2 import ExplainTaskResponse

# Guidance is shown whole: 600 characters, some of them by number.
MOST_GUIDANCE = 6_000


def print_correction(correction: Correction) -> None:
    """Print a correction."""
    named = (
        ("task", correction.task_id),
        ("wrong", correction.says.wrong),
        ("right", correction.says.right),
        ("because", correction.says.because),
        ("severity", _severity(correction)),
        ("by", who(correction.by)),
        ("withdrawn", _withdrawn(correction)),
    )
    print_named(f"correction  {correction.id}", named)


def print_corrections(corrections: Sequence[Correction]) -> None:
    """Print corrections as a table."""
    if not corrections:
        print_line("There are no such corrections.")
        return
    rows = [
        (one.id, one.task_id, one.says.wrong, one.says.right, one.says.because, who(one.by), time_of(one.time),
         _withdrawn(one))
        for one in corrections
    ]  # fmt: skip
    columns = ("correction", "task", "wrong", "right", "because", "by", "at", "withdrawn")
    print_table("Corrections", columns, rows)


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
    print_sets(sets)


def print_sets(sets: Sequence[InstructionSet]) -> None:
    """Print an agent's sets as a table."""
    rows = [
        (str(one.number), _change(one), str(len(one.members)), who(one.by), time_of(one.time), one.why, one.hash)
        for one in sets
    ]
    print_table("Its sets", ("set", "change", "active", "by", "at", "why", "hash"), rows)


def print_instructions(instructions: Sequence[Instruction]) -> None:
    """Print instructions as a table."""
    if not instructions:
        print_line("There are no such instructions.")
        return
    rows = [(_state(one), *_row(one)) for one in instructions]
    print_table("Instructions", ("state", *_COLUMNS), rows, MOST_GUIDANCE)


def print_difference(added: Sequence[Instruction], removed: Sequence[Instruction]) -> None:
    """Print what came between two sets, and what went."""
    if not added and not removed:
        print_line("They have the same instructions.")
        return
    rows = [("+", *_row(one)) for one in added] + [("-", *_row(one)) for one in removed]
    print_table("What came and what went", ("", *_COLUMNS), rows, MOST_GUIDANCE)


def print_explanation(explained: ExplainTaskResponse) -> None:
    """Print what a task ran with: the sentence, then the instructions by id."""
    named = (
        ("set", str(explained.set_number)),
        ("sent", ", ".join(explained.sent)),
        ("not yet", ", ".join(explained.not_yet)),
        ("retired", ", ".join(explained.retired_since)),
    )
    print_named(explained.words, named)


def print_effect(effect: GetEffectResponse) -> None:
    """Print what was counted of an instruction: two rows to compare, then what was said of it."""
    rows = [
        ("before it", str(effect.work_before), str(effect.corrected_before)),
        ("sent it", str(effect.work_since), str(effect.corrected_since)),
    ]
    print_table("Of the work that you may read", ("", "work", "corrected"), rows)
    print_line(f"Corrections that it was drawn from: {effect.drawn_from}.")
    print_line(f"Corrections that say it was not followed: {effect.not_followed}.")


_COLUMNS = ("instruction", "for", "guidance", "proposed by")


def _severity(correction: Correction) -> str:
    return Severity.Name(correction.says.severity).removeprefix("SEVERITY_")


def _withdrawn(correction: Correction) -> str:
    if not correction.HasField("withdraw_time"):
        return ""
    return f"{time_of(correction.withdraw_time)} {correction.withdrawn_because}"


def _row(instruction: Instruction) -> tuple[str, ...]:
    return instruction.id, _for(instruction.says), instruction.says.guidance, who(instruction.proposed_by)


def _for(says: InstructionDraft) -> str:
    if not says.guidance:  # another person's alone: nothing of it is shown
        return ""
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
