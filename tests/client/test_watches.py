"""Watches go on at their cursor, whatever became of the stream."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tutelage.client import Tutelage, connect_teaching
from tutelage.errors import TutelageError
from tutelage.runtime.v1.approvals_pb2 import (
    ApprovalFilter,
    ApprovalSettled,
    Bookmark,
    Waiting,
    WatchApprovalsResponse,
)
from tutelage.runtime.v1.turns_pb2 import TextDelta, Turn, TurnEvent, WatchTurnResponse
from tutelage.teaching.v1.events_pb2 import EventBookmark, WatchTeachingResponse
from tutelage.teaching.v1.instructions_pb2 import Instruction, InstructionSet

from tests.client.runtime_double import RuntimeDouble, refuse


def stream_of(*events: Any, breaks_with: grpc.StatusCode | None = None, reason: str = "") -> Any:
    async def stream(request: Any, context: Any) -> Any:
        for event in events:
            yield event
        if breaks_with is not None:
            await refuse(context, breaks_with, reason)

    return stream


def bookmark(cursor: str) -> WatchTurnResponse:
    return WatchTurnResponse(event=TurnEvent(cursor=cursor, bookmark=Bookmark()))


def text(words: str) -> WatchTurnResponse:
    return WatchTurnResponse(event=TurnEvent(text=TextDelta(text=words)))


def ended(cursor: str) -> WatchTurnResponse:
    return WatchTurnResponse(event=TurnEvent(cursor=cursor, ended=Turn(id="t1")))


async def test_a_watch_goes_on_at_its_cursor_and_ends_with_the_turn(double: RuntimeDouble, runtime: Tutelage) -> None:
    """Scenario 27: from its cursor it gets every event since, once, in order (R11)."""
    double.turns.streams = [
        stream_of(bookmark("1"), text("he")),
        stream_of(bookmark("2"), breaks_with=grpc.StatusCode.UNAVAILABLE, reason="PART_UNAVAILABLE"),
        stream_of(breaks_with=grpc.StatusCode.INTERNAL),
        stream_of(ended("3")),
    ]

    seen = [event async for event in runtime.watch_turn("t1")]

    assert [event.WhichOneof("event") for event in seen] == ["bookmark", "text", "bookmark", "ended"]
    assert [request.cursor for request in double.turns.asked] == ["", "1", "2", "2"]


async def test_a_watch_begins_where_it_is_told_to(double: RuntimeDouble, runtime: Tutelage) -> None:
    double.turns.streams = [stream_of(ended("9"))]

    seen = [event async for event in runtime.watch_turn("t1", cursor="8")]

    assert len(seen) == 1
    assert double.turns.asked[0].cursor == "8"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.OUT_OF_RANGE, "CURSOR_EXPIRED"),
        (grpc.StatusCode.UNAUTHENTICATED, "NOT_SIGNED_IN"),
        (grpc.StatusCode.INTERNAL, "DEFECT"),
    ],
)
async def test_what_no_later_try_can_mend_is_raised(
    double: RuntimeDouble, runtime: Tutelage, code: grpc.StatusCode, reason: str
) -> None:
    double.turns.streams = [stream_of(bookmark("1"), breaks_with=code, reason=reason)]

    with pytest.raises(TutelageError) as caught:
        async for _ in runtime.watch_turn("t1"):
            pass

    assert caught.value.reason == reason


async def test_a_watch_outlives_the_service(double: RuntimeDouble, runtime: Tutelage) -> None:
    """The service is stopped, its port closed, and started again: the watch goes on by itself."""

    async def hanging(request: Any, context: Any) -> Any:
        yield bookmark("1")
        await asyncio.Event().wait()  # until the stop breaks the stream

    double.turns.streams = [hanging, stream_of(ended("2"))]
    events = runtime.watch_turn("t1")

    first = await anext(events)
    await double.stop()
    await double.start()
    rest = [event async for event in events]

    assert first.cursor == "1"
    assert [event.cursor for event in rest] == ["2"]
    assert double.turns.asked[-1].cursor == "1"


async def test_approvals_begin_again_until_the_first_bookmark(double: RuntimeDouble, runtime: Tutelage) -> None:
    """Until the snapshot is whole there is no cursor; after it each event comes once (R11)."""
    waiting = WatchApprovalsResponse(waiting=Waiting(turn_id="t1"))
    caught_up = WatchApprovalsResponse(cursor="5", bookmark=Bookmark(caught_up=True))
    settled = WatchApprovalsResponse(cursor="6", settled=ApprovalSettled())
    double.approvals.streams = [stream_of(waiting), stream_of(waiting, caught_up), stream_of(settled)]
    wanted = ApprovalFilter(put_to_me=True)

    seen = []
    events = runtime.watch_approvals(wanted)
    async for event in events:
        seen.append(event.WhichOneof("event"))
        if event.HasField("settled"):
            break
    await events.aclose()

    assert seen == ["waiting", "waiting", "bookmark", "settled"]
    assert [request.cursor for request in double.approvals.asked] == ["", "", "5"]
    assert all(request.filter == wanted for request in double.approvals.asked)


async def test_what_is_taught_comes_each_once_across_streams(double: RuntimeDouble) -> None:
    """B15: a bookmark first, which says where it begins; then every event since, in order (R11)."""
    begins = WatchTeachingResponse(cursor="1", bookmark=EventBookmark())
    proposed = WatchTeachingResponse(cursor="2", instruction_proposed=Instruction(id="i1"))
    changed = WatchTeachingResponse(cursor="3", instructions_changed=InstructionSet(number=1))
    double.teaching_events.streams = [
        stream_of(breaks_with=grpc.StatusCode.UNAVAILABLE),
        stream_of(begins),
        stream_of(proposed, breaks_with=grpc.StatusCode.INTERNAL),
        stream_of(changed),
    ]

    seen = []
    async with connect_teaching(double.address, "the-token") as teaching:
        events = teaching.watch_teaching(agent="tagger")
        async for event in events:
            seen.append(event.WhichOneof("event"))
            if event.HasField("instructions_changed"):
                break
        await events.aclose()

    assert seen == ["bookmark", "instruction_proposed", "instructions_changed"]
    assert [request.cursor for request in double.teaching_events.asked] == ["", "", "1", "2"]
    assert {request.agent for request in double.teaching_events.asked} == {"tagger"}
