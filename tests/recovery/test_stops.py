"""A runtime that is stopped and goes on (SIGSTOP, SIGCONT): what it held has lapsed, and it acts on none of it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from tutelage.service_process import ServiceProcess

from tests.recovery.hand_host import HandHost, changes, returned
from tests.recovery.house import NOTHING, House, Rules

CALLS = 6
LEASE_SECONDS = 0.9
RECONNECT_SECONDS = 20.0


async def test_nothing_is_sent_under_a_session_that_lapsed(tmp_path: Path) -> None:
    """24b, as far as one process on SQLite can show it: stopped as a `ToolStarted` appears, past its lease.

    The stream of before ends without another call; what never arrived comes over the next, once.
    """
    settings = {
        "TUTELAGE_RUNTIME_SCRIPTS_DIR": str(tmp_path / "scripts"),
        "TUTELAGE_RUNTIME_LEASE_SECONDS": str(LEASE_SECONDS),
        "TUTELAGE_RUNTIME_LEASE_KEEP_SECONDS": "0.3",
        "TUTELAGE_RUNTIME_RECONNECT_SECONDS": str(RECONNECT_SECONDS),
    }
    runtime = await ServiceProcess.start("runtime", tmp_path, settings=settings)
    here = House(tmp_path, runtime.address)
    try:
        async with HandHost(here, changes("write")) as host:
            await host.connect()
            rules: Rules = [{"when": f"step < {CALLS}", "calls": [{"tool": "write"}]}, {"say": "Done."}]
            await here.agent("agent", rules, ["write"])
            turn = await here.begin("agent", NOTHING)
            ran = [await _stopped_once(here, runtime.pid, host, number) for number in range(1, CALLS + 1)]
            await here.comes_to(turn, "DONE")
            assert ran == [start.call_id for start in await here.of_kind(turn, "tool_started")]
            assert len(here.paid("agent")) == CALLS + 1
            await here.assert_sound()
    finally:
        await here.close()
        await runtime.stop()


async def _stopped_once(here: House, pid: int, host: HandHost, number: int) -> str:
    """Stop the runtime as its next call is started, let it go on past its lease; run the call and return its id."""
    started = "SELECT count(*) FROM records WHERE kind = 'tool_started'"
    while here.sql(started)[0][0] < number:  # noqa: ASYNC110 — what is looked at is on disk
        await asyncio.sleep(0)
    os.kill(pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    try:
        await asyncio.sleep(LEASE_SECONDS + 0.3)
    finally:
        os.kill(pid, signal.SIGCONT)
    old = host.stream
    await old.ends()
    received = [await old.call() for _ in range(old.unread)]
    # What was on its way as the stop came may still come after it; `begin_by` bounds it. Nothing was taken up later.
    for call in received:
        begin_until = old.hello_sent + call.begin_by.ToTimedelta().total_seconds()
        assert begin_until <= stopped_at + RECONNECT_SECONDS / 2
    stream = await host.connect(holding=[call.call_id for call in received])
    call = received[0] if received else await stream.call()
    await host.say(returned(call))
    await stream.hears("taken", call)
    return call.call_id
