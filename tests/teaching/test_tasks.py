"""What a piece of work was sent, for good, and what came since (B9, B10, B13, T6)."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from tutelage.errors import TutelageError
from tutelage.teaching.v1 import tasks_pb2 as pb

from teaching_service.domain.explaining import in_words
from tests.teaching.service import EMPTY_SHA256, Teaching, named, person, refusal, text_of


async def test_a_receipt_has_the_set_the_ids_in_order_and_the_hash_of_exactly_the_text(teaching: Teaching) -> None:
    """B9, B7, T6.1: the most specific last; kept with the task for good."""
    for_gus = await teaching.teach("For Gus.", for_person="gus")
    on_team = await teaching.teach("For the team.", on_scope="team:1")
    tags = await teaching.teach("For tags.", skill="WriteTag")
    everything = await teaching.teach("For everything.")
    for aim in ({"for_person": "ana"}, {"on_scope": "team:2"}, {"skill": "Price"}):
        await teaching.teach("Not for this.", **aim)
    await teaching.propose("Not active.")

    task_id, block = await teaching.begin(skill="WriteTag", work_for="gus", scope="team:1")
    task = await teaching.task(task_id)

    assert list(block.instruction_ids) == [everything.id, tags.id, on_team.id, for_gus.id]
    assert block.text == text_of("For everything.", "For tags.", "For the team.", "For Gus.")
    assert block.sha256 == hashlib.sha256(block.text.encode()).hexdigest()
    assert (block.set_number, block.set_hash) == (7, (await teaching.newest()).hash)
    assert (block.words, block.left_out, block.render_version) == ("Set 7 of Tagger: 4 sent, 0 left out.", 0, 1)
    assert list(task.sent) == [block]
    assert (task.agent, task.skill, task.skill_version, task.scope) == ("Tagger", "WriteTag", "2", "team:1")
    assert (task.turn_id, task.work_for, task.given_by) == (task_id.split("/")[0], person("gus"), person("gus"))


async def test_before_any_teaching_nothing_is_sent(teaching: Teaching) -> None:
    """T5.4, T5.5: set 0, the empty text and its hash (B9)."""
    _, block = await teaching.begin()

    assert block == pb.InstructionBlock(
        set_hash=hashlib.sha256(b"tutelage.set.v1\0\0\0\0\0").hexdigest(),
        sha256=EMPTY_SHA256,
        words="Set 0 of Tagger: 0 sent, 0 left out.",
        render_version=1,
    )


async def test_the_same_task_gets_the_same_block_whatever_has_been_taught(teaching: Teaching) -> None:
    """T6.1: work under way keeps its set, through a restart, also when it begins many times at once (B13)."""
    await teaching.teach("First.")
    begun = await asyncio.gather(*(teaching.begin(task_id="t9/Tagger") for _ in range(20)))
    second = await teaching.teach("Second.")
    await teaching.retire(second.id)
    await teaching.stop()
    await teaching.start()

    _, again = await teaching.begin(task_id="t9/Tagger")
    await teaching.take_up("t9/Tagger", 1)
    _, after_a_take_up = await teaching.begin(task_id="t9/Tagger")

    assert all(block == again for _, block in begun)
    assert after_a_take_up == again
    assert again.set_number == 1


async def test_another_piece_of_work_under_the_same_id_is_refused(teaching: Teaching) -> None:
    """T6.1: an id is one piece of work's."""
    task_id, _ = await teaching.begin()

    for other in ({"skill": "Price"}, {"work_for": "ana"}, {"scope": "team:1"}):
        refused = await refusal(teaching.begin(task_id=task_id, **other))
        assert refused.reason == "REQUEST_ID_REUSED"


async def test_sets_stand_until_something_is_taught_of_that_agent(teaching: Teaching) -> None:
    """B13, R3.6: each task's, in the order asked."""
    tag, _ = await teaching.begin()
    till, _ = await teaching.begin("Till")
    stood = await teaching.check(till, tag)
    await teaching.teach("Be brief.")
    later, _ = await teaching.begin()

    checks = await teaching.check(later, tag, till, tag)

    assert [(one.task_id, one.stands, one.newest_set) for one in stood] == [(till, True, 0), (tag, True, 0)]
    assert [(one.task_id, one.stands, one.newest_set) for one in checks] == [
        (later, True, 1),
        (tag, False, 1),
        (till, True, 0),
        (tag, False, 1),
    ]
    unknown = await refusal(teaching.check(tag, "no/such"))
    assert (unknown.reason, unknown.metadata["id"]) == ("NO_SUCH_THING", "no/such")


async def test_a_take_up_is_a_receipt_of_its_own_beside_the_first(teaching: Teaching) -> None:
    """B13, T6.1: numbered, the same number the same block; then the set stands."""
    first = await teaching.teach("First.")
    task_id, block = await teaching.begin()
    await teaching.retire(first.id)
    second = await teaching.teach("Second.")

    ahead = await refusal(teaching.take_up(task_id, 2))
    taken = await asyncio.gather(*(teaching.take_up(task_id, 1) for _ in range(10)))
    await teaching.teach("Third.")
    again, next_one = await teaching.take_up(task_id, 1), await teaching.take_up(task_id, 2)
    [check] = await teaching.check(task_id)

    assert (ahead.reason, ahead.fields[0][0]) == ("INVALID_FIELD", "number")
    assert all(one == again for one in taken)
    assert (again.set_number, again.text, list(again.instruction_ids)) == (3, text_of("Second."), [second.id])
    assert (next_one.set_number, next_one.text) == (4, text_of("Second.", "Third."))
    assert list((await teaching.task(task_id)).sent) == [block, again, next_one]
    assert check.stands
    for number in (0, -1, 4):
        assert (await refusal(teaching.take_up(task_id, number))).reason == "INVALID_FIELD"
    assert (await refusal(teaching.take_up("no/such", 1))).reason == "NO_SUCH_THING"


async def test_past_work_is_explained(teaching: Teaching) -> None:
    """B10, T6.2: the set, what was sent, what it was not sent, what has been retired, and a sentence."""
    before, _ = await teaching.begin()
    assert (await teaching.explain(before)).words == "It ran before anybody had taught Tagger anything."
    first = await teaching.teach("First.")
    one, _ = await teaching.begin()
    second = await teaching.teach("Second.", skill="WriteTag")
    await teaching.teach("Not for this.", skill="Price")

    told_none, told_one = await teaching.explain(before), await teaching.explain(one)
    await teaching.retire(first.id)
    retired = await teaching.explain(one)

    assert (told_none.set_number, list(told_none.sent), list(told_none.not_yet)) == (0, [], [first.id, second.id])
    assert told_none.words == (
        "It ran before anybody had taught Tagger anything. "
        "Since then 2 have been made active that it had not been sent."
    )
    assert (told_one.set_number, list(told_one.sent), list(told_one.not_yet)) == (1, [first.id], [second.id])
    assert told_one.words == (
        "It ran with set 1 of Tagger: 1 sent, 0 left out. Since then 1 has been made active that it had not been sent."
    )
    assert list(retired.retired_since) == [first.id]
    assert retired.words.endswith("sent. 1 of what it was sent has been retired.")
    await teaching.take_up(one, 1)
    assert (await teaching.explain(one)).words == "It ran with set 4 of Tagger: 1 sent, 0 left out."


@pytest.mark.parametrize("set_number", [0, 3])
@pytest.mark.parametrize("left_out", [0, 2])
@pytest.mark.parametrize("since", [0, 1, 2])
@pytest.mark.parametrize("retired", [0, 1, 2])
def test_every_mix_of_the_published_sentences(set_number: int, left_out: int, since: int, retired: int) -> None:
    """B10, T6.4, docs/explaining.md."""
    expected = (
        f"It ran with set 3 of Tagger: 5 sent, {left_out} left out."
        if set_number
        else "It ran before anybody had taught Tagger anything."
    )
    expected += {
        0: "",
        1: " Since then 1 has been made active that it had not been sent.",
        2: " Since then 2 have been made active that it had not been sent.",
    }[since]
    expected += {
        0: "",
        1: " 1 of what it was sent has been retired.",
        2: " 2 of what it was sent have been retired.",
    }[retired]

    told = in_words("Tagger", set_number, sent=5, left_out=left_out, since=since, retired=retired)
    assert told == expected


async def test_tasks_are_listed_newest_first_to_who_may_read_them(teaching: Teaching) -> None:
    """B16, R10, scenario 37: by agent, turn and instruction sent; over pages each once, whatever their times."""
    for_all = await teaching.teach("For everything.")
    mine = [(await teaching.begin())[0] for _ in range(7)]
    till, _ = await teaching.begin("Till", task_id=mine[0].split("/")[0] + "/Tagger/Till#1")
    others, _ = await teaching.begin(work_for="ana", given_by="ana")
    teaching.rows("UPDATE tasks SET start_time = (SELECT min(start_time) FROM tasks)")

    async def listed(by: str, size: int = 3, **wanted: str) -> list[str]:
        ids, token = [], ""
        while True:
            request = pb.ListTasksRequest(page_size=size, page_token=token, **wanted)
            page = await teaching[by].tasks.ListTasks(request)
            ids += [one.id for one in page.tasks]
            token = page.next_page_token
            if not token:
                return ids

    assert await listed("gus") == [till, *reversed(mine)]
    assert await listed("gus", agent="Tagger") == list(reversed(mine))
    assert await listed("gus", turn_id=mine[0].split("/")[0]) == [till, mine[0]]
    assert await listed("gus", instruction_id=for_all.id) == list(reversed(mine))
    assert await listed("audra") == [others, till, *reversed(mine)]
    assert await listed("stranger") == []
    for call in (teaching.task(others), teaching.explain(others), teaching.task("no/such")):
        assert (await refusal(call)).reason == "NO_SUCH_THING"


async def test_the_runtime_names_the_tenant_of_each_call_and_nobody_else_does(teaching: Teaching) -> None:
    """R10: one id, two tenants, two tasks; what one teaches the other is not sent."""
    await teaching.teach("For the default tenant.")
    _, here = await teaching.begin(task_id="t1/Tagger")
    _, there = await teaching.begin(task_id="t1/Tagger", tenant="elsewhere")
    elsewhere = teaching.client(teaching.token("gus", tenant="elsewhere"))
    request = pb.GetTaskRequest(task_id="t1/Tagger")

    assert (here.set_number, there.set_number) == (1, 0)
    read = (await elsewhere.tasks.GetTask(request, metadata=named("default"))).task
    assert list(read.sent) == [there]
    begin = pb.BeginTaskRequest(task_id="t2/Tagger", agent="Tagger", work_for=person("gus"), given_by=person("gus"))
    for metadata in ([], named("a") + named("b"), named("not a tenant")):
        refused = await refusal(teaching["runtime"].tasks.BeginTask(begin, metadata=metadata))
        assert (refused.reason, refused.fields[0][0]) == ("INVALID_FIELD", "tutelage-tenant")


async def test_every_wrong_field_of_a_task_is_named_at_once(teaching: Teaching) -> None:
    """R12: nothing is written."""
    request = pb.BeginTaskRequest(agent="not a name", skill="a\0b")
    refused = await refusal(teaching["runtime"].tasks.BeginTask(request, metadata=named()))
    many = pb.CheckSetsRequest(task_ids=["t"] * 1_001)
    too_many = await refusal(teaching["runtime"].tasks.CheckSets(many, metadata=named()))

    assert {field for field, _ in refused.fields} == {"task_id", "agent", "skill", "work_for.id", "given_by.id"}
    assert too_many.fields[0][0] == "task_ids"
    assert teaching.rows("SELECT * FROM tasks") == []


async def test_a_preview_says_what_would_be_sent_and_records_nothing(teaching: Teaching) -> None:
    """B6, T5: now, and with a proposal; another person's is for who teaches, supervises or audits."""
    await teaching.teach("For everything.")
    await teaching.teach("For Gus.", for_person="gus")
    tags = await teaching.propose("For tags.", skill="WriteTag")

    preview = await teaching.preview("gus", skill="WriteTag", work_for="gus", with_instruction_id=tags.id)
    without = await teaching.preview("gus", skill="Price")
    others = await teaching.preview("audra", work_for="gus")
    hidden = await refusal(teaching.preview("stranger", work_for="gus"))
    rejected = await teaching.reject(tags.id)
    of_rejected = await refusal(teaching.preview(with_instruction_id=rejected.id))
    elsewhere = await refusal(teaching.preview(agent="Till", with_instruction_id=tags.id))

    assert preview.now == text_of("For everything.", "For Gus.")
    assert preview.then == text_of("For everything.", "For tags.", "For Gus.")
    assert without.now == without.then == text_of("For everything.")
    assert others.now == preview.now
    assert (hidden.reason, of_rejected.reason) == ("NOT_ADMITTED", "INSTRUCTION_STATE")
    assert elsewhere.reason == "NO_SUCH_THING"
    assert (await teaching.newest()).number == 2
    assert teaching.rows("SELECT * FROM tasks") == []


async def test_where_kinds_meet_the_least_specific_are_left_out_and_counted(idle: Teaching) -> None:
    """B8, T5.3: from the front, whole ones; the record's first line says how many."""
    await idle.start(most_instructions=2)
    everything = await idle.teach("For everything.")
    tags = await idle.teach("For tags.", skill="WriteTag")
    for_gus = await idle.teach("For Gus.", for_person="gus")

    task_id, block = await idle.begin(skill="WriteTag", work_for="gus")
    preview = await idle.preview(skill="WriteTag", work_for="gus")
    explained = await idle.explain(task_id)

    assert list(block.instruction_ids) == [tags.id, for_gus.id]
    assert block.text == text_of("For tags.", "For Gus.")
    assert (block.left_out, block.words) == (1, "Set 3 of Tagger: 2 sent, 1 left out.")
    assert (preview.now, preview.left_out) == (block.text, 1)
    assert list(explained.not_yet) == [everything.id]
    assert explained.words == "It ran with set 3 of Tagger: 2 sent, 1 left out."


async def test_teaching_and_work_at_once_give_each_task_one_sets_block(teaching: Teaching) -> None:
    """T6.1: a block is of one set, whole, whatever is taught meanwhile (B9, B13)."""
    proposals = [await teaching.propose(f"Rule {number}.", "hale") for number in range(12)]

    async def teach() -> None:
        for one in proposals:
            await teaching.activate(one)

    async def work() -> list[tuple[str, pb.InstructionBlock]]:
        return [await teaching.begin() for _ in range(10)]

    _, *worked = await asyncio.gather(teach(), work(), work(), work())

    sets = {one.number: one for one in await teaching.sets()}
    for _, block in [one for begun in worked for one in begun]:
        if block.set_number:
            assert list(block.instruction_ids) == list(sets[block.set_number].members)
            assert block.set_hash == sets[block.set_number].hash
        else:
            assert block.text == ""


async def test_a_part_that_is_away_is_told_as_away(teaching: Teaching) -> None:
    """R3.6: a stopped service is UNAVAILABLE, which the runtime waits out."""
    task_id, block = await teaching.begin()
    await teaching.stop()

    with pytest.raises(TutelageError) as away:
        await teaching["runtime"].tasks.TakeUpInstructions(
            pb.TakeUpInstructionsRequest(task_id=task_id, number=1), metadata=named(), timeout=2
        )
    await teaching.start()
    _, again = await teaching.begin(task_id=task_id)

    assert away.value.passing
    assert again == block
