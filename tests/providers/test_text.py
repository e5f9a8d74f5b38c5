"""What a model writes, shown as it comes to whoever watches: `WatchTurn`, `StreamAgent` (C6, R11)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from tutelage.runtime.v1 import turns_pb2
from tutelage.runtime.v1.turns_pb2 import StreamAgentRequest, TurnEvent, Work

from tests.providers.conftest import gardener
from tests.providers.wire import Call, Says, Wire
from tests.services.book import Book
from tests.services.service import Service, kinds

READ = Call("call_a", "read_note", ('{"name": "tulips"}',))


async def test_text_is_shown_before_the_reply_has_ended(service: Service, wire: Wire, model: str) -> None:
    begun, held = asyncio.Event(), asyncio.Event()
    wire.answers += [Says(("Water ", "them ", "today."), begun=begun, held=held)]
    await gardener(service, model)
    turn_id = await service.asked_of("gardener")

    text, seen = "", list[TurnEvent]()
    async with asyncio.timeout(10), aclosing(service["gus"].watch_turn(turn_id)) as events:
        async for event in events:
            if event.record.HasField("task_started"):
                begun.set()
            seen.append(event)
            if event.HasField("text"):
                text += event.text.text
                assert (event.cursor, event.text.path, event.text.address) == ("", "gardener", "gardener")
            if text == "Water them today.":
                held.set()

    told = [kind for kind, before in zip(kinds(seen), ["", *kinds(seen)], strict=False) if kind != before]
    assert told == [
        *("turn_given", "writer_started", "task_started", "text", "model_replied", "turn_ended", "ended"),
    ]
    assert seen[-1].ended.output == text


async def test_each_replys_text_comes_behind_the_replies_before(
    service: Service, host: None, book: Book, wire: Wire, model: str
) -> None:
    """However quick the tools between them are."""
    begun = asyncio.Event()
    wire.answers += [Says((f"{n} ", "a ", "b ", "c "), (READ,), begun=begun) for n in range(8)]
    wire.answers += [Says(("8 ", "a ", "b ", "c "))]
    await gardener(service, model, "read_note")
    turn_id = await service.asked_of("gardener")

    shown, replies = "", list[str]()
    async with asyncio.timeout(20), aclosing(service["gus"].watch_turn(turn_id)) as events:
        async for event in events:
            if event.record.HasField("task_started"):
                begun.set()
            if event.HasField("text"):
                shown += event.text.text
            elif event.record.HasField("model_replied"):
                replies.append(shown)
                shown = ""

    assert replies == [f"{n} a b c " for n in range(9)]


async def test_who_streams_an_agent_is_shown_its_text(service: Service, wire: Wire, model: str) -> None:
    begun = asyncio.Event()
    wire.answers += [Says(("Water ", "them."), begun=begun)]
    await gardener(service, model)

    text, last = "", TurnEvent()
    request = StreamAgentRequest(agent="gardener", work=Work(input="What do they need?"))
    async with asyncio.timeout(10):
        async for response in service["gus"].turns.StreamAgent(request):
            if response.event.record.HasField("task_started"):
                begun.set()
            text, last = text + response.event.text.text, response.event

    assert last.ended.state == turns_pb2.TURN_STATE_DONE
    assert text == last.ended.output == "Water them."


async def test_of_a_reply_that_broke_off_the_turn_is_interrupted_and_begun_anew(
    service: Service, wire: Wire, model: str
) -> None:
    """What was told of it is no reply: the interruption says so, and the whole text comes again."""
    begun = asyncio.Event()
    wire.answers += [Says(("Water ", "them."), begun=begun, cut_after=4), Says(("Water ", "them."))]
    await gardener(service, model)
    turn_id = await service.asked_of("gardener")

    told = [""]
    async with asyncio.timeout(15), aclosing(service["gus"].watch_turn(turn_id)) as events:
        async for event in events:
            if event.record.HasField("task_started"):
                begun.set()
            if event.HasField("interrupted"):
                told.append("")
            told[-1] += event.text.text

    assert told[0] in ("Water ", "Water them.")
    assert told[1:] == ["Water them."]
    assert len(wire.arrived) == 2


@pytest.mark.parametrize("lines", [3, 20_000])
async def test_a_watcher_who_reads_slowly_loses_text_and_nothing_else(service: Service, lines: int) -> None:
    """A script of many lines, all told at once: what is held for a watcher is bounded (R11)."""
    said = "".join(f"line {number:05} of what there is\n" for number in range(lines))
    await service.agent("gardener", {"delay_ms": 500, "say": said})
    turn_id = await service.asked_of("gardener")

    text, output = "", ""
    async with asyncio.timeout(20), aclosing(service["gus"].watch_turn(turn_id)) as events:
        async for event in events:
            text, output = text + event.text.text, event.ended.output

    assert output == said
    assert said.endswith(text)
    assert text == said if lines == 3 else len(text) < len(said)
