"""`check` beside a service that is at work."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tutelage.runtime.v1.turns_pb2 import TURN_STATE_DONE

from tests.recovery.hand_host import HandHost, changes, reads, returned
from tests.recovery.house import NOTHING, Rules, house
from tests.sound import wrong_in

TURNS = 8
STEPS: Rules = [
    {"when": "step < 6", "calls": [{"tool": "look"}, {"tool": "write"}]},
    {"say": "Done."},
]


async def test_a_database_in_use_never_looks_wrong(tmp_path: Path) -> None:
    """Whatever is under way, a snapshot of it holds: rows and journal are written together (R5.5)."""
    async with house(tmp_path) as here, HandHost(here, changes("write"), reads("look")) as host:
        await host.connect()
        await here.agent("agent", STEPS, ["look", "write"])
        turns = [await here.begin("agent", NOTHING) for _ in range(TURNS)]

        async def answer() -> None:
            while True:
                await host.say(returned(await host.stream.call()))

        answering = asyncio.create_task(answer())
        found, looks = list[str](), 0
        while {(await here.turn(turn)).state for turn in turns} != {TURN_STATE_DONE}:
            found += await wrong_in(tmp_path)
            looks += 1
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)

    assert looks > 1
    assert found == []
    assert await wrong_in(tmp_path) == []
