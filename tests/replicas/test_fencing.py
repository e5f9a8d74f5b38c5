"""A replica that stood still (SIGSTOP) past its lease while another took over, and one host that is at both at once.

`tests/recovery/test_fencing.py` looks at one process by itself. Here the other replica has the turn, and is done with
it, before the first goes on: it finds the rows another's. The other is begun once the first stands still, so that it
is certain who held the turn.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tutelage.runtime.v1.tools_pb2 import ListToolsRequest
from tutelage.runtime.v1.turns_pb2 import Resolution, RunAgain
from tutelage.token import signing_key

from tests.conftest import MakeDatabase
from tests.recovery.effects_host import lines
from tests.recovery.forks import Forks, Process
from tests.recovery.hand_host import HandHost, Stream, changes, returned
from tests.recovery.house import NOTHING, House, Rules, until
from tests.recovery.tracer import STOP
from tests.sound import wrong_in

pytestmark = pytest.mark.parametrize("kind", ["postgresql"], indirect=True)

ONE_CALL: Rules = [{"when": "step == 0", "calls": [{"tool": "write", "input": {"n": 1}}]}, {"say": "Done."}]
WRITE = "agent/write#1*1"
NOT_STARTED = f"before StartCall {WRITE}"
NOT_SENT = f"after StartCall {WRITE}"
# Past the last look at the clock: `begin_by` and the host's own memory hold off what comes of it.
ON_ITS_WAY = f"before sending calls {WRITE}"
LEASE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Fork:
    """A replica in a process of its own, and what it crossed."""

    process: Process
    house: House
    trace: Path

    async def crosses(self, *crossings: str) -> None:
        """Wait until it has crossed all these."""

        async def look() -> bool:
            assert not self.process.over, "it ended"
            return set(crossings) <= set(_crossed(self.trace))

        await until(look, f"the crossing of {crossings}")


def _crossed(trace: Path) -> list[str]:
    return trace.read_text().splitlines()


@asynccontextmanager
async def _replica(forks: Forks, folder: Path, name: str, url: str, stops_at: str = "") -> AsyncIterator[Fork]:
    """A replica on a database, that stops itself at a crossing. One that does not keeps a lease that outlives loads."""
    own = folder / name
    own.mkdir()
    signing_key(folder)
    shutil.copy(folder / "signing-key.pem", own)
    with tempfile.TemporaryDirectory(prefix="t") as sockets:
        settings = {
            "TUTELAGE_RUNTIME_DATA_DIR": str(own),
            "TUTELAGE_RUNTIME_DATABASE_URL": url,
            "TUTELAGE_RUNTIME_LISTEN": f"unix:{sockets}/r",
            "TUTELAGE_RUNTIME_SCRIPTS_DIR": str(folder / "scripts"),
            "TUTELAGE_RUNTIME_LEASE_SECONDS": str(LEASE_SECONDS if stops_at else 20.0),
            "TUTELAGE_RUNTIME_LEASE_KEEP_SECONDS": "0.5",
            "TUTELAGE_RUNTIME_RECONNECT_SECONDS": "2",
            "TRACE_FILE": str(own / "trace"),
            "TRACE_AT": stops_at,
            "TRACE_BY": STOP,
        }
        process = await forks.fork("runtime", own / "runtime.log", settings)
        house = House(folder, f"unix:{sockets}/r")
        try:
            async with asyncio.timeout(20):
                await house.ann.ready()
            yield Fork(process, house, own / "trace")
        finally:
            await house.close()
            await process.kill()


async def _stopped_with_a_turn(a: Fork) -> str:
    """Begin a turn at a replica, and wait until that stands still."""
    await a.house.agent("agent", ONE_CALL, ["write"])
    turn_id = await a.house.begin("agent", NOTHING)

    async def look() -> bool:
        assert not a.process.over, "it ended"
        return a.process.stopped

    await until(look, "a replica that stands still")
    return turn_id


async def _each(
    case: Callable[[Path, str, str], Coroutine[Any, Any, None]],
    steps: list[str],
    make_database: MakeDatabase,
    folder: Path,
) -> None:
    """Try each step on a database of its own, all at once: most of it is waiting."""
    urls = [await make_database("runtime") for _ in steps]
    async with asyncio.TaskGroup() as group:
        for number, (step, url) in enumerate(zip(steps, urls, strict=True)):
            own = folder / str(number)
            own.mkdir()
            group.create_task(case(own, url, step))


async def _hold_silence(a: Fork, step: str, turn_id: str, records: list[bytes]) -> None:
    """Hold a replica that went on to have sent no call and recorded nothing, and to serve again."""
    crossed = _crossed(a.trace)
    since = crossed[crossed.index(step) + 1 :]
    assert not [line for line in since if line.startswith("before sending calls")], since
    assert await _written(a.house, turn_id) == records


def _hold_paid(b: Fork, replies: int) -> None:
    """Hold the replies that were recorded as the first stopped, the first of all, to have been paid for once."""
    paid = [line["step"] for line in b.house.paid("agent")]
    assert [step for step in paid if step < replies] == list(range(replies))


async def _written(house: House, turn_id: str) -> list[bytes]:
    return [record.SerializeToString(deterministic=True) for record in await house.records(turn_id)]


async def test_a_call_is_sent_by_the_replica_its_host_went_to_alone(
    forks: Forks, tmp_path: Path, make_database: MakeDatabase
) -> None:
    """24b, C7, A12, D9: the host and the turn went to the other; the first goes on, sends and records nothing."""

    async def case(folder: Path, url: str, step: str) -> None:
        async with AsyncExitStack() as stack:
            a = await stack.enter_async_context(_replica(forks, folder, "a", url, step))
            first = await stack.enter_async_context(HandHost(a.house, changes("write")))
            await first.connect()
            turn_id = await _stopped_with_a_turn(a)
            b = await stack.enter_async_context(_replica(forks, folder, "b", url))
            replies = len(await b.house.of_kind(turn_id, "model_replied"))
            moved = await stack.enter_async_context(HandHost(b.house, changes("write")))
            moved.incarnation = first.incarnation
            await moved.connect()
            call = await moved.stream.call()
            await moved.say(returned(call))
            await b.house.comes_to(turn_id, "DONE")
            records = await _written(b.house, turn_id)

            a.process.signal(signal.SIGCONT)
            await a.crosses(NOT_SENT, "after begin (2)")
            await first.stream.ends()
            # What was on its way comes under the id that the host knows, and holds the result of.
            late = [("call", call.call_id)] if step == ON_ITS_WAY else []
            assert first.stream.seen in ([("welcome", "")], [("welcome", ""), *late]), step
            await moved.stream.no_call()
            [started] = await b.house.of_kind(turn_id, "tool_started")
            assert (started.call_id, started.attempt) == (call.call_id, 1)
            await _hold_silence(a, step, turn_id, records)
            _hold_paid(b, replies)
            assert await wrong_in(folder, runtime=url) == []

    await _each(case, [NOT_STARTED, NOT_SENT, ON_ITS_WAY], make_database, tmp_path)


async def test_a_call_that_a_person_let_run_again_at_the_other_replica_runs_once(
    forks: Forks, tmp_path: Path, make_database: MakeDatabase
) -> None:
    """24b, C7, A12, A14, D9: the first replica goes on and sends no older attempt; its host would run none."""

    async def case(folder: Path, url: str, step: str) -> None:
        async with AsyncExitStack() as stack:
            a = await stack.enter_async_context(_replica(forks, folder, "a", url, step))
            await _host(stack, forks, a, "first")
            await until(lambda: _offered(a.house), "the host's tools")
            turn_id = await _stopped_with_a_turn(a)
            b = await stack.enter_async_context(_replica(forks, folder, "b", url))
            replies = len(await b.house.of_kind(turn_id, "model_replied"))
            await _host(stack, forks, b, "second")
            [unfinished] = (await b.house.comes_to(turn_id, "INTERRUPTED")).unfinished
            assert lines(folder) == []
            await b.house.resume(turn_id, Resolution(call_id=unfinished.call_id, run_again=RunAgain()))
            await b.house.comes_to(turn_id, "DONE")
            records = await _written(b.house, turn_id)

            a.process.signal(signal.SIGCONT)
            # Its host has read all that was sent over its first stream once it says its second hello.
            await a.crosses("after begin (2)", "before sending welcome (2)")
            await until(lambda: _forgotten(folder / "first.trace"), "the first host's last words")
            assert [effect["attempt"] for effect in lines(folder)] == [2]
            assert [start.attempt for start in await b.house.of_kind(turn_id, "tool_started")] == [1, 2]
            await _hold_silence(a, step, turn_id, records)
            _hold_paid(b, replies)
            assert await wrong_in(folder, runtime=url) == []

    await _each(case, [NOT_SENT, ON_ITS_WAY], make_database, tmp_path)


async def _host(stack: AsyncExitStack, forks: Forks, to: Fork, name: str) -> None:
    """Begin a host of `effects_host.py` at a replica."""
    folder = to.house.folder
    settings = {
        "TUTELAGE_TO_RUNTIME": to.house.address,
        "TUTELAGE_TOKEN": to.house.token("effects"),
        "HOST_FOLDER": str(folder),
        "HOST_NAME": name,
        "TRACE_FILE": str(folder / f"{name}.trace"),
    }
    process = await forks.fork("host", folder / f"{name}.log", settings)
    stack.push_async_callback(process.kill)


async def _offered(house: House) -> bool:
    return len((await house.ann.tools.ListTools(ListToolsRequest())).tools) > 1


async def _forgotten(trace: Path) -> bool:
    """Whether a host has no call any more: its last word on each was taken."""
    crossed = _crossed(trace)
    received = {line.removeprefix("after receiving ") for line in crossed if line.startswith("after receiving")}
    return received <= {line.removeprefix("after forgetting ") for line in crossed}


# Hellos


ROUNDS = 8


async def test_hellos_of_one_incarnation_raced_at_two_replicas_leave_one_session(
    forks: Forks, tmp_path: Path, make_database: MakeDatabase
) -> None:
    """R6.6, C7, C8, D4, D9: the newest is the one that is left; it is sent what no hello holds, once, and no more."""
    url = await make_database("runtime")
    order = random.Random(8)
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(_replica(forks, tmp_path, "a", url))
        b = await stack.enter_async_context(_replica(forks, tmp_path, "b", url))
        at_a = await stack.enter_async_context(HandHost(a.house, changes("write")))
        at_b = await stack.enter_async_context(HandHost(b.house, changes("write")))
        await a.house.agent("agent", ONE_CALL, ["write"])
        at_b.incarnation = at_a.incarnation
        newest, hellos = await at_a.connect(), 1
        for round_ in range(ROUNDS):
            # The call is held by the host, was lost on its way to it, or is started while the hellos race.
            held, racing = round_ % 3 == 0, round_ % 3 == 2
            begin = order.choice([a, b]).house.begin
            turn_id = "" if racing else await begin("agent", NOTHING)
            before = None if racing else await newest.call()
            holding = [before.call_id] if before is not None and held else []
            racers = [at_a, at_b, at_a, at_b]
            order.shuffle(racers)
            opening = asyncio.gather(*(one.open(holding) for one in racers))
            turn_id = turn_id or await begin("agent", NOTHING)
            streams = await opening
            newest, hellos = await _only_one_left([newest, *streams]), hellos + len(streams)

            assert newest.welcome.session == hellos
            call = before if before is not None and held else await newest.call()
            assert before is None or call.call_id == before.call_id
            host = racers[streams.index(newest)]
            host.stream = newest
            await host.say(returned(call))
            await order.choice([a, b]).house.comes_to(turn_id, "DONE")
            await newest.no_call()
            sent = [Counter(stream.seen)["call", call.call_id] for stream in streams]
            assert max(sent) <= (0 if held else 1)
            started = await a.house.of_kind(turn_id, "tool_started")
            assert [start.call_id for start in started] == [call.call_id]
        assert await wrong_in(tmp_path, runtime=url) == []


async def _only_one_left(streams: list[Stream]) -> Stream:
    """Wait until all streams but one have ended, and that one is welcome."""

    async def look() -> Stream | None:
        left = [stream for stream in streams if not stream.over.is_set()]
        assert left, "all streams ended"
        return left[0] if len(left) == 1 and left[0].welcome.session else None

    found: Stream = await until(look, "all streams but one end")
    return found
