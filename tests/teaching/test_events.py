"""What happens, as it happens (B15, T9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tutelage.teaching.v1 import corrections_pb2, events_pb2

from tests.postgres import both_databases
from tests.teaching.service import Teaching, refusal

pytestmark = both_databases


async def _next(
    events: AsyncIterator[events_pb2.WatchTeachingResponse], count: int
) -> list[events_pb2.WatchTeachingResponse]:
    seen: list[events_pb2.WatchTeachingResponse] = []
    async for event in events:
        if not event.HasField("bookmark"):
            seen.append(event)
        if len(seen) == count:
            break
    return seen


def _kinds(events: list[events_pb2.WatchTeachingResponse]) -> list[str]:
    return [str(event.WhichOneof("event")) for event in events]


async def _all_that_happens(teaching: Teaching) -> None:
    """One of each event: eight in all."""
    task_id, _ = await teaching.begin()
    correction = await teaching.correct(task_id)
    await teaching["gus"].corrections.WithdrawCorrection(
        corrections_pb2.WithdrawCorrectionRequest(correction_id=correction.id, why="I misread it.")
    )
    proposal = await teaching.propose("Be brief.")
    proposal = await teaching.revise(proposal.id, "Be brief and kind.")
    await teaching.reject((await teaching.propose("Be rude.")).id)
    await teaching.activate(proposal)
    await teaching.retire(proposal.id)


ALL = [
    "work_corrected",
    "work_corrected",
    "instruction_proposed",
    "instruction_proposed",
    "instruction_proposed",
    "instruction_proposed",
    "instructions_changed",
    "instructions_changed",
]


async def test_a_watch_begins_with_a_bookmark_and_shows_each_event_once_in_order(teaching: Teaching) -> None:
    """B15: corrected and taken back, proposed, revised, turned down, made active, retired."""
    await teaching.propose("Before the watch.")
    async with teaching.watching("hale") as events:
        first = await anext(events)
        await _all_that_happens(teaching)
        seen = await _next(events, len(ALL))

    assert first.HasField("bookmark")
    assert first.cursor
    assert _kinds(seen) == ALL
    assert [one.instructions_changed.number for one in seen[-2:]] == [1, 2]
    assert len({one.cursor for one in seen}) == len(ALL)


async def test_from_its_cursor_a_watch_misses_nothing_and_sees_nothing_twice(teaching: Teaching) -> None:
    """R11, scenario 27: through a restart, from any place."""
    async with teaching.watching("hale") as events:
        begins = (await anext(events)).cursor
    await _all_that_happens(teaching)
    await teaching.stop()
    await teaching.start()

    async with teaching.watching("hale", begins) as events:
        all_of_it = await _next(events, len(ALL))
    for place in (0, 3, 6):
        async with teaching.watching("hale", all_of_it[place].cursor) as events:
            rest = await _next(events, len(ALL) - place - 1)
        assert rest == all_of_it[place + 1 :]


async def test_a_watcher_sees_what_they_may_read_of_each_event(teaching: Teaching) -> None:
    """R10: corrections of their own work; proposals but for those for others; sets, with a role (B15)."""
    async with (
        teaching.watching("gus") as gus,
        teaching.watching("stranger") as stranger,
        teaching.watching("nobody") as nobody,
    ):
        for events in (gus, stranger, nobody):
            assert (await anext(events)).HasField("bookmark")
        task_id, _ = await teaching.begin()
        await teaching.correct(task_id)
        await teaching.teach("For Gus.", for_person="gus")
        of_nobody, _ = await teaching.begin(work_for="nobody")
        await teaching.correct(of_nobody, "hale")

        assert _kinds(await _next(gus, 3)) == ["work_corrected", "instruction_proposed", "instructions_changed"]
        assert _kinds(await _next(stranger, 1)) == ["instructions_changed"]
        assert (await _next(nobody, 1))[0].work_corrected.task_id == of_nobody


async def test_a_watch_of_one_agent_shows_that_agent(teaching: Teaching) -> None:
    """B15: the filter is part of the cursor."""
    async with teaching.watching("hale", agent="Till") as events:
        begins = (await anext(events)).cursor
        await _all_that_happens(teaching)
        await teaching.teach("Add up.", agent="Till")
        seen = await _next(events, 2)

    assert _kinds(seen) == ["instruction_proposed", "instructions_changed"]
    assert seen[1].instructions_changed.agent == "Till"
    async with teaching.watching("hale", begins) as events:
        assert (await refusal(anext(events))).reason == "CURSOR_EXPIRED"
    async with teaching.watching("hale", "no cursor") as events:
        assert (await refusal(anext(events))).reason == "INVALID_FIELD"


async def test_a_watch_ends_with_a_bookmark_where_the_service_stops(teaching: Teaching) -> None:
    """R11: and goes on at it."""
    async with teaching.watching("hale") as events:
        assert (await anext(events)).HasField("bookmark")
        stopping = asyncio.create_task(teaching.stop())
        last = [event async for event in events]
        await stopping
    await teaching.start()
    await teaching.teach("Be brief.")

    async with teaching.watching("hale", last[-1].cursor) as events:
        seen = await _next(events, 2)

    assert last[-1].HasField("bookmark")
    assert _kinds(seen) == ["instruction_proposed", "instructions_changed"]
