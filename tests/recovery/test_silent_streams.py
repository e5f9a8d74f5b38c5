"""Streams that are silent, for a while or for good, and hellos that are read late: looked at closely."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from tutelage import connect

from tests.recovery.effects_host import effects, lines
from tests.recovery.hand_host import HandHost, changes, returned
from tests.recovery.house import NOTHING, Rules, house
from tests.recovery.proxy import Fault, Kind, proxy

FOR_GOOD = 3_600.0
# By keepalive a silent line is noticed within 15 s: for longer than that a host is waited for.
RECONNECT_SECONDS = 40.0
STEPS, TURNS = 4, 4
WORK: Rules = [
    {"when": f"step < {STEPS}", "calls": [{"tool": "write", "input": {"n": 1}}, {"tool": "look"}]},
    {"say": "Done."},
]


async def test_streams_half_dead_for_good_are_noticed_and_lose_nothing(tmp_path: Path) -> None:
    """D4, D9: one host is heard no more, the other hears no more; then both drain and hand all of it over."""
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(house(tmp_path, reconnect_seconds=RECONNECT_SECONDS))
        await here.agent("agent", WORK, ["write", "look"])
        proxies, hosts = [], []
        serving = await stack.enter_async_context(asyncio.TaskGroup())
        for up in (True, False):
            fault = Fault(Kind.SWALLOW, up, 900, FOR_GOOD)
            between = await stack.enter_async_context(
                proxy(here.address, lambda number, fault=fault: fault if number == 1 else None)  # type: ignore[misc]
            )
            runtime = await stack.enter_async_context(connect(between.address, here.token("effects")))
            proxies.append(between)
            hosts.append(effects(tmp_path))
            serving.create_task(hosts[-1].serve(runtime))
        turns = [await here.begin("agent", NOTHING) for _ in range(TURNS)]
        for turn in turns:
            await here.comes_to(turn, "DONE", seconds=60)
        for host in hosts:
            host.drain()
        for turn in turns:
            assert await here.of_kind(turn, "unfinished_resolved") == []
            assert await here.of_kind(turn, "late_result") == []
            assert len(await here.of_kind(turn, "tool_done")) == 2 * STEPS
        assert Counter(Counter(str(line["key"]) for line in lines(tmp_path)).values()) == {1: TURNS * STEPS}
        assert [len(between.faults) for between in proxies] == [1, 1]
        await here.assert_sound()


async def test_a_hello_that_is_read_after_a_later_ones_call_runs_nothing_twice(tmp_path: Path) -> None:
    """D9: the first of two streams of one incarnation is read last, and its hello holds nothing.

    The call is sent again under its own id, which its host holds, so it runs it no second time.
    """
    async with (
        house(tmp_path, reconnect_seconds=RECONNECT_SECONDS) as here,
        proxy(here.address, lambda _: Fault(Kind.DELAY, True, 0, 1.0)) as slow,
        HandHost(here, changes("write")) as host,
        HandHost(here, changes("write"), address=slow.address) as early,
    ):
        early.incarnation = host.incarnation
        first = await early.open()
        second = await host.connect()
        await here.agent("agent", [{"when": "step == 0", "calls": [{"tool": "write"}]}, {"say": "Done."}], ["write"])
        turn = await here.begin("agent", NOTHING)
        call = await second.call()

        await first.hears("welcome")
        await second.ends()
        again = await first.call()

        assert (second.welcome.session, first.welcome.session) == (1, 2)
        assert (again.call_id, again.attempt) == (call.call_id, 1)
        early.stream = first
        await early.say(returned(again))
        await first.hears("taken", again)
        await here.comes_to(turn, "DONE")
        assert [start.call_id for start in await here.of_kind(turn, "tool_started")] == [call.call_id]
        await first.no_call()
        await here.assert_sound()
