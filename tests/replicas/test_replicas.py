"""Two replicas of one runtime: whatever is said to one is known to the other, and nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
from tutelage.journal_lines import state_name
from tutelage.runtime.v1.tools_pb2 import ListToolsRequest
from tutelage.runtime.v1.turns_pb2 import TurnEvent

from tests.postgres import Postgres
from tests.recovery.hand_host import HandHost, changes, reads, returned
from tests.recovery.house import NOTHING, House, Rules, until
from tests.replicas.conftest import Pair, Replica, migrated, start

EFFECTS_HOST = Path(__file__).parents[1] / "recovery" / "effects_host.py"


def calls(*tools: str) -> Rules:
    """A model that calls these at once, and is done."""
    return [{"when": "step == 0", "calls": [{"tool": tool} for tool in tools]}, {"say": "Done."}]


async def host(stack: AsyncExitStack, house: House, *tools: Any) -> HandHost:
    """Connect a host to one replica."""
    made = await stack.enter_async_context(HandHost(house, *tools))
    await made.connect()
    return made


async def test_a_turn_of_one_replica_calls_tools_of_a_host_at_the_other(pair: Pair, stack: AsyncExitStack) -> None:
    """R6.6, C8: what changes things goes there through its row, and so does what only looks."""
    here, there = pair.a.house, pair.b.house
    one = await host(stack, there, changes("write1"), reads("look1"))
    await here.agent("calling", calls("write1", "look1"), ["write1", "look1"])
    turn_id = await here.begin("calling", NOTHING)
    sent = await one.stream.calls(2)
    await one.say(returned(sent["look1"], '"seen"'), returned(sent["write1"], '"written"'))

    turn = await here.comes_to(turn_id, "DONE")
    results = {done.tool: done.output_json for done in await here.of_kind(turn_id, "tool_done")}
    assert turn.output == "Done."
    assert results == {"write1": '"written"', "look1": '"seen"'}
    await one.stream.hears("taken", sent["write1"])
    await one.stream.hears("taken", sent["look1"])
    await one.stream.no_call()


async def test_a_host_elsewhere_is_sent_no_more_than_it_takes(pair: Pair, stack: AsyncExitStack) -> None:
    """Its capacity holds whoever calls; what waits is sent as soon as there is room, each once."""
    here, there = pair.a.house, pair.b.house
    one = await stack.enter_async_context(HandHost(there, changes("write6"), capacity=2))
    await one.connect()
    await here.agent("many", calls(*["write6"] * 5), ["write6"])
    turn_id = await here.begin("many", NOTHING)
    seen = [await one.stream.call(), await one.stream.call()]
    await one.stream.no_call()
    for done in range(3):
        await one.say(returned(seen[done]))
        seen.append(await one.stream.call())
        assert one.stream.unread == 0
    await one.say(returned(seen[3]), returned(seen[4]))

    await here.comes_to(turn_id, "DONE")
    assert len({call.call_id for call in seen}) == 5


async def test_what_runs_on_one_replica_is_approved_at_the_other(pair: Pair, stack: AsyncExitStack) -> None:
    """R3.1, A8, C8: the answer reaches who holds the turn, or whoever takes it."""
    here, there = pair.a.house, pair.b.house
    one = await host(stack, here, changes("write2"), changes("slow2"))
    await here.agent("asking", calls("write2", "slow2"), ["write2", "slow2"])
    turn_id = await here.begin("asking")
    first, second = await there.asked(turn_id, 2)
    await there.decide(first)
    # The turn is held by whoever started that call, while it runs: the second answer finds it there.
    call = await one.stream.call()
    await there.decide(second)
    other = await one.stream.call()
    await one.say(returned(call), returned(other))

    await there.comes_to(turn_id, "DONE")
    assert Counter(done.tool for done in await here.of_kind(turn_id, "tool_done")) == {"write2": 1, "slow2": 1}


async def test_a_watcher_at_one_replica_sees_what_the_other_does(pair: Pair, stack: AsyncExitStack) -> None:
    """R11, A13, C8: nothing twice, nothing left out, and its cursor goes on at the other."""
    here, there = pair.a.house, pair.b.house
    one = await host(stack, here, changes("write3"))
    await here.agent("watched", calls("write3"), ["write3"])
    turn_id = await here.begin("watched", NOTHING)
    call = await one.stream.call()
    first = await _events(there, turn_id, lambda event: event.record.HasField("tool_started"))
    await one.say(returned(call))
    rest = await _events(here, turn_id, lambda event: event.HasField("ended"), first[-1].cursor)

    lines = [event.record.line for event in [*first, *rest] if event.HasField("record")]
    assert lines == list(range(1, len(await here.records(turn_id)) + 1))


async def _events(house: House, turn_id: str, until: Any, cursor: str = "") -> list[TurnEvent]:
    seen: list[TurnEvent] = []
    async with asyncio.timeout(20), aclosing(house.ann.watch_turn(turn_id, cursor)) as events:
        async for event in events:
            if not event.HasField("bookmark"):
                seen.append(event)
            if until(event):
                break
    return seen


async def test_a_turn_that_is_abandoned_at_one_replica_stops_at_the_other(pair: Pair, stack: AsyncExitStack) -> None:
    """R5.1: its writer records nothing more, and the host is told that nobody waits for its call."""
    here, there = pair.a.house, pair.b.house
    one = await host(stack, here, changes("write4"))
    await here.agent("stopped", calls("write4"), ["write4"])
    turn_id = await here.begin("stopped", NOTHING)
    call = await one.stream.call()
    await there.abandon(turn_id)
    await one.stream.hears("cancelled", call)
    before = await here.records(turn_id)
    await one.say(returned(call))
    [late] = await there.recorded(turn_id, "late_result")

    assert late.call_id == call.call_id
    assert len(await here.records(turn_id)) == len(before) + 1
    assert state_name((await here.turn(turn_id)).state) == "ABANDONED"


async def test_a_host_that_goes_to_the_other_replica_brings_what_it_holds(pair: Pair, stack: AsyncExitStack) -> None:
    """R6.6, D4, D9: a call that it has is not sent again, one that never arrived is; each runs once."""
    here, there = pair.a.house, pair.b.house
    one = await host(stack, here, changes("write5"), changes("other5"))
    await here.agent("moving", calls("write5", "other5"), ["write5", "other5"])
    turn_id = await here.begin("moving", NOTHING)
    sent = await one.stream.calls(2)
    left = one.stream
    moved = await stack.enter_async_context(HandHost(there, changes("write5"), changes("other5")))
    moved.incarnation = one.incarnation
    await moved.connect(holding=[sent["write5"].call_id])
    again = await moved.stream.call()
    await moved.say(returned(sent["write5"]), returned(again))

    await here.comes_to(turn_id, "DONE")
    assert again.call_id == sent["other5"].call_id
    await left.ends()
    await moved.stream.no_call()


async def test_the_same_request_at_both_replicas_at_once_is_one_turn(pair: Pair) -> None:
    """R9: whichever comes second finds what the first did."""
    here, there = pair.a.house, pair.b.house
    await here.agent("said", [{"say": "Done."}])
    for _ in range(10):
        conversation = await here.conversation("said")
        houses = [here, there, here, there]
        turns = await asyncio.gather(*(house.start(conversation, request_id=conversation) for house in houses))
        assert len(set(turns)) == 1
        await there.comes_to(turns[0], "DONE")


async def test_turns_of_one_conversation_queue_whichever_replica_they_are_given_to(pair: Pair) -> None:
    """R9: numbered without a gap, one behind the other."""
    here, there = pair.a.house, pair.b.house
    await here.agent("queued", [{"say": "Done."}])
    conversation = await here.conversation("queued")
    houses = [here, there] * 10
    turns = await asyncio.gather(*(house.start(conversation) for house in houses))
    done = [await here.comes_to(turn_id, "DONE") for turn_id in turns]

    assert sorted(turn.number for turn in done) == list(range(1, 21))
    by_number = {turn.number: turn for turn in done}
    assert [by_number[n].after_turn_id for n in range(2, 21)] == [by_number[n].id for n in range(1, 20)]


@pytest.mark.timeout(180)
async def test_what_a_killed_replica_held_the_other_goes_on_with(
    postgres: Postgres, tmp_path: Path, stack: AsyncExitStack
) -> None:
    """R6.1, A11, C7: after its lease; nothing that changes things runs twice, no recorded reply is paid for twice."""
    url = await postgres.create()
    stack.push_async_callback(postgres.drop, url)
    await migrated(url)
    a, b = await start(tmp_path, "a", url, stack), await start(tmp_path, "b", url, stack)
    await _effects_host(stack, tmp_path, b)
    await b.house.agent("working", _steps(4), ["look", "write"])
    await until(lambda: _offered(b.house), "the host's tools")
    turns = [await a.house.begin("working", NOTHING) for _ in range(12)]
    await until(lambda: _written(tmp_path, 12), "some effects")
    held = [turn_id for turn_id in turns if state_name((await b.house.turn(turn_id)).state) == "RUNNING"]
    assert held
    await a.kill()
    for turn_id in turns:
        await b.house.comes_to(turn_id, "DONE", seconds=60)

    effects = Counter(line["key"] for line in _effects(tmp_path))
    assert len(effects) == 12 * 4
    assert set(effects.values()) == {1}
    for turn_id in turns:
        lines = [record.line for record in await b.house.records(turn_id)]
        assert lines == list(range(1, len(lines) + 1))


def _steps(count: int) -> Rules:
    steps: list[Mapping[str, Any]] = [
        {"when": f"step == {n}", "calls": [{"tool": "look"}, {"tool": "write", "input": {"n": n}}]}
        for n in range(count)
    ]
    return [*steps, {"say": "Done."}]


async def _offered(house: House) -> bool:
    return len((await house.ann.tools.ListTools(ListToolsRequest())).tools) > 1


async def _written(folder: Path, count: int) -> bool:
    return len(_effects(folder)) >= count


def _effects(folder: Path) -> list[dict[str, Any]]:
    path = folder / "effects.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def _effects_host(stack: AsyncExitStack, folder: Path, replica: Replica) -> None:
    to = {"TUTELAGE_TO_RUNTIME": replica.house.address, "TUTELAGE_TOKEN": replica.house.token("effects")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EFFECTS_HOST), str(folder), env={**os.environ, **to}
    )

    async def end() -> None:
        process.kill()
        await process.wait()

    stack.push_async_callback(end)
