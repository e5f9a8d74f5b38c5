"""What must hold of all that people taught, and what of it does not: `tutelage check` (docs/running.md).

Sets are held to each other, to the instructions that they name and to who made them; receipts to the sets and the words
that they were made of. Nothing here knows how any of it came to be written, so a defect there shows here.

Invariant: of what is sound nothing is said, at whatever moment it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from teaching_service.domain.block import RENDER_VERSION, applying, in_order, render
from teaching_service.domain.instructions import Instruction, InstructionState, hash_of
from teaching_service.domain.sets import InstructionChange, InstructionSet, set_hash
from teaching_service.domain.tasks import Task

_S = InstructionState


@dataclass(frozen=True, slots=True)
class Wrong:
    """One thing that does not hold: where, what, and the rule that it breaks."""

    where: str
    what: str
    rule: str


@dataclass(frozen=True, slots=True)
class KeptAgent:
    """All that one agent was taught, as one snapshot has it."""

    agent: str
    instructions: Mapping[str, Instruction]
    # In order. Looked at once, one by one.
    sets: Iterable[InstructionSet]
    # The members of one of its sets, by its number; None where there is none.
    members_of: Callable[[int], tuple[str, ...] | None]
    # Lines of the feed about them: kind, subject, detail.
    told: frozenset[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Receipt:
    """One receipt's row: what a task was sent, without its words."""

    take_up: int
    set_number: int
    set_hash: str
    instruction_ids: tuple[str, ...]
    sha256: str
    left_out: int
    render_version: int


@dataclass(frozen=True, slots=True)
class KeptTask:
    """What one task was sent, and the sets and instructions that its receipts name, as far as they are there."""

    task: Task
    receipts: Sequence[Receipt]
    sets: Mapping[int, InstructionSet]
    instructions: Mapping[str, Instruction]
    # What the rows say by which work is found that was sent an instruction.
    sent: frozenset[str]


# What an agent is taught


def wrong_of_agent(kept: KeptAgent) -> Iterator[Wrong]:
    """Say what does not hold of an agent's sets and instructions."""
    number, before = 0, tuple[str, ...]()
    first_sets: dict[str, InstructionSet] = {}
    for made in kept.sets:
        where = f"set {made.number} of {kept.agent}"
        if made.number != number + 1:
            yield Wrong(f"set {number + 1} of {kept.agent}", "there is none, and there are later ones", "T4.1")
        else:
            yield from (Wrong(where, what, rule) for what, rule in _follows(kept, made, before))
        yield from (Wrong(where, what, rule) for what, rule in _made_of(kept, made))
        if ("instructions_changed", kept.agent, str(made.number)) not in kept.told:
            yield Wrong(where, "the feed does not tell of it", "T9")
        if made.change is InstructionChange.ACTIVATED:
            first_sets.setdefault(made.instruction_id, made)
        number, before = made.number, made.members
    for one in kept.instructions.values():
        stands = _stands(one, one.id in before, first_sets.get(one.id), kept.told)
        yield from (Wrong(f"instruction {one.id}", what, rule) for what, rule in stands)


def _made_of(kept: KeptAgent, made: InstructionSet) -> Iterator[tuple[str, str]]:
    """Hold a set to its members, and to who made it."""
    if made.by is None or not made.by.is_person:
        yield "no person who speaks for themselves made it", "T2.2"
    missing = [one for one in made.members if one not in kept.instructions]
    if missing:
        yield f"it has members that are not there: {', '.join(missing)}", "T4.2"
        return
    members = [kept.instructions[one] for one in made.members]
    if set_hash(members) != made.hash:
        yield "its hash is not that of its members", "T4.2"
    if in_order(members) != members or len(set(made.members)) < len(members):
        yield "its members do not stand in the order in which they are sent", "T4.2"


def _follows(kept: KeptAgent, made: InstructionSet, before: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Hold a set to the one before it: it has what its change makes of that, so no member was never made active."""
    members, own = set(made.members), {made.instruction_id}
    match made.change:
        case InstructionChange.ACTIVATED:
            if made.instruction_id in before or not own <= members or not members <= {*before, *own}:
                yield "it is not the set before it with what was made active", "T4.1"
        case InstructionChange.RETIRED:
            if made.instruction_id not in before or members != {*before} - own:
                yield "it is not the set before it without what was retired", "T4.1"
        case InstructionChange.ROLLED_BACK:
            restored = kept.members_of(made.restored_from) if made.restored_from < made.number else None
            if restored is None or not _is_restored(kept, made, before, restored):
                yield "it is not what was active in the set that it goes back to", "T4.3"
        case _:
            yield "nothing says what made it", "T4.1"


def _is_restored(kept: KeptAgent, made: InstructionSet, before: tuple[str, ...], restored: tuple[str, ...]) -> bool:
    """Whether a rollback has what it went back to, but for what was erased; with a skill, of that skill alone."""
    skill = made.restored_skill

    def is_of_skill(instruction_id: str) -> bool:
        one = kept.instructions.get(instruction_id)
        return one is not None and one.says.skill == skill

    if skill:
        restored = tuple(one for one in restored if is_of_skill(one))
        stayed = {one for one in before if not is_of_skill(one)}
    else:
        stayed = set()
    members = set(made.members)
    erased = {one for one in restored if (it := kept.instructions.get(one)) is not None and it.erase_time is not None}
    return stayed | ({*restored} - erased) <= members <= stayed | {*restored}


def _stands(
    one: Instruction, is_member: bool, first: InstructionSet | None, told: frozenset[tuple[str, str, str]]
) -> Iterator[tuple[str, str]]:
    """Hold an instruction to the sets that it is in."""
    if (one.state is _S.ACTIVE) != is_member:
        yield f"it is {one.state.name}, and the newest set says otherwise", "T2.3"
    was_active = one.state in (_S.ACTIVE, _S.RETIRED)
    if was_active != (first is not None):
        yield f"it is {one.state.name}, and {'a' if first else 'no'} set of its agent activated it", "T2.2"
    elif first is not None and (one.first_set, one.first_active_time) != (first.number, first.time):
        yield "it was made active first by another set than it says", "T4.2"
    if one.state is not _S.PROPOSED and (one.reviewed_by is None or not one.reviewed_by.is_person):
        yield f"it is {one.state.name}, and no person reviewed it", "T2.2"
    if one.erase_time is None and hash_of(one.says.guidance) != one.guidance_hash:
        yield "its guidance is not what its hash was taken over", "T2.5"
    if ("instruction_proposed", one.id) not in {(kind, subject) for kind, subject, _ in told}:
        yield "the feed does not tell of it", "T9"


# What work was sent


def wrong_of_task(kept: KeptTask) -> Iterator[Wrong]:
    """Say what does not hold of what a task was sent."""
    where = f"task {kept.task.id}"
    numbers = [receipt.take_up for receipt in kept.receipts]
    if not numbers or numbers != list(range(len(numbers))):
        yield Wrong(where, "its receipts are not numbered 0, 1, …", "T6.1")
    if kept.sent != {one for receipt in kept.receipts for one in receipt.instruction_ids}:
        yield Wrong(where, "the rows by which work is found do not say what it was sent", "T6.3")
    for receipt in kept.receipts:
        for what, rule in _sent(kept, receipt):
            yield Wrong(f"{where}, receipt {receipt.take_up}", what, rule)


def _sent(kept: KeptTask, receipt: Receipt) -> Iterator[tuple[str, str]]:
    """Hold a receipt to its set, and to the text that the instructions' words make."""
    made = kept.sets.get(receipt.set_number)
    if made is None or made.hash != receipt.set_hash:
        yield f"there is no set {receipt.set_number} of {kept.task.agent} with this hash", "T6.1"
        return
    missing = [one for one in receipt.instruction_ids if one not in kept.instructions]
    if missing:
        yield f"it names what is not there: {', '.join(missing)}", "T6.1"
        return
    members = [kept.instructions[one] for one in made.members if one in kept.instructions]
    apply = tuple(one.id for one in applying(members, kept.task.work))
    if apply[receipt.left_out :] != receipt.instruction_ids:
        yield "it is not what applied to the work in that set", "T5.1"
    words = [kept.instructions[one] for one in receipt.instruction_ids]
    renders = receipt.render_version == RENDER_VERSION and not any(one.erase_time for one in words)
    if renders and sha256(render(words).encode()).hexdigest() != receipt.sha256:
        yield "its hash is not that of the text that was sent", "T5.5"
