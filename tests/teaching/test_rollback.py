"""Going back: to any set, for one skill alone, to 0 (B12, T4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tutelage.teaching.v1 import instructions_pb2 as pb

from teaching_service.domain import sets
from teaching_service.domain.block import Limits, in_order
from teaching_service.domain.instructions import Instruction, InstructionState
from teaching_service.domain.problems import (
    AlreadyOnSet,
    MembersErased,
    NoSuchThing,
    SetMovedOn,
    TeachingProblem,
    TooMuchToSend,
)
from teaching_service.domain.sets import Activation, Changed, InstructionSet, Policy, Review, Taught, set_hash, set_zero
from tests.postgres import both_databases
from tests.teaching.made import AIMS, NOON, TEACHER, instruction
from tests.teaching.service import Teaching, refusal

ROOMY = Policy(Limits(1_000, 1_000_000))


@both_databases
async def test_a_rollback_is_the_next_set_and_says_what_it_restored(teaching: Teaching) -> None:
    """Scenario 32: to 3 of 7, then to 5, gives 8 and 9, with the hashes of 3 and 5 (B12, B11)."""
    for number in range(1, 8):
        await teaching.teach(f"Rule {number}.")

    eighth, ninth = await teaching.roll_back(3), await teaching.roll_back(5)

    hashes = {one.number: one.hash for one in await teaching.sets()}
    assert [(one.number, one.restored_from) for one in (eighth, ninth)] == [(8, 3), (9, 5)]
    assert (eighth.hash, ninth.hash) == (hashes[3], hashes[5])
    assert eighth.change == pb.INSTRUCTION_CHANGE_ROLLED_BACK
    assert list(eighth.members) == list((await teaching.newest(number=3)).members)


@both_databases
async def test_back_to_0_nothing_is_sent_and_forth_again_all_is_as_it_was(teaching: Teaching) -> None:
    """B12: `active_since` and the order are of the first activation."""
    first, second = await teaching.teach("First."), await teaching.teach("Second.")

    back = await teaching.roll_back(0, why="The tags are being redesigned.")
    _, nothing = await teaching.begin()
    gone = await teaching.instruction(first.id)
    forth = await teaching.roll_back(2)
    _, block = await teaching.begin()

    assert (back.number, back.restored_from, list(back.members)) == (3, 0, [])
    assert back.hash == (await teaching.newest(number=0)).hash
    assert (nothing.set_number, nothing.text) == (3, "")
    assert (gone.state, gone.retired_by.id, gone.retired_why) == (
        pb.INSTRUCTION_STATE_RETIRED,
        "hale",
        "The tags are being redesigned.",
    )
    assert list(forth.members) == list(block.instruction_ids) == [first.id, second.id]
    assert await teaching.instruction(first.id) == first


@both_databases
async def test_for_one_skill_alone(teaching: Teaching) -> None:
    """T4.3: the members of now without that skill's, and that set's of the skill (B12)."""
    old_tag = await teaching.teach("Old tags.", skill="WriteTag")
    everything = await teaching.teach("For everything.")
    await teaching.retire(old_tag.id)
    new_tag = await teaching.teach("New tags.", skill="WriteTag")
    price = await teaching.teach("Prices.", skill="Price")

    made = await teaching.roll_back(1, skill="WriteTag")

    assert (made.restored_from, made.restored_skill) == (1, "WriteTag")
    assert list(made.members) == [everything.id, old_tag.id, price.id]
    assert (await teaching.instruction(new_tag.id)).state == pb.INSTRUCTION_STATE_RETIRED
    again = await refusal(teaching.roll_back(1, skill="WriteTag"))
    assert again.reason == "ALREADY_ON_SET"


async def test_what_stands_is_not_restored_and_what_never_was_cannot_be(teaching: Teaching) -> None:
    """T4.3: by the resulting members, whatever the number."""
    await teaching.teach("Be brief.")
    await teaching.roll_back(0)
    await teaching.roll_back(1)

    refused = [await refusal(teaching.roll_back(number)) for number in (1, 3, 4, 99)]
    never_taught = await refusal(teaching.roll_back(0, agent="Till"))
    below = await refusal(teaching.roll_back(-1))
    moved_on = await refusal(teaching.roll_back(0, expected_set=2))

    assert [one.reason for one in refused] == ["ALREADY_ON_SET"] * 2 + ["NO_SUCH_THING"] * 2
    assert never_taught.reason == "ALREADY_ON_SET"
    assert (below.reason, below.fields[0][0]) == ("INVALID_FIELD", "to_set")
    assert moved_on.reason == "SET_MOVED_ON"


async def test_a_whole_rollback_is_never_too_much_a_skills_can_be(idle: Teaching) -> None:
    """T4.3, T5.3: limits that were lowered since do not keep anybody from going back."""
    await idle.start()
    tag = await idle.teach("Tags.", skill="WriteTag")
    await idle.teach("More tags.", skill="WriteTag")
    await idle.retire(tag.id)
    await idle.stop()
    await idle.start(most_instructions=1)

    skill = await refusal(idle.roll_back(2, skill="WriteTag"))
    whole = await idle.roll_back(2)
    _, block = await idle.begin()

    assert skill.reason == "TOO_MUCH_TO_SEND"
    assert len(whole.members) == 2
    assert (len(block.instruction_ids), block.left_out) == (1, 1)
    assert block.words == "Set 4 of Tagger: 1 sent, 1 left out."


def _taught(newest: int, *members: Instruction) -> Taught:
    last = InstructionSet("default", "Tagger", newest, set_hash(members), members=tuple(one.id for one in members))
    return Taught(last, {one.id: one for one in members})


def test_the_checks_come_in_their_order() -> None:
    """T4.3: each fault alone, and before every later one."""
    erased = replace(instruction("i1", "", 1, skill="WriteTag"), state=InstructionState.RETIRED, erase_time=NOON)
    kept = instruction("i2", "Kept.", 2, skill="WriteTag")
    taught = _taught(3, kept)
    taught = Taught(taught.newest, {**taught.instructions, erased.id: erased})
    target = InstructionSet("default", "Tagger", 2, "", members=(erased.id, kept.id))
    tight = Limits(0, 0)

    def back(
        expected: int, to: InstructionSet | None, *, limits: Limits = tight, skill: str = "", without: bool = False
    ) -> Changed:
        review = Review(TEACHER, "Why.", NOON, expected)
        return sets.roll_back(taught, review, 2, to, limits, skill=skill, without_erased=without)

    def problem(*arguments: object, **named: object) -> TeachingProblem:
        with pytest.raises(TeachingProblem) as refused:
            back(*arguments, **named)  # type: ignore[arg-type]
        return refused.value

    assert isinstance(problem(2, None), SetMovedOn)
    assert isinstance(problem(3, None), NoSuchThing)
    named = problem(3, target)
    assert isinstance(named, MembersErased)
    assert named.metadata["instruction_ids"] == "i1"
    assert isinstance(problem(3, target, without=True), AlreadyOnSet)
    skill_less = InstructionSet("default", "Tagger", 2, "")
    assert isinstance(problem(3, target, skill="WriteTag"), MembersErased)
    assert back(3, skill_less, skill="WriteTag").made.members == ()
    more = replace(instruction("i3", "More.", 3, skill="WriteTag"), state=InstructionState.RETIRED)
    taught = Taught(taught.newest, {**taught.instructions, more.id: more})
    bigger = InstructionSet("default", "Tagger", 2, "", members=(kept.id, more.id))
    assert isinstance(problem(3, bigger, skill="WriteTag"), TooMuchToSend)
    assert back(3, bigger).made.members == (kept.id, more.id)


class History:
    """An agent's instructions and sets, changed by the domain alone."""

    def __init__(self) -> None:
        self.instructions: dict[str, Instruction] = {}
        self.sets = [set_zero("default", "Tagger")]

    @property
    def taught(self) -> Taught:
        return Taught(self.sets[-1], self.instructions)

    def take(self, changed: Changed) -> None:
        self.instructions |= {one.id: one for one in changed.instructions}
        self.sets.append(changed.made)

    @property
    def active(self) -> list[Instruction]:
        return in_order(one for one in self.instructions.values() if one.state is InstructionState.ACTIVE)


steps = st.lists(
    st.tuples(st.sampled_from(["teach", "retire", "back", "skill"]), st.integers(0, 30), st.sampled_from(AIMS)),
    max_size=25,
)


@given(steps)
def test_sets_always_say_what_is_active_and_any_can_be_gone_back_to(
    taken: list[tuple[str, int, Mapping[str, Any]]],
) -> None:
    """T4, over any history: no gap; members are what is active; a rollback has its target's hash (B11, B12)."""
    history = History()
    review = Review(TEACHER, "Why.", NOON)
    for kind, number, aim in taken:
        active = history.active
        if kind == "teach":
            one = instruction(f"i{len(history.instructions)}", f"Rule {number}.", **aim)
            history.instructions[one.id] = one
            history.take(sets.activate(history.taught, review, Activation(one.id, one.guidance_hash), ROOMY))
        elif kind == "retire" and active:
            history.take(sets.retire(history.taught, review, active[number % len(active)].id))
        elif kind in ("back", "skill"):
            target = history.sets[number % len(history.sets)]
            skill = aim.get("skill", "") if kind == "skill" else ""
            try:
                changed = sets.roll_back(history.taught, review, target.number, target, ROOMY.limits, skill=skill)
            except AlreadyOnSet:
                assert skill or target.members == history.sets[-1].members
                continue
            history.take(changed)
            if not skill:
                assert (changed.made.members, changed.made.hash) == (target.members, target.hash)
        assert history.sets[-1].members == tuple(one.id for one in history.active)
        assert history.sets[-1].hash == set_hash(history.active)
    assert [one.number for one in history.sets] == list(range(len(history.sets)))
