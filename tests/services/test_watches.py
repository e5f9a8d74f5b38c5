"""Watches: every event once, in order, from a cursor on, whatever happens to the stream (A13, C6, R11)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from tutelage.runtime.v1 import approvals_pb2 as pb
from tutelage.runtime.v1 import tools_pb2, turns_pb2

from tests.postgres import both_databases
from tests.services.book import Book
from tests.services.service import (
    CHANGES_ASKED,
    DEADLINE_SECONDS,
    Service,
    calls,
    kinds,
    refusal,
    whats,
    within_deadline,
)
from tests.services.wire_host import wire_host

pytestmark = both_databases

WRITE = ("write_note", {"name": "spring", "text": "tulips"})


class ApprovalsSeen:
    """What one watcher of approvals has seen, and a way to wait for more."""

    def __init__(self) -> None:
        self.events: list[pb.WatchApprovalsResponse] = []
        self._came = asyncio.Event()

    def add(self, event: pb.WatchApprovalsResponse) -> None:
        self.events.append(event)
        self._came.set()

    async def until(self, enough: Callable[[ApprovalsSeen], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not enough(self):
                self._came.clear()
                await self._came.wait()

    def told(self) -> list[tuple[str, str]]:
        """Each approval with what was told of it."""
        return [
            (str(event.WhichOneof("event")), approval.id)
            for event in self.events
            for approval in (*event.waiting.approvals, event.settled.approval, event.outcome.approval)
            if approval.id
        ]


@asynccontextmanager
async def watching(
    service: Service, who: str = "hale", filter: pb.ApprovalFilter | None = None, cursor: str = ""
) -> AsyncIterator[ApprovalsSeen]:
    """Watch approvals for as long as the block lasts."""
    seen = ApprovalsSeen()

    async def watch() -> None:
        async with aclosing(service[who].watch_approvals(filter, cursor)) as events:
            async for event in events:
                seen.add(event)

    task = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.wait([task])


def caught_up(seen: ApprovalsSeen) -> bool:
    return any(event.bookmark.caught_up for event in seen.events)


async def asks(service: Service, count: int = 1, by: str = "gus") -> tuple[str, list[pb.Approval]]:
    """Have a gardener ask so many questions in one reply."""
    asked = [("write_note", {"name": f"n{n}", "text": "x"}) for n in range(count)]
    await service.agent("gardener", calls(*asked), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED, by=by)
    questions = await service.questions(turn_id, count, by=by)
    await service.at_rest(turn_id, by)
    return turn_id, questions


# One turn


@pytest.mark.usefixtures("host")
async def test_a_turn_is_shown_from_its_start_to_its_end_across_a_restart(service: Service) -> None:
    """Every record once, in order; the question once; the end last (A13, R6.8, R11)."""
    turn_id, [asked] = await asks(service)
    watch = asyncio.create_task(service.events(turn_id, lambda event: event.HasField("ended")))
    await service.restart()
    await service.yes(asked)

    events = await within_deadline(watch)

    assert kinds(events) == [
        *("turn_given", "writer_started", "task_started", "model_replied", "approval_asked", "waiting"),
        *("writer_started", "approval_recorded", "tool_started", "tool_done", "model_replied", "turn_ended", "ended"),
    ]
    lines = [event.record.line for event in events if event.HasField("record")]
    assert lines == list(range(1, len(lines) + 1))
    assert [event.record for event in events if event.HasField("record")] == await service.records(turn_id)
    [waiting] = [event.waiting for event in events if event.HasField("waiting")]
    assert (waiting.turn_id, [one.id for one in waiting.approvals]) == (turn_id, [asked.id])
    assert events[-1].ended == await service.get(turn_id)


@pytest.mark.usefixtures("host")
async def test_from_any_cursor_exactly_what_follows_is_shown(service: Service) -> None:
    """A cursor is exclusive, and good in the next process too (A13, C6, R11)."""
    turn_id, questions = await asks(service, 2)
    await service.yes(questions[1])
    await service.no(questions[0])
    await service.ended(turn_id)
    whole = await service.events(turn_id, lambda event: event.HasField("ended"))
    await service.restart()

    assert len({event.cursor for event in whole}) == len(whole)
    for place, event in enumerate(whole[:-1]):
        rest = await service.events(turn_id, lambda event: event.HasField("ended"), event.cursor)
        assert rest == whole[place + 1 :]


async def test_an_interruption_is_told_and_ends_nothing(service: Service) -> None:
    """`interrupted` shows how the turn stands; the stream goes on to the end; from a cursor it is told once (R11)."""
    await service.restart(reconnect_seconds=0.5, approve="nothing")
    await service.agent("gardener", calls(("wire_write", {})), {"say": "Done."}, tools=["wire_write"])
    async with wire_host(service) as host:
        turn_id = await service.asked_of("gardener")
        call = await host.call()
    watch = asyncio.create_task(service.events(turn_id, lambda event: event.HasField("ended")))
    await service.interrupted(turn_id)
    word = turns_pb2.Resolution(call_id=call.call_id, output_json="1")
    await service["gus"].turns.ResumeTurn(turns_pb2.ResumeTurnRequest(turn_id=turn_id, resolutions=[word]))

    events = await within_deadline(watch)

    told = kinds(events)
    assert told.count("interrupted") == 1
    assert told[told.index("interrupted") - 1] == "tool_started"
    assert told[-1] == "ended"
    stopped = events[told.index("interrupted")]
    behind = await service.events(turn_id, lambda event: event.HasField("ended"), stopped.cursor)
    assert kinds(behind) == told[told.index("interrupted") + 1 :]


async def test_cursors_that_do_not_belong_are_refused(service: Service) -> None:
    """One that is none: INVALID_FIELD; one of another turn: CURSOR_EXPIRED (settled 18)."""
    await service.agent("gardener", {"say": "Done."})
    one, other = [await service.asked_of("gardener") for _ in range(2)]
    await service.ended(one)
    events = await service.events(other, lambda event: event.HasField("ended"))

    def watch(cursor: str) -> object:
        return anext(service["gus"].watch_turn(one, cursor))

    garbled = await refusal(watch("garbled"))  # type: ignore[arg-type]
    elsewhere = await refusal(watch(events[0].cursor))  # type: ignore[arg-type]

    assert (garbled.reason, [path for path, _ in garbled.fields]) == ("INVALID_FIELD", ["cursor"])
    assert (elsewhere.reason, elsewhere.code.name) == ("CURSOR_EXPIRED", "OUT_OF_RANGE")


async def test_who_may_not_see_a_turn_cannot_watch_it(service: Service) -> None:
    """R10."""
    await service.agent("gardener", {"say": "Done."})
    turn_id = await service.asked_of("gardener")

    assert (await refusal(anext(service["stranger"].watch_turn(turn_id)))).reason == "NO_SUCH_THING"


# All that waits


@pytest.mark.usefixtures("host")
async def test_all_that_waits_then_a_bookmark_then_what_happens(service: Service) -> None:
    """The snapshot without cursors, the bookmark with the first one, then each event (R11)."""
    turn_id, [first] = await asks(service)

    async with watching(service) as seen:
        await seen.until(caught_up)
        at_first = list(seen.events)
        other_id, [second] = await asks(service)
        await service.yes(first)
        await service.no(second)
        await service.ended(turn_id)
        await service.ended(other_id)
        await seen.until(lambda seen: ("outcome", first.id) in seen.told() and ("settled", second.id) in seen.told())

    assert [event.WhichOneof("event") for event in at_first] == ["waiting", "bookmark"]
    assert [bool(event.cursor) for event in at_first] == [False, True]
    assert [one.id for one in at_first[0].waiting.approvals] == [first.id]
    assert seen.told() == [
        ("waiting", first.id),
        ("waiting", second.id),
        ("settled", first.id),
        *(one for one in seen.told()[3:]),
    ]
    assert sorted(seen.told()[3:]) == sorted([("outcome", first.id), ("settled", second.id)])
    [outcome] = [event.outcome.approval for event in seen.events if event.HasField("outcome")]
    assert outcome.outcome == "wrote n0"


@pytest.mark.usefixtures("host")
async def test_a_console_that_was_away_gets_every_event_since_once_in_order(service: Service) -> None:
    """From its cursor on, through a restart of the service (C6, scenario 27)."""
    async with watching(service) as seen:
        await seen.until(caught_up)
    cursor = seen.events[-1].cursor

    turn_id, [one] = await asks(service)
    await service.yes(one)
    await service.ended(turn_id)
    await service.restart()
    other_id, [two] = await asks(service)
    await service["gus"].turns.AbandonTurn(turns_pb2.AbandonTurnRequest(turn_id=other_id))

    async with watching(service, cursor=cursor) as since:
        await since.until(lambda seen: ("settled", two.id) in seen.told())

    assert since.told() == [
        ("waiting", one.id),
        ("settled", one.id),
        ("outcome", one.id),
        ("waiting", two.id),
        ("settled", two.id),
    ]
    states = [event.settled.approval.state for event in since.events if event.HasField("settled")]
    assert states == [pb.APPROVAL_STATE_APPROVED, pb.APPROVAL_STATE_WITHDRAWN]


@pytest.mark.usefixtures("host")
async def test_an_open_watch_lives_through_a_restart(service: Service) -> None:
    """The client reconnects; nothing is missed and nothing comes twice (C6, R11)."""
    async with watching(service) as seen:
        await seen.until(caught_up)
        turn_id, [one] = await asks(service)
        await seen.until(lambda seen: ("waiting", one.id) in seen.told())
        await service.restart()
        await service.yes(one)
        await service.ended(turn_id)
        await seen.until(lambda seen: ("outcome", one.id) in seen.told())

    assert seen.told() == [("waiting", one.id), ("settled", one.id), ("outcome", one.id)]


@pytest.mark.usefixtures("host")
async def test_a_filter_shows_what_it_names_alone(service: Service, book: Book) -> None:
    """Agent, conversation, turn, tool; a cursor holds for its filter alone (R11, settled 18)."""
    turn_id, [asked] = await asks(service)
    conversation_id = (await service.get(turn_id)).conversation_id
    fitting: dict[str, str] = {
        "agent": "gardener",
        "conversation_id": conversation_id,
        "turn_id": turn_id,
        "tool": "write_note",
    }

    def wants(name: str, value: str) -> pb.ApprovalFilter:
        wanted = pb.ApprovalFilter()
        setattr(wanted, name, value)
        return wanted

    for name, value in fitting.items():
        async with watching(service, filter=wants(name, value)) as seen:
            await seen.until(caught_up)
            assert seen.told() == [("waiting", asked.id)]
        async with watching(service, filter=wants(name, "another")) as other:
            await other.until(caught_up)
            assert other.told() == []
    bookmark = seen.events[-1].cursor
    elsewhere = await refusal(anext(service["hale"].watch_approvals(None, bookmark)))
    states = pb.ApprovalFilter(states=[pb.APPROVAL_STATE_PENDING])
    of_states = await refusal(anext(service["hale"].watch_approvals(states)))

    assert elsewhere.reason == "CURSOR_EXPIRED"
    assert [path for path, _ in of_states.fields] == ["filter.states"]
    assert not book.runs()


@pytest.mark.usefixtures("host")
async def test_put_to_me_shows_what_i_may_answer(service: Service) -> None:
    """An auditor sees all and is put nothing; a stranger sees nothing (R10)."""
    _, [asked] = await asks(service)
    mine = pb.ApprovalFilter(put_to_me=True)

    for who, wanted, shown in (
        ("gus", mine, True),
        ("hale", mine, True),
        ("audra", mine, False),
        ("audra", None, True),
        ("stranger", None, False),
    ):
        async with watching(service, who, wanted) as seen:
            await seen.until(caught_up)
        assert seen.told() == ([("waiting", asked.id)] if shown else []), who


# How streams end


async def test_streams_end_with_their_callers_token(service: Service) -> None:
    """R10: a stream ends with its token, and says so."""
    await service.agent("gardener", {"say": "Too late.", "delay_ms": 60_000})
    turn_id = await service.asked_of("gardener")
    token = service.token("gus", expires_in=1)
    client = service.client(token)
    request = turns_pb2.WatchTurnRequest(turn_id=turn_id)

    async def drain(stream: object) -> None:
        async for _ in stream:  # type: ignore[attr-defined]
            pass

    of_turn = await refusal(within_deadline(drain(client.turns.WatchTurn(request))))
    of_all = await refusal(
        within_deadline(drain(service.client(token).approvals.WatchApprovals(pb.WatchApprovalsRequest())))
    )

    assert {of_turn.reason, of_all.reason} == {"NOT_SIGNED_IN"}
    assert of_turn.code.name == "UNAUTHENTICATED"


async def test_a_hosts_stream_ends_with_its_token(service: Service) -> None:
    """R10: from then on it is sent nothing; its session is over."""
    async with wire_host(service, token=service.token("worker", expires_in=1)) as host:
        with pytest.raises(StopAsyncIteration):
            await host.hear("calls")

        listed = await service["gus"].tools.ListTools(tools_pb2.ListToolsRequest())

    assert not listed.tools


async def test_the_service_stops_in_time_with_every_kind_of_stream_open(service: Service) -> None:
    """Graceful stop within 10 s; watches end with a bookmark, OK (point 10, R11)."""
    await service.agent("gardener", {"say": "Too late.", "delay_ms": 60_000})
    turn_id = await service.asked_of("gardener")
    turns = service["gus"].turns.WatchTurn(turns_pb2.WatchTurnRequest(turn_id=turn_id))
    approvals = service["hale"].approvals.WatchApprovals(pb.WatchApprovalsRequest())
    first_of_turns, first_of_approvals = await anext(aiter(turns)), await anext(aiter(approvals))

    async with wire_host(service) as host:
        began = time.monotonic()
        await within_deadline(service.stop())
        took = time.monotonic() - began
        rest_of_turns = [response async for response in turns]
        rest_of_approvals = [response async for response in approvals]
        with pytest.raises(StopAsyncIteration):
            await host.hear("calls")

    assert took < 5
    assert first_of_turns.event.HasField("record")
    assert first_of_approvals.bookmark.caught_up
    assert rest_of_turns[-1].event.HasField("bookmark")
    assert rest_of_approvals[-1].HasField("bookmark")
    await service.start()
    assert (await service.get(turn_id)).writer in (1, 2)
    assert whats(await service.records(turn_id))[0] == "turn_given"
