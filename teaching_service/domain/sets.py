"""Sets: an agent's instructions as they stood after one change, numbered and hashed (T4).

Every activation, retirement and rollback makes the agent's next set. The hash is published with vectors in
docs/sets.md.

Invariants:
- Numbers are 1, 2, … without a gap. Set 0 is before anything was taught, and is empty.
- Members stand in the order in which they are sent. The same instructions give the same hash.
- Each change is a teacher's, and checks everything before it changes anything.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256

from teaching_service.domain.access import Account, admit_teacher
from teaching_service.domain.block import Limits, in_order, render
from teaching_service.domain.instructions import (
    ForWhat,
    Instruction,
    InstructionState,
    check_second_person,
    check_words_read,
)
from teaching_service.domain.length_prefix import lp
from teaching_service.domain.principals import Principal, Proof
from teaching_service.domain.problems import (
    AlreadyOnSet,
    InvalidFields,
    MembersErased,
    NoSuchThing,
    SetMovedOn,
    TooMuchToSend,
)


class InstructionChange(enum.Enum):
    """What made a set: `instructions.proto`."""

    UNSPECIFIED = "UNSPECIFIED"
    ACTIVATED = "ACTIVATED"
    RETIRED = "RETIRED"
    ROLLED_BACK = "ROLLED_BACK"


def set_hash(members: Sequence[Instruction]) -> str:
    """Hash members in their order, in hex (T4.2). Number and time do not enter."""
    hashed = b"tutelage.set.v1\0" + len(members).to_bytes(4, "big")
    for one in members:
        says = one.says
        hashed += lp(one.id, says.skill, says.for_person, says.on_scope, bytes.fromhex(one.guidance_hash))
    return sha256(hashed).hexdigest()


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """One set's row. Sets are only ever added."""

    tenant: str
    agent: str
    number: int
    hash: str
    change: InstructionChange = InstructionChange.UNSPECIFIED
    instruction_id: str = ""
    restored_from: int = 0
    restored_skill: str = ""
    members: tuple[str, ...] = ()
    by: Principal | None = None
    time: datetime | None = None
    why: str = ""
    proof: Proof | None = None


def set_zero(tenant: str, agent: str) -> InstructionSet:
    """Return the set before anybody taught the agent anything."""
    return InstructionSet(tenant, agent, 0, set_hash(()))


@dataclass(frozen=True, slots=True)
class Taught:
    """What an agent is taught now: its newest set, and its instructions, as many as a change looks at.

    All active ones are among them.
    """

    newest: InstructionSet
    instructions: Mapping[str, Instruction]

    @property
    def active(self) -> list[Instruction]:
        """The members of the newest set, in order."""
        return in_order(one for one in self.instructions.values() if one.state is InstructionState.ACTIVE)

    def find(self, instruction_id: str) -> Instruction:
        """Return one of the agent's instructions. Raises `NoSuchThing`."""
        found = self.instructions.get(instruction_id)
        if found is None:
            raise NoSuchThing("instruction", instruction_id)
        return found


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change comes to: the next set, and the instructions that are other than before."""

    made: InstructionSet
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Review:
    """What a teacher says with any change."""

    by: Account
    why: str
    now: datetime
    expected_set: int | None = None


@dataclass(frozen=True, slots=True)
class Activation:
    """What is to be made active, as read, and what it replaces."""

    instruction_id: str
    guidance_hash: str
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings say about teaching."""

    limits: Limits = field(default_factory=Limits)
    two_people: bool = False


def activate(taught: Taught, review: Review, what: Activation, policy: Policy) -> Changed:
    """Make a proposal active, and retire what it replaces, in one set."""
    admit_teacher(review.by, "make an instruction active")
    _check_expected(taught, review)
    instruction = taught.find(what.instruction_id)
    if policy.two_people:
        check_second_person(instruction, review.by)
    activated = instruction.activated(review.by, review.why, taught.newest.number + 1, review.now)
    check_words_read(instruction, what.guidance_hash)
    if instruction.id in what.replaces or len(set(what.replaces)) < len(what.replaces):
        raise InvalidFields([("replaces", "Name each of the others once.")])
    why = f"Replaced by {instruction.id}." + (f" {review.why}" if review.why else "")
    replaced = [taught.find(one).retired(review.by, why) for one in what.replaces]
    members = in_order([*_without(taught.active, what.replaces), activated])
    _check_size(members, activated, policy.limits)
    made = _next(taught, review, members, InstructionChange.ACTIVATED, instruction_id=instruction.id)
    return Changed(made, (activated, *replaced))


def retire(taught: Taught, review: Review, instruction_id: str) -> Changed:
    """Take an active instruction out of use."""
    admit_teacher(review.by, "retire an instruction")
    _check_expected(taught, review)
    retired = taught.find(instruction_id).retired(review.by, review.why)
    members = _without(taught.active, [instruction_id])
    made = _next(taught, review, members, InstructionChange.RETIRED, instruction_id=instruction_id)
    return Changed(made, (retired,))


def roll_back(
    taught: Taught,
    review: Review,
    to_set: int,
    target: InstructionSet | None,
    limits: Limits,
    *,
    skill: str = "",
    without_erased: bool = False,
) -> Changed:
    """Make what was active in an earlier set active again, and retire what came since (T4.3).

    `target` is that set; None where there is none. With a skill: for that skill's own instructions alone.
    """
    admit_teacher(review.by, "roll instructions back")
    _check_expected(taught, review)
    if target is None:
        raise NoSuchThing("set", str(to_set))
    restored = [taught.find(one) for one in target.members]
    kept: list[Instruction] = []
    if skill:
        restored = [one for one in restored if one.says.skill == skill]
        kept = [one for one in taught.active if one.says.skill != skill]
    erased = [one.id for one in restored if one.erase_time is not None]
    if erased and not without_erased:
        raise MembersErased(target.agent, to_set, erased)
    members = in_order([*kept, *_without(restored, erased)])
    if [one.id for one in members] == [one.id for one in taught.active]:
        raise AlreadyOnSet(target.agent, to_set, taught.newest.number)
    if skill:
        _check_work(members, limits, skill=skill)
    now = {one.id for one in members}
    changes = [
        *(one.retired(review.by, review.why) for one in taught.active if one.id not in now),
        *(one.restored() for one in members if one.state is not InstructionState.ACTIVE),
    ]
    made = _next(taught, review, members, InstructionChange.ROLLED_BACK, restored_from=to_set, restored_skill=skill)
    return Changed(made, tuple(changes))


def with_proposal(taught: Taught, instruction_id: str) -> list[Instruction]:
    """Return what would be active if a proposal were. Raises `NoSuchThing`, `InstructionStateProblem`."""
    proposal = taught.find(instruction_id)
    number = taught.newest.number + 1
    by = Account(proposal.proposed_by)
    return in_order([*taught.active, proposal.activated(by, "", number, proposal.propose_time)])


def _check_expected(taught: Taught, review: Review) -> None:
    if review.expected_set is not None and review.expected_set != taught.newest.number:
        raise SetMovedOn(taught.newest.agent, review.expected_set, taught.newest.number)


def _without(instructions: Iterable[Instruction], ids: Collection[str]) -> list[Instruction]:
    return [one for one in instructions if one.id not in ids]


def _next(
    taught: Taught,
    review: Review,
    members: Sequence[Instruction],
    change: InstructionChange,
    *,
    instruction_id: str = "",
    restored_from: int = 0,
    restored_skill: str = "",
) -> InstructionSet:
    return InstructionSet(
        tenant=taught.newest.tenant,
        agent=taught.newest.agent,
        number=taught.newest.number + 1,
        change=change,
        instruction_id=instruction_id,
        restored_from=restored_from,
        restored_skill=restored_skill,
        members=tuple(one.id for one in members),
        hash=set_hash(members),
        by=review.by.principal,
        time=review.now,
        why=review.why,
        proof=review.by.proof,
    )


def _check_size(members: Sequence[Instruction], activated: Instruction, limits: Limits) -> None:
    """Check the work that an instruction is for: its own kind's beside everything's, or each kind's (T5.3)."""
    if activated.says.for_what is not ForWhat.EVERYTHING:
        _check_work(
            members,
            limits,
            skill=activated.says.skill,
            scope=activated.says.on_scope,
            person=activated.says.for_person,
        )
        return
    _check_work(members, limits)
    for one in {(one.says.skill, one.says.on_scope, one.says.for_person) for one in members}:
        _check_work(members, limits, skill=one[0], scope=one[1], person=one[2])


def _check_work(
    members: Sequence[Instruction], limits: Limits, *, skill: str = "", scope: str = "", person: str = ""
) -> None:
    own = (skill, scope, person)
    those = [one for one in members if (one.says.skill, one.says.on_scope, one.says.for_person) in (own, ("", "", ""))]
    if not limits.holds(those):
        named = [f"{kind} {name}" for kind, name in zip(("skill", "scope", "person"), own, strict=True) if name]
        raise TooMuchToSend(
            named[0] if named else "everything",
            len(those),
            len(render(those)),
            limits.most_instructions,
            limits.most_characters,
        )
