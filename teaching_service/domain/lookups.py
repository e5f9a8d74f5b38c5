"""What can be looked up. What is empty does not narrow."""

from __future__ import annotations

from dataclasses import dataclass

from teaching_service.domain.corrections import Correction
from teaching_service.domain.instructions import Instruction, InstructionState
from teaching_service.domain.sets import InstructionSet


@dataclass(frozen=True, slots=True)
class TasksWanted:
    """Which tasks. `instruction_id`: those that were sent it."""

    agent: str = ""
    turn_id: str = ""
    instruction_id: str = ""


@dataclass(frozen=True, slots=True)
class CorrectionsWanted:
    """Which corrections. `instruction_id`: those that it was drawn from."""

    task_id: str = ""
    agent: str = ""
    skill: str = ""
    instruction_id: str = ""
    withdrawn_too: bool = False


@dataclass(frozen=True, slots=True)
class InstructionsWanted:
    """Which instructions."""

    agent: str = ""
    states: tuple[InstructionState, ...] = ()
    skill: str = ""


@dataclass(frozen=True, slots=True)
class SetCheck:
    """Whether the set that a task was last sent is its agent's newest."""

    task_id: str
    stands: bool
    newest_set: int


@dataclass(frozen=True, slots=True)
class Preview:
    """What a piece of work would be sent, now and with a proposal; how many more would apply and be left out."""

    now: str
    then: str
    left_out: int


@dataclass(frozen=True, slots=True)
class Effect:
    """Whether an instruction helped, counted over the work that somebody may read: `GetEffectResponse`."""

    drawn_from: int
    work_since: int
    corrected_since: int
    not_followed: int
    work_before: int
    corrected_before: int


# One event, as what it is about stands now. None: not for these eyes.
News = Correction | Instruction | InstructionSet | None
