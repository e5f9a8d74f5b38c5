"""What a task ran with, and what its agent has been told since, in a sentence (T6.2).

The templates are published in docs/explaining.md (settled 23, 35).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from teaching_service.domain.block import applying
from teaching_service.domain.instructions import Instruction, InstructionState
from teaching_service.domain.tasks import Task

BEFORE_ANYTHING = "It ran before anybody had taught {agent} anything."
RAN_WITH = "It ran with set {set_number} of {agent}: {sent} sent, 0 left out."
MADE_ACTIVE = "Since then {count} {have} been made active that it had not been sent."
RETIRED = "{count} of what it was sent {have} been retired."


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer of `ExplainTask`."""

    set_number: int
    sent: tuple[str, ...]
    not_yet: tuple[str, ...]
    retired_since: tuple[str, ...]
    words: str


def explained(task: Task, instructions: Iterable[Instruction]) -> Explanation:
    """Explain a task by its last block and the agent's instructions as they stand, at least those sent and active."""
    ran_with = task.sent[-1]
    known = {one.id: one for one in instructions}
    active = [one for one in known.values() if one.state is InstructionState.ACTIVE]
    not_yet = tuple(one.id for one in applying(active, task.work) if one.id not in ran_with.instruction_ids)
    retired = tuple(one for one in ran_with.instruction_ids if known[one].state is InstructionState.RETIRED)
    words = in_words(task.agent, ran_with.set_number, len(ran_with.instruction_ids), len(not_yet), len(retired))
    return Explanation(ran_with.set_number, ran_with.instruction_ids, not_yet, retired, words)


def in_words(agent: str, set_number: int, sent: int, not_yet: int, retired: int) -> str:
    """Return the sentence. What is 0 is not told."""
    begins = RAN_WITH if set_number else BEFORE_ANYTHING
    sentences = [begins.format(agent=agent, set_number=set_number, sent=sent)]
    for template, count in ((MADE_ACTIVE, not_yet), (RETIRED, retired)):
        if count:
            sentences.append(template.format(count=count, have="has" if count == 1 else "have"))
    return " ".join(sentences)
