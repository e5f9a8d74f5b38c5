"""Instructions: what people tell an agent, and where each one stands (T2).

Invariants:
- A move that `MOVES` does not list is `INSTRUCTION_STATE`. Activation and rollback alone lead to ACTIVE.
- The words change while it is PROPOSED, and never after; so what a set or a receipt names by id has one wording.
- `first_set` is the set that activated it first: it orders instructions, and stays through a rollback.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256

from teaching_service.domain.access import Account, admit_teacher
from teaching_service.domain.principals import Principal
from teaching_service.domain.problems import InstructionStateProblem, NotAdmitted, WordsChanged


class InstructionState(enum.Enum):
    """Where an instruction stands: `instructions.proto`."""

    UNSPECIFIED = "UNSPECIFIED"
    PROPOSED = "PROPOSED"
    ACTIVE = "ACTIVE"
    REJECTED = "REJECTED"
    RETIRED = "RETIRED"


class Move(enum.Enum):
    """What can be done to one. The value completes "You cannot … it"."""

    REVISE = "revise"
    ACTIVATE = "activate"
    REJECT = "reject"
    RETIRE = "retire"
    RESTORE = "restore"


_S = InstructionState
# T2.4. A rollback restores what is retired, and retires what came since.
MOVES: dict[tuple[InstructionState, Move], InstructionState] = {
    (_S.PROPOSED, Move.REVISE): _S.PROPOSED,
    (_S.PROPOSED, Move.ACTIVATE): _S.ACTIVE,
    (_S.PROPOSED, Move.REJECT): _S.REJECTED,
    (_S.ACTIVE, Move.RETIRE): _S.RETIRED,
    (_S.RETIRED, Move.RESTORE): _S.ACTIVE,
}


class ForWhat(enum.IntEnum):
    """What kind of work one is for, the least specific first: the order in which they are sent (T5.2)."""

    EVERYTHING = 0
    SKILL = 1
    SCOPE = 2
    PERSON = 3


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work, as far as it decides what applies to it."""

    skill: str = ""
    scope: str = ""
    work_for: str = ""


@dataclass(frozen=True, slots=True)
class InstructionDraft:
    """What an instruction is for, and what it says. At most one of `skill`, `for_person` and `on_scope` is set."""

    agent: str
    skill: str = ""
    for_person: str = ""
    on_scope: str = ""
    guidance: str = ""
    why: str = ""
    from_corrections: tuple[str, ...] = ()

    @property
    def for_what(self) -> ForWhat:
        """What kind of work it is for."""
        if self.for_person:
            return ForWhat.PERSON
        if self.on_scope:
            return ForWhat.SCOPE
        return ForWhat.SKILL if self.skill else ForWhat.EVERYTHING

    @property
    def work(self) -> Work:
        """The work that it alone is for, besides everything's."""
        return Work(self.skill, self.on_scope, self.for_person)

    def applies_to(self, work: Work) -> bool:
        """Whether it is for everything, or for the work's one skill, scope or person (T5.1)."""
        match self.for_what:
            case ForWhat.PERSON:
                return self.for_person == work.work_for
            case ForWhat.SCOPE:
                return self.on_scope == work.scope
            case ForWhat.SKILL:
                return self.skill == work.skill
            case _:
                return True


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction's row."""

    id: str
    tenant: str
    says: InstructionDraft
    proposed_by: Principal
    guidance_hash: str
    propose_time: datetime
    state: InstructionState = InstructionState.PROPOSED
    proposed_by_agent: str = ""
    drafted_by: str = ""
    # Who changed the words last. None: they are as proposed.
    revised_by: Principal | None = None
    reviewed_by: Principal | None = None
    review_why: str = ""
    first_set: int = 0
    first_active_time: datetime | None = None
    retired_by: Principal | None = None
    retired_why: str = ""
    erase_time: datetime | None = None
    made: int = 0

    @property
    def drawn_from(self) -> int:
        """How many corrections it was drawn from."""
        return len(self.says.from_corrections)

    @property
    def active_since(self) -> datetime | None:
        """Since when it is active: of its first activation, through rollbacks (T4.3). None: it is not."""
        return self.first_active_time if self.state is InstructionState.ACTIVE else None

    @property
    def place(self) -> tuple[ForWhat, int]:
        """Where it stands among those that are sent: the most specific last, within each by first activation."""
        return self.says.for_what, self.first_set

    @property
    def listed_at(self) -> tuple[int, int, int]:
        """Where it stands in lists: active ones as they are sent, then the others, the newest first."""
        if self.state is InstructionState.ACTIVE:
            return int(self.says.for_what), self.first_set, self.made
        return len(ForWhat), -self.made, self.made

    def moved(self, move: Move) -> Instruction:
        """Return it after a move. Raises `InstructionStateProblem`."""
        state = MOVES.get((self.state, move))
        if state is None:
            raise InstructionStateProblem(self.id, self.state.value, move.value)
        return replace(self, state=state)

    def activated(self, by: Account, why: str, first_set: int, now: datetime) -> Instruction:
        """Return it made active for the first time."""
        moved = self.moved(Move.ACTIVATE)
        return replace(moved, reviewed_by=by.principal, review_why=why, first_set=first_set, first_active_time=now)

    def retired(self, by: Account, why: str) -> Instruction:
        """Return it taken out of use."""
        return replace(self.moved(Move.RETIRE), retired_by=by.principal, retired_why=why)

    def restored(self) -> Instruction:
        """Return it active again, by a rollback."""
        return replace(self.moved(Move.RESTORE), retired_by=None, retired_why="")


def hash_of(guidance: str) -> str:
    """Return SHA-256, in hex, of normalised guidance: what a review names."""
    return sha256(guidance.encode()).hexdigest()


def proposed(
    instruction_id: str, tenant: str, draft: InstructionDraft, by: Account, proposed_by_agent: str, now: datetime
) -> Instruction:
    """Return a proposal: whoever makes it, no model is sent it (T2.1)."""
    return Instruction(
        id=instruction_id,
        tenant=tenant,
        says=draft,
        proposed_by=by.principal,
        proposed_by_agent=proposed_by_agent,
        guidance_hash=hash_of(draft.guidance),
        propose_time=now,
    )


def revised(instruction: Instruction, by: Account, guidance: str, why: str) -> Instruction:
    """Return a proposal with other words, normalised before."""
    admit_teacher(by, "revise an instruction")
    says = replace(instruction.says, guidance=guidance, why=why)
    return replace(instruction.moved(Move.REVISE), says=says, guidance_hash=hash_of(guidance), revised_by=by.principal)


def rejected(instruction: Instruction, by: Account, why: str) -> Instruction:
    """Return a proposal turned down, for good."""
    admit_teacher(by, "turn an instruction down")
    return replace(instruction.moved(Move.REJECT), reviewed_by=by.principal, review_why=why)


def check_words_read(instruction: Instruction, guidance_hash: str) -> None:
    """Check that the words read are the words made active. Raises `WordsChanged`."""
    if guidance_hash != instruction.guidance_hash:
        raise WordsChanged(instruction.id)


def check_second_person(instruction: Instruction, by: Account) -> None:
    """Check that whoever activates neither proposed it nor revised it last, nor was acted for by who did (T7)."""
    wrote = instruction.revised_by or instruction.proposed_by
    for author in (instruction.proposed_by, wrote):
        if by.principal.id in (author.id, author.on_behalf_of):
            raise NotAdmitted("activate what you proposed or revised: it needs a second person who teaches")
