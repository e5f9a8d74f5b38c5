"""Whoever stood still (SIGSTOP) past their time acts on nothing that they held: at each step of `runtime.md` R6.6.

On SQLite one process holds the data folder, so what a runtime can find when it goes on is that its lease has ended by
its own clock; that another has taken over is for a database that two may share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from tutelage.journal_lines import state_name
from tutelage.runtime.v1.turns_pb2 import Resolution, RunAgain, Turn

from tests.recovery.effects_host import lines
from tests.recovery.forks import Forks, Process
from tests.recovery.hand_host import HandHost, changes, returned
from tests.recovery.house import NOTHING, House, Rules, house, until
from tests.recovery.proxy import proxy
from tests.recovery.tracer import STOP

ONE_CALL: Rules = [{"when": "step == 0", "calls": [{"tool": "write", "input": {"n": 1}}]}, {"say": "Done."}]
WRITE = "agent/write#1*1"
LEASE_SECONDS = 1.2
RECONNECT_SECONDS = 20.0


async def _stands_still(process: Process) -> float:
    """Wait until a process has stopped, and return since when that is so."""

    async def look() -> bool:
        assert not process.over, "it ended"
        return process.stopped

    await until(look, "a process that stands still")
    return time.monotonic()


# A runtime


@asynccontextmanager
async def _runtime(forks: Forks, folder: Path, stops_at: str) -> AsyncIterator[tuple[Process, House]]:
    """A runtime that stops itself at a crossing."""
    with tempfile.TemporaryDirectory(prefix="t") as sockets:
        settings = {
            "TUTELAGE_RUNTIME_DATA_DIR": str(folder),
            "TUTELAGE_RUNTIME_LISTEN": f"unix:{sockets}/r",
            "TUTELAGE_RUNTIME_SCRIPTS_DIR": str(folder / "scripts"),
            "TUTELAGE_RUNTIME_LEASE_SECONDS": str(LEASE_SECONDS),
            "TUTELAGE_RUNTIME_LEASE_KEEP_SECONDS": "0.3",
            "TUTELAGE_RUNTIME_RECONNECT_SECONDS": str(RECONNECT_SECONDS),
            "TRACE_AT": stops_at,
            "TRACE_BY": STOP,
        }
        process = await forks.fork("runtime", folder / "runtime.log", settings)
        here = House(folder, f"unix:{sockets}/r")
        try:
            async with asyncio.timeout(10):
                await here.ann.ready()
            yield process, here
        finally:
            await here.close()
            await process.kill()


STEPS = [
    f"before StartCall {WRITE}",
    f"after StartCall {WRITE}",
    f"before sending calls {WRITE}",
    f"after sending calls {WRITE}",
    f"heard results {WRITE}",
    f"before TakeResults {WRITE}",
    f"after TakeResults {WRITE}",
    f"before sending taken {WRITE}",
]


async def test_a_runtime_past_its_lease_sends_nothing_under_it(forks: Forks, tmp_path: Path) -> None:
    """24b, D9: its streams end without another call; what never arrived comes over the next one, once."""
    await _side_by_side(tmp_path, [partial(_past_its_lease, forks, step) for step in STEPS])


async def _side_by_side(folder: Path, works: Sequence[Callable[[Path], Coroutine[Any, Any, None]]]) -> None:
    """Do all of it at once, each in a folder of its own: most of it is waiting."""
    async with asyncio.TaskGroup() as group:
        for number, work in enumerate(works):
            own = folder / str(number)
            await asyncio.to_thread(own.mkdir)
            group.create_task(work(own))


async def _past_its_lease(forks: Forks, step: str, folder: Path) -> None:
    async with _runtime(forks, folder, step) as (process, here), HandHost(here, changes("write")) as host:
        await host.connect()
        await here.agent("agent", ONE_CALL, ["write"])
        turn = await here.begin("agent", NOTHING)
        working = asyncio.create_task(_work(host))
        stopped_at = await _stands_still(process)
        [(recorded,)] = here.sql("SELECT count(*) FROM records WHERE kind = 'model_replied'")
        paid = _paid_of(here, recorded)
        await asyncio.sleep(LEASE_SECONDS)
        process.signal(signal.SIGCONT)
        done = await here.comes_to(turn, "DONE")
        ran = await _ended(working)

        assert not done.unfinished, step
        started = [start.call_id for start in await here.of_kind(turn, "tool_started")]
        assert [call_id for call_id, _ in ran] == started[-1:]
        # What was on its way as the stop came may come after it; `begin_by` bounds it, on the host's own clock.
        assert all(begin_until <= stopped_at + RECONNECT_SECONDS / 2 for _, begin_until in ran[:1] if "sending" in step)
        assert await here.of_kind(turn, "late_result") == []
        # A reply that came after the lease had ended is not recorded (5), so it is asked for again; no other is.
        assert _paid_of(here, recorded) == paid
        assert len(await here.of_kind(turn, "model_replied")) == 2
        await here.assert_sound()


def _paid_of(here: House, recorded: int) -> list[int]:
    """Return what was paid of the first replies, those that are recorded."""
    return [line["step"] for line in here.paid("agent") if line["step"] < recorded]


async def _work(host: HandHost) -> list[tuple[str, float]]:
    """Be a host that runs each call once, keeps its result until it is taken, and comes back when its stream ends."""
    ran: list[tuple[str, float]] = []
    held: dict[str, None] = {}
    try:
        while True:
            stream = host.stream
            while not stream.over.is_set():
                for call in [await stream.call() for _ in range(stream.unread)]:
                    assert call.call_id not in dict(ran), "it was sent twice"
                    ran.append((call.call_id, stream.hello_sent + call.begin_by.ToTimedelta().total_seconds()))
                    held[call.call_id] = None
                    # Where the stream has ended meanwhile, the next one gets it.
                    with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                        await host.say(returned(call))
                for kind, call_id in stream.seen:
                    if kind == "taken":
                        held.pop(call_id, None)
                await asyncio.sleep(0.005)
            await host.connect(holding=list(held))
            if held:
                await host.say(*map(returned, held))
    except asyncio.CancelledError:
        return ran


async def _ended(working: asyncio.Task[list[tuple[str, float]]]) -> list[tuple[str, float]]:
    working.cancel()
    return await working


# A host


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a host stands still, and how often what it was to do is done in the end."""

    crossing: str
    effects: int


STOPS = [
    Stop(f"before receiving {WRITE}", 1),
    Stop(f"after receiving {WRITE}", 1),
    Stop(f"before beginning {WRITE}", 1),
    # It has begun: what a person then says of it is said in the dark.
    Stop("before the effect of agent/write#1", 2),
    Stop("after the effect of agent/write#1", 2),
    Stop(f"before ending {WRITE}", 2),
]


async def test_a_host_past_its_time_begins_nothing(forks: Forks, tmp_path: Path) -> None:
    """24b, 24c, 24h: its stream is given up, a person says run again, another host does; then the first goes on."""
    one_at_a_time = asyncio.Lock()
    await _side_by_side(tmp_path, [partial(_past_its_time, forks, one_at_a_time, stop) for stop in STOPS])


async def _past_its_time(forks: Forks, one_at_a_time: asyncio.Lock, stop: Stop, folder: Path) -> None:
    async with AsyncExitStack() as stack:
        # Two databases are not brought up to date at once in one process.
        async with one_at_a_time:
            here = await stack.enter_async_context(house(folder))
        between = await stack.enter_async_context(proxy(here.address))
        await here.agent("agent", ONE_CALL, ["write"])
        first = await _host(forks, here, between.address, {"TRACE_AT": stop.crossing, "TRACE_BY": STOP})
        stack.push_async_callback(first.kill)
        await until(lambda: _offers(here, 1), "the host's hello")
        turn = await here.begin("agent", NOTHING)
        await _stands_still(first)
        between.close_all()
        stopped = await here.comes_to(turn, "INTERRUPTED")
        second = await _host(forks, here, here.address, {"HOST_NAME": "second"})
        stack.push_async_callback(second.kill)
        await until(lambda: _offers(here, 2), "the other host's hello")
        await here.resume(turn, *_again(stopped))
        await here.comes_to(turn, "DONE")
        first.signal(signal.SIGCONT)
        await until(lambda: _comes_back(here), "the first host's next hello")
        settled = "SELECT count(*) FROM calls WHERE attempt = 1 AND result IS NOT NULL"

        async def told() -> bool:
            return here.sql(settled) == [(1,)]

        await until(told, "the first host's word")
        ran = [(line["attempt"], line["key"]) for line in lines(folder)]
        assert len(ran) == stop.effects
        assert len({key for _, key in ran}) == 1
        assert [start.attempt for start in await here.of_kind(turn, "tool_started")] == [1, 2]
        # What it did after all is evidence; that it did nothing is not.
        assert len(await here.of_kind(turn, "late_result")) == stop.effects - 1
        assert state_name((await here.turn(turn)).state) == "DONE"
        assert len(await here.of_kind(turn, "tool_done")) == 1
        await here.assert_sound()


async def _host(forks: Forks, here: House, address: str, settings: Mapping[str, str]) -> Process:
    own = {"TUTELAGE_TO_RUNTIME": address, "TUTELAGE_TOKEN": here.token("effects"), "HOST_FOLDER": str(here.folder)}
    return await forks.fork("host", here.folder / "host.log", {**own, **settings})


async def _offers(here: House, count: int) -> bool:
    return here.sql("SELECT count(*) FROM sessions WHERE number > 0") == [(count,)]


async def _comes_back(here: House) -> bool:
    return here.sql("SELECT count(*) FROM sessions WHERE host = 'effects' AND number > 1") == [(1,)]


def _again(turn: Turn) -> list[Resolution]:
    assert turn.unfinished, json.dumps(turn.cause)
    return [Resolution(call_id=call.call_id, run_again=RunAgain()) for call in turn.unfinished]
