"""What can be asked about instructions and sets (B11, B16)."""

from __future__ import annotations

from tutelage.teaching.v1 import instructions_pb2 as pb

from tests.teaching.service import Teaching, refusal


async def test_active_instructions_come_as_they_are_sent_then_the_others_newest_first(teaching: Teaching) -> None:
    """B16, B7: over pages each once."""
    for_gus = await teaching.teach("For Gus.", for_person="gus")
    tags = await teaching.teach("For tags.", skill="WriteTag")
    retired = await teaching.teach("Retired.")
    first = await teaching.teach("First.")
    proposed = await teaching.propose("Proposed.")
    second = await teaching.teach("Second.")
    await teaching.retire(retired.id)
    rejected = await teaching.reject((await teaching.propose("Rejected.")).id)
    await teaching.teach("Add up.", agent="Till")
    teaching.rows("UPDATE instructions SET propose_time = (SELECT min(propose_time) FROM instructions)")
    expected = [one.id for one in (first, second, tags, for_gus, rejected, proposed, retired)]

    for size in (1, 2, 3, 100):
        ids, token = [], ""
        while True:
            request = pb.ListInstructionsRequest(agent="Tagger", page_size=size, page_token=token)
            page = await teaching["hale"].instructions.ListInstructions(request)
            ids += [one.id for one in page.instructions]
            token = page.next_page_token
            if not token:
                break
        assert ids == expected


async def test_lists_narrow_by_state_and_skill(teaching: Teaching) -> None:
    """B16."""
    active = await teaching.teach("Active.")
    tags = await teaching.teach("For tags.", skill="WriteTag")
    proposed = await teaching.propose("Proposed.")

    by_state = await teaching.instructions(states=[pb.INSTRUCTION_STATE_PROPOSED])
    by_states = await teaching.instructions(states=[pb.INSTRUCTION_STATE_PROPOSED, pb.INSTRUCTION_STATE_ACTIVE])
    by_skill = await teaching.instructions(skill="WriteTag")
    unknown = await refusal(teaching.instructions(states=[0]))
    below = await refusal(teaching.instructions(page_size=-1))

    assert [one.id for one in by_state] == [proposed.id]
    assert [one.id for one in by_states] == [active.id, tags.id, proposed.id]
    assert [one.id for one in by_skill] == [tags.id]
    assert (unknown.reason, unknown.fields[0][0]) == ("INVALID_FIELD", "states")
    assert below.fields[0][0] == "page_size"


async def test_what_is_for_one_person_is_theirs_and_theirs_who_see_all(teaching: Teaching) -> None:
    """R10 (B3)."""
    for_gus = await teaching.teach("For Gus.", for_person="gus")
    for_all = await teaching.teach("For everything.")

    seen = {who: [one.id for one in await teaching.instructions(who)] for who in ("gus", "stranger", "sam", "audra")}
    hidden = await refusal(teaching.instruction(for_gus.id, "stranger"))
    for_other = await refusal(teaching.propose("For Gus too.", "stranger", for_person="gus"))
    own = await teaching.propose("For me.", "stranger", for_person="stranger")

    assert seen == {
        "gus": [for_all.id, for_gus.id],
        "stranger": [for_all.id],
        "sam": [for_all.id, for_gus.id],
        "audra": [for_all.id, for_gus.id],
    }
    assert (hidden.reason, for_other.reason) == ("NO_SUCH_THING", "NOT_ADMITTED")
    assert own.says.for_person == "stranger"


async def test_sets_are_got_by_number_or_the_newest_and_0_is_empty(teaching: Teaching) -> None:
    """B11, T4.1, T4.3."""
    never = await teaching.newest()
    first = await teaching.teach("First.")
    second = await teaching.teach("Second.")
    await teaching.retire(first.id)

    sets = await teaching.sets()
    got = [await teaching.newest(number=number) for number in (0, 1, 2, 3)]

    assert (never.agent, never.number, list(never.members)) == ("Tagger", 0, [])
    assert got[0] == never
    assert [one.number for one in sets] == [3, 2, 1]
    assert got[1:] == list(reversed(sets))
    assert await teaching.newest() == sets[0]
    assert [list(one.members) for one in sets] == [[second.id], [first.id, second.id], [first.id]]
    assert (await refusal(teaching.newest(number=4))).reason == "NO_SUCH_THING"
    assert (await refusal(teaching.newest(number=-1))).fields[0][0] == "number"
    assert (await refusal(teaching.newest(agent=""))).fields[0][0] == "agent"


async def test_sets_page_newest_first(teaching: Teaching) -> None:
    """B16."""
    for number in range(7):
        await teaching.teach(f"Rule {number}.")

    numbers, token = [], ""
    while True:
        request = pb.ListInstructionSetsRequest(agent="Tagger", page_size=3, page_token=token)
        page = await teaching["gus"].instructions.ListInstructionSets(request)
        numbers += [one.number for one in page.sets]
        token = page.next_page_token
        if not token:
            break

    assert numbers == [7, 6, 5, 4, 3, 2, 1]
