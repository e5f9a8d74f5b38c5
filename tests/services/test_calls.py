"""Turns without a conversation: a plain call has nobody to ask, a stream waits in its process (A9, A10, R3.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import grpc
import pytest
from tutelage.runtime.v1 import turns_pb2
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalRule, ApprovalSetting, ChangesRule

from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, NOTHING_ASKED, Service, calls, refusal, whats, within_deadline
from tests.services.wire_host import wire_host

pytestmark = pytest.mark.usefixtures("host")

READ = ("read_note", {"name": "spring"})
WRITE = ("write_note", {"name": "spring", "text": "tulips"})
TOOLS = ("read_note", "write_note")


def call_of(agent: str, **request: object) -> turns_pb2.CallAgentRequest:
    return turns_pb2.CallAgentRequest(agent=agent, work=turns_pb2.Work(input="Go on."), **request)  # type: ignore[arg-type]


@asynccontextmanager
async def streaming(service: Service, agent: str) -> AsyncIterator[AsyncIterator[turns_pb2.TurnEvent]]:
    """A stream of an agent, whose caller hangs up at the block's end."""
    request = turns_pb2.StreamAgentRequest(agent=agent, work=turns_pb2.Work(input="Go on."), approve=CHANGES_ASKED)
    stream = service["gus"].turns.StreamAgent(request)

    async def events() -> AsyncGenerator[turns_pb2.TurnEvent, None]:
        async for response in stream:
            yield response.event

    async with aclosing(events()) as shown:
        yield shown
    stream.cancel()


async def until(events: AsyncIterator[turns_pb2.TurnEvent], kind: str) -> turns_pb2.TurnEvent:
    async with asyncio.timeout(10):
        async for event in events:
            if event.WhichOneof("event") == kind:
                return event
    raise AssertionError(f"the stream ended without {kind}")


async def test_a_plain_call_returns_what_the_agent_hands_back(service: Service, book: Book) -> None:
    """A turn of its own, journaled like any other, without a conversation."""
    await service.agent("gardener", calls(WRITE), {"say": "Written."}, tools=TOOLS)
    service_asks_nobody = call_of("gardener", approve=NOTHING_ASKED)
    hale = service["hale"]

    turn = (await hale.turns.CallAgent(service_asks_nobody)).turn

    assert (turn.state, turn.output, turn.conversation_id) == (turns_pb2.TURN_STATE_DONE, "Written.", "")
    assert len(book.runs("write_note")) == 1
    assert whats(await service.records(turn.id, "hale"))[:2] == ["turn_given", "writer_started"]


async def test_a_plain_call_that_needs_an_approval_fails_before_anything_of_the_reply_runs(
    service: Service, book: Book
) -> None:
    """A10, settled 15: `APPROVAL_REQUIRED` with the turn's id; also when the same request comes again."""
    await service.agent("gardener", calls(READ, WRITE), {"say": "Written."}, tools=TOOLS)
    request = call_of("gardener", approve=CHANGES_ASKED, request_id="once")

    first = await refusal(service["gus"].turns.CallAgent(request))
    again = await refusal(service["gus"].turns.CallAgent(request))

    turn = await service.get(first.metadata["turn_id"])
    assert (first.reason, first.code) == ("APPROVAL_REQUIRED", grpc.StatusCode.FAILED_PRECONDITION)
    assert (again.reason, again.metadata) == (first.reason, first.metadata)
    assert first.metadata["address"] == "gardener/write_note#2"
    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert book.runs() == []
    assert len(service.paid("gardener")) == 1
    assert (await refusal(service["gus"].turns.ResumeTurn(turns_pb2.ResumeTurnRequest(turn_id=turn.id)))).reason == (
        "TURN_ENDED"
    )


async def test_the_same_request_joins_the_call_that_runs_and_gets_what_came_of_it(service: Service, book: Book) -> None:
    """One turn, one reply paid, one tool run, for three callers (scenario 6)."""
    await service.agent("gardener", calls(("slow_write", {"name": "spring"})), {"say": "Done."}, tools=["slow_write"])
    request = call_of("gardener", approve=NOTHING_ASKED, request_id="once")
    async with service.host("slow", book.slow_write()):
        both = [asyncio.ensure_future(service["hale"].turns.CallAgent(request)) for _ in range(2)]
        await within_deadline(book.slow_began.wait())
        book.slow_may_end.set()
        one, other = [(await within_deadline(call)).turn for call in both]
    late = (await service["hale"].turns.CallAgent(request)).turn

    assert one.id == other.id == late.id
    assert late.output == "Done."
    assert len(book.runs("slow_write")) == 1


async def test_a_call_whose_caller_hangs_up_is_abandoned_and_its_tool_is_told(service: Service, book: Book) -> None:
    """Settled 19: at once, with what may have run listed; what its tool still does is evidence (A19)."""
    await service.agent("gardener", calls(("slow_write", {"name": "spring"})), {"say": "Done."}, tools=["slow_write"])
    async with service.host("slow", book.slow_write()):
        call = asyncio.ensure_future(service["hale"].turns.CallAgent(call_of("gardener", approve=NOTHING_ASKED)))
        await within_deadline(book.slow_began.wait())
        [listed] = (await service["hale"].turns.ListTurns(turns_pb2.ListTurnsRequest(agent="gardener"))).turns
        call.cancel()
        turn = await service.ended(listed.id, "hale")

    assert (turn.state, turn.cause) == (turns_pb2.TURN_STATE_ABANDONED, "Its caller went.")
    assert len(book.runs("slow_write")) == 1


async def test_a_stream_shows_its_turn_waits_in_its_process_and_goes_on_with_the_answer(
    service: Service, book: Book
) -> None:
    """A9: the turn first, then what it does; the question waits for `DecideApproval`, under the same writer."""
    await service.agent("gardener", calls(WRITE), {"say": "Written."}, tools=TOOLS)
    async with streaming(service, "gardener") as events:
        begun = await until(events, "turn")
        [asked] = (await until(events, "waiting")).waiting.approvals
        assert not book.runs()
        await service.yes(asked)
        ended = (await until(events, "ended")).ended

    assert begun.turn.id == ended.id
    assert (ended.state, ended.output, ended.writer) == (turns_pb2.TURN_STATE_DONE, "Written.", 1)
    assert len(book.runs("write_note")) == 1


async def test_a_stream_whose_caller_goes_withdraws_what_it_asked(service: Service, book: Book) -> None:
    """R3.2: it ends with the stream; an answer afterwards is TURN_ENDED, and nothing runs."""
    await service.agent("gardener", calls(WRITE), {"say": "Written."}, tools=TOOLS)
    async with streaming(service, "gardener") as events:
        [asked] = (await until(events, "waiting")).waiting.approvals
    turn = await service.ended(asked.turn_id)

    late = await refusal(service.yes(asked))

    assert turn.state == turns_pb2.TURN_STATE_ABANDONED
    assert late.reason == "TURN_ENDED"
    assert not book.runs()


async def test_a_turn_without_a_conversation_is_never_taken_over(service: Service, book: Book) -> None:
    """Its process went: it is ABANDONED, and nobody goes on with it (R3.2)."""
    await service.agent("gardener", calls(WRITE), {"say": "Written."}, tools=TOOLS)
    async with streaming(service, "gardener") as events:
        await until(events, "waiting")
        await service.stop()
        told_since = [event.WhichOneof("event") async for event in events]
    await service.start()

    [turn] = (await service["gus"].turns.ListTurns(turns_pb2.ListTurnsRequest(agent="gardener"))).turns
    assert told_since == ["bookmark"]
    assert turn.state == turns_pb2.TURN_STATE_ABANDONED
    assert len(service.paid("gardener")) == 1
    assert not book.runs()


async def begun(service: Service, **request: object) -> tuple[asyncio.Future[turns_pb2.CallAgentResponse], str]:
    """Call an agent whose tool stays under way; return the call and the turn's id, which nobody was told yet."""
    since = len(service.logged.events)
    call = asyncio.ensure_future(service["hale"].turns.CallAgent(call_of("gardener", approve=NOTHING_ASKED, **request)))
    taken = await service.logged.heard("turn.taken", since)
    return call, str(service.logged.events[taken - 1]["turn"])


async def test_a_call_that_goes_lists_what_may_have_run_until_its_host_says(service: Service) -> None:
    """Settled 19, A19: the tool is told; its result is evidence and takes the call off the list."""
    await service.agent("gardener", calls(("wire_write", {"n": 1})), {"say": "Done."}, tools=["wire_write"])
    async with wire_host(service, who="other-worker") as host:
        call, turn_id = await begun(service)
        sent = await host.call()
        call.cancel()
        turn = await service.ended(turn_id, "hale")
        cancelled = await within_deadline(host.hear("cancelled"))
        host.say(sent, output_json='"written"')
        await host.hear("taken")

    now = await service.get(turn_id, "hale")
    assert turn.state == turns_pb2.TURN_STATE_ABANDONED
    assert [one.call_id for one in turn.unfinished] == list(cancelled.call_ids) == [sent.call_id]
    assert not now.unfinished
    assert whats(await service.records(turn_id, "hale"))[-1] == "late_result"


async def test_a_call_with_a_request_id_goes_on_for_whoever_comes_back(service: Service, book: Book) -> None:
    """Its caller hangs up, and asks again on another connection: the same turn, which nothing stopped (R3.2)."""
    await service.agent("gardener", calls(("slow_write", {"name": "spring"})), {"say": "Done."}, tools=["slow_write"])
    async with service.host("slow", book.slow_write(), who="other-worker"):
        call, turn_id = await begun(service, request_id="once")
        await within_deadline(book.slow_began.wait())
        call.cancel()
        other = service.client(service.token("hale"))
        again = other.turns.CallAgent(call_of("gardener", approve=NOTHING_ASKED, request_id="once"))
        book.slow_may_end.set()
        turn = (await within_deadline(again)).turn

    assert (turn.id, turn.state, turn.writer) == (turn_id, turns_pb2.TURN_STATE_DONE, 1)
    assert len(book.runs("slow_write")) == 1


async def test_a_call_with_a_request_id_to_which_nobody_comes_back_is_abandoned(service: Service, book: Book) -> None:
    """After `reconnect_within`; the same request then gets that turn (R3.2)."""
    await service.agent("gardener", calls(("slow_write", {"name": "spring"})), tools=["slow_write"])
    await service["hale"].ready()
    await service.restart(reconnect_seconds=0.3)
    async with service.host("slow", book.slow_write(), who="other-worker"):
        call, turn_id = await begun(service, request_id="once")
        await within_deadline(book.slow_began.wait())
        call.cancel()
        turn = await service.ended(turn_id, "hale")
    request = call_of("gardener", approve=NOTHING_ASKED, request_id="once")
    late = (await service["hale"].turns.CallAgent(request)).turn

    assert (turn.state, turn.cause) == (turns_pb2.TURN_STATE_ABANDONED, "Its caller went.")
    assert (late.id, late.state) == (turn_id, turns_pb2.TURN_STATE_ABANDONED)


async def test_the_same_request_for_something_else_is_refused(service: Service) -> None:
    """R9: by account and rpc."""
    await service.agent("gardener", {"say": "Done."})
    await service["hale"].turns.CallAgent(call_of("gardener", request_id="once"))

    other = turns_pb2.CallAgentRequest(agent="gardener", work=turns_pb2.Work(input="Other."), request_id="once")
    error = await refusal(service["hale"].turns.CallAgent(other))

    assert error.reason == "REQUEST_ID_REUSED"


async def test_every_other_end_of_a_plain_call_is_its_turn(service: Service) -> None:
    """Settled 15: FAILED with its cause; ABANDONED where somebody ends it, or where nobody can go on with it (R3.2)."""
    await service.agent("silent", {"when": "false", "say": "Never."})
    await service.agent("away", {"fail": {"status": 503}})
    await service.agent("gardener", calls(("wire_write", {"n": 1})), {"say": "Done."}, tools=["wire_write"])
    hale = service["hale"].turns
    async with wire_host(service, who="other-worker") as host:
        call, turn_id = await begun(service)
        await host.call()
        await hale.AbandonTurn(turns_pb2.AbandonTurnRequest(turn_id=turn_id, why="Enough."))
        stopped = (await within_deadline(call)).turn

    failed = (await hale.CallAgent(call_of("silent"))).turn
    stuck = (await hale.CallAgent(call_of("away"))).turn

    assert (stopped.state, stopped.cause) == (turns_pb2.TURN_STATE_ABANDONED, "Enough.")
    assert (failed.state, stuck.state) == (turns_pb2.TURN_STATE_FAILED, turns_pb2.TURN_STATE_ABANDONED)
    assert "no rule of its script holds" in failed.cause
    assert "503" in stuck.cause


async def test_an_agent_below_that_needs_an_approval_fails_the_plain_call(service: Service, book: Book) -> None:
    """A10, R2.2: the call three deep is named; nothing of its reply has run."""
    tools_alone = ApprovalSetting(rule=ApprovalRule(changes=ChangesRule(tools_alone=True)))
    await service.agent("hand", calls(READ, WRITE), {"say": "Done."}, tools=TOOLS)
    await service.agent("gardener", calls(("hand", {"input": "Go."})), {"say": "Done."}, agents=["hand"])
    await service.agent("steward", calls(("gardener", {"input": "Go."})), {"say": "Done."}, agents=["gardener"])

    error = await refusal(service["hale"].turns.CallAgent(call_of("steward", approve=tools_alone)))

    turn = await service.get(error.metadata["turn_id"], "hale")
    assert (error.reason, error.metadata["address"]) == (
        "APPROVAL_REQUIRED",
        "steward/gardener#1/hand#1/write_note#2",
    )
    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert not turn.unfinished
    assert book.runs() == []


async def test_a_call_on_a_tool_calls_account_is_not_in_this_release(service: Service) -> None:
    """Better than one that is taken and not bound to its root."""
    await service.agent("gardener", {"say": "Done."})

    error = await refusal(service["hale"].turns.CallAgent(call_of("gardener", parent_call_id="c1")))

    assert error.reason == "NOT_IN_THIS_RELEASE"
