"""What a task ran with, and what its agent has been told since, in a sentence (T6.2).

The templates are published in docs/explaining.md (settled 23, 35).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from teaching_service.domain.block import applying
from teaching_service.domain.instructions import Instruction, InstructionState
from teaching_service.domain.tasks import Task

BEFORE_ANYTHING = "It ran before anybody had taught {agent} anything."
RAN_WITH = "It ran with set {set_number} of {agent}: {sent} sent, {left_out} left out."
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


def explained(task: Task, members: Collection[str], instructions: Iterable[Instruction]) -> Explanation:
    """Explain a task by its last block, the members of the set that it ran with, and the agent's instructions as they
    stand, at least those sent and active.

    What stood in that set and was left out is among `not_yet`, but was not made active since.
    """
    ran_with = task.sent[-1]
    known = {one.id: one for one in instructions}
    active = [one for one in known.values() if one.state is InstructionState.ACTIVE]
    not_yet = tuple(one.id for one in applying(active, task.work) if one.id not in ran_with.instruction_ids)
    retired = tuple(one for one in ran_with.instruction_ids if known[one].state is InstructionState.RETIRED)
    since = [one for one in not_yet if one not in members]
    words = in_words(
        task.agent,
        ran_with.set_number,
        sent=len(ran_with.instruction_ids),
        left_out=ran_with.left_out,
        since=len(since),
        retired=len(retired),
    )
    return Explanation(ran_with.set_number, ran_with.instruction_ids, not_yet, retired, words)


def in_words(agent: str, set_number: int, *, sent: int, left_out: int, since: int, retired: int) -> str:
    """Return the sentence. What came since and is 0 is not told; how many were left out always is (settled 35)."""
    begins = RAN_WITH if set_number else BEFORE_ANYTHING
    sentences = [begins.format(agent=agent, set_number=set_number, sent=sent, left_out=left_out)]
    for template, count in ((MADE_ACTIVE, since), (RETIRED, retired)):
        if count:
            sentences.append(template.format(count=count, have="has" if count == 1 else "have"))
    return " ".join(sentences)
