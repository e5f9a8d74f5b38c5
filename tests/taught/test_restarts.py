"""The runtime stops and starts again at each point of a change: the outcome is the same, and nothing is paid twice."""

from __future__ import annotations

import pytest
from tutelage.teaching.v1 import tasks_pb2

from tests.services.book import Book
from tests.services.service import whats
from tests.taught.both import (
    COMMON_FIRST,
    DONE,
    IN_BRACKETS,
    SKILL,
    TOLD_TO_PROPOSE_AGAIN,
    WRITE,
    Both,
    asked_about,
    prompt,
    proposes,
)
from tests.teaching.service import named, refusal

pytestmark = pytest.mark.usefixtures("host")

POINTS = ("asked", "changed", "refused", "asked again", "answered")


@pytest.mark.parametrize("point", [*POINTS, "all of them"])
async def test_a_restart_at_any_point_changes_nothing(both: Both, book: Book, point: str) -> None:
    """Replies are paid once, the take-up is one, the call runs once (A11, B13, R6.2, R6.4)."""

    async def restart(here: str) -> None:
        if point in (here, "all of them"):
            await both.runtime.restart()

    await both.tagger()
    turn_id, asked = await both.waiting()
    await restart("asked")
    await both.teaching.teach(COMMON_FIRST)
    await restart("changed")
    await both.changed(asked)
    await restart("refused")
    again = await both.runtime.question(turn_id)
    await restart("asked again")
    await both.runtime.yes(again)
    await restart("answered")
    turn = await both.runtime.ended(turn_id)

    assert await both.state(asked) == "SUPERSEDED"
    taken = await both.take_ups(turn_id)
    assert [(one.number, one.from_set, one.block.instruction_set) for one in taken] == [(1, 0, 1)]
    assert [(one.take_up, one.instruction_set) for one in turn.receipts] == [(0, 0), (1, 1)]
    assert [one.set_number for one in (await both.teaching.task(f"{turn_id}/Tagger")).sent] == [0, 1]
    recorded = whats(await both.runtime.records(turn_id))
    assert recorded.count("model_replied") == turn.usage.model_requests == 3
    assert recorded.count("task_started") == 1
    assert [run["address"] for run in book.runs()] == ["Tagger/write_note#2"]
    # Each request was paid for once. One under way while the service stops is made again (R6.2).
    assert list(dict.fromkeys(both.prompts())) == [prompt(), prompt(COMMON_FIRST)]
    if point in ("asked", "changed", "asked again"):
        assert both.prompts() == [prompt(), prompt(COMMON_FIRST), prompt(COMMON_FIRST)]


async def test_a_stop_between_the_fall_and_the_take_up(both: Both, book: Book) -> None:
    """A sibling still runs as the runtime stops: what was superseded stays so, and is taken up once (B13, R6.5)."""
    slow = book.slow_write()
    setting = asked_about("write_note")
    async with both.runtime.host("slow", slow, who="other-worker"):
        asks = proposes(WRITE, ("slow_write", {"name": "bark"}))
        later = {"when": "step == 1", "say": "Done."}
        await both.agent("Tagger", later, asks, tools=["write_note", "slow_write"], approve=setting)
        turn_id = await both.runtime.asked_of("Tagger")
        [asked] = await both.runtime.questions(turn_id)
        await book.slow_began.wait()
        await both.teaching.teach(COMMON_FIRST)
        await both.changed(asked)
        await both.runtime.events(turn_id, lambda event: event.record.tool_done.tool == "write_note")
        before = len(await both.take_ups(turn_id))
        await both.runtime.restart()
        await both.teaching.teach(IN_BRACKETS)
        book.slow_may_end.set()
        await both.runtime.ended(turn_id)

    [taken] = await both.take_ups(turn_id)
    assert (before, taken.number, taken.from_set, taken.block.instruction_set) == (0, 1, 0, 2)
    assert both.prompts() == [prompt(), prompt(COMMON_FIRST, IN_BRACKETS)]
    assert both.runtime.paid("Tagger")[-1]["results"] == [TOLD_TO_PROPOSE_AGAIN, "wrote bark slowly"]
    assert [run["tool"] for run in book.runs()] == ["slow_write"]


async def test_a_request_that_was_under_way_is_made_again_with_the_block_taken_up(both: Both) -> None:
    """A later activation reaches neither try: the take-up's block stands, whoever asks (B13, R6.2, settled 42)."""
    waits = {"when": "step == 1", "delay_ms": 60_000, "say": "Too late."}
    await both.tagger(waits, proposes(WRITE), DONE)
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)
    await both.changed(asked)
    await both.runtime.events(turn_id, lambda event: event.record.HasField("instructions_taken_up"))
    await both.teaching.teach(IN_BRACKETS)
    await both.runtime.stop()
    both.runtime.script("Tagger", {"when": "step == 1", "say": "Done."}, proposes(WRITE))

    await both.runtime.start()
    turn = await both.runtime.ended(turn_id)

    assert set(both.prompts()[1:]) == {prompt(COMMON_FIRST)}
    assert [(one.take_up, one.instruction_set) for one in turn.receipts] == [(0, 0), (1, 1)]
    assert turn.usage.model_requests == 2


async def test_a_restart_with_a_nested_task_that_took_up(both: Both, book: Book) -> None:
    """Each task is rebuilt with the block that it had, three deep (A11, B13, R6.2)."""
    await both.chain(proposes(WRITE), DONE)
    await both.teaching.teach(COMMON_FIRST, agent="Head")
    turn_id, asked = await both.waiting("Head")
    for agent in ("Head", "Tagger"):
        await both.teaching.teach(IN_BRACKETS, agent=agent)
    await both.changed(asked)
    again = await both.runtime.question(turn_id)
    await both.teaching.teach(COMMON_FIRST, agent="Hand")
    await both.runtime.restart()

    await both.runtime.yes(again)
    turn = await both.runtime.ended(turn_id)

    assert [(one.path.count("/"), one.take_up, one.instruction_set) for one in turn.receipts] == [
        (0, 0, 1),
        (1, 0, 0),
        (2, 0, 0),
        (2, 1, 1),
    ]
    assert both.prompts("Head") == [prompt(COMMON_FIRST)] * 2
    assert both.prompts("Hand") == [prompt()] * 2
    assert both.prompts("Tagger") == [prompt(), prompt(IN_BRACKETS), prompt(IN_BRACKETS)]
    assert len(book.runs()) == 1


async def test_taking_up_the_same_number_again_gives_the_same_block(both: Both) -> None:
    """A crash between the take-up and its record begins no second one; a number is never skipped (R6.4, T6.1)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)
    await both.changed(asked)
    await both.runtime.question(turn_id)
    await both.teaching.teach(IN_BRACKETS)
    task_id = f"{turn_id}/Tagger"

    [taken] = await both.take_ups(turn_id)
    again = await both.teaching.take_up(task_id, 1)
    skipped = await refusal(both.teaching.take_up(task_id, 3))

    assert (again.set_number, again.sha256) == (1, taken.block.sha256)
    assert skipped.reason == "INVALID_FIELD"
    assert [one.set_number for one in (await both.teaching.task(task_id)).sent] == [0, 1]


async def test_a_change_while_the_runtime_is_down(both: Both, book: Book) -> None:
    """Nobody tells the runtime of a change: it asks at the yes, so it misses none (B13, R3.6, R6.1)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.runtime.stop()
    await both.teaching.teach(COMMON_FIRST)
    await both.runtime.start()

    await both.changed(asked)
    await both.runtime.yes(await both.runtime.question(turn_id))
    await both.runtime.ended(turn_id)

    assert both.prompts() == [prompt(), prompt(COMMON_FIRST), prompt(COMMON_FIRST)]
    assert len(book.runs()) == 1


async def test_a_deploy_of_the_skill_while_a_call_waits_begins_no_second_task(both: Both) -> None:
    """The task's version and block are those of its start, whatever is registered since (R6.2, R6.4)."""
    await both.teaching.teach(COMMON_FIRST)
    await both.tagger()
    turn_id, asked = await both.waiting()
    newer = type(SKILL)(name=SKILL.name, description="Write the tag, better.", version="3")
    await both.tagger(skills=[newer])
    await both.runtime.restart()

    await both.runtime.yes(asked)
    turn = await both.runtime.ended(turn_id)

    assert [(one.skill_version, one.instruction_set) for one in turn.receipts] == [("2", 1)]
    assert both.prompts() == [prompt(COMMON_FIRST)] * 2
    request = tasks_pb2.CheckSetsRequest(task_ids=[f"{turn_id}/Tagger"])
    [check] = (await both.teaching["runtime"].tasks.CheckSets(request, metadata=named())).checks
    assert check.stands
