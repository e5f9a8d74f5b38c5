"""Streams that break, at any byte and in either direction: no call runs twice, none is lost, nobody has to be asked.

Hosts reach the runtime through a proxy of the test's own. What breaks where is drawn from a seed, which is told.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tutelage import connect

from tests.recovery.effects_host import effects, lines
from tests.recovery.house import NOTHING, Rules, house
from tests.recovery.proxy import Fault, Kind, proxy

ROUNDS = int(os.environ.get("TUTELAGE_ROUNDS", "1"))
SEED = int(os.environ.get("TUTELAGE_SEED", "0"))
HOSTS = 2
TURNS = 4
STEPS = 12
WORK: Rules = [
    {
        "when": f"step < {STEPS}",
        "calls": [{"tool": "write", "input": {"n": 1}}, {"tool": "look"}, {"tool": "write", "input": {"n": 2}}],
    },
    {"say": "Done."},
]


def _faults(seed: int) -> Callable[[int], Fault]:
    """Draw each connection's fault. Some come before anything was said, most in the middle of the work."""
    chance = random.Random(seed)

    def choose(_connection: int) -> Fault:
        return Fault(
            kind=chance.choices(list(Kind), [3, 2, 2, 1])[0],
            up=chance.random() < 0.5,
            after_bytes=int(chance.triangular(0, 4_000, 900)),
            seconds=chance.uniform(0.05, 0.4),
        )

    return choose


@pytest.mark.parametrize("seed", range(SEED, SEED + 2 * ROUNDS))
async def test_streams_that_break_lose_nothing_and_run_nothing_twice(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """D4, D9, 24a: calls, results and `taken` lost; hellos that come late, beside another stream of the same host."""
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(house(tmp_path, reconnect_seconds=20.0))
        await here.agent("agent", WORK, ["write", "look"])
        serving = stack.enter_context(_Tasks())
        proxies = []
        for number in range(HOSTS):
            between = await stack.enter_async_context(proxy(here.address, _faults(seed * HOSTS + number)))
            runtime = await stack.enter_async_context(connect(between.address, here.token("effects")))
            proxies.append(between)
            serving.start(effects(tmp_path).serve(runtime))
        turns = [await here.begin("agent", NOTHING) for _ in range(TURNS)]
        for turn in turns:
            await here.comes_to(turn, "DONE", seconds=90)
        broken = Counter(fault.kind.value for one in proxies for fault in one.faults)
        with capsys.disabled():
            print(f"\nseed {seed}: {sum(one.connections for one in proxies)} connections, {dict(broken)}")  # noqa: T201
        ran = Counter(str(line["key"]) for line in lines(tmp_path))
        assert set(ran.values()) == {1}, ran
        assert len(ran) == TURNS * STEPS * 2
        for turn in turns:
            assert await here.of_kind(turn, "unfinished_resolved") == []
            assert await here.of_kind(turn, "late_result") == []
            assert len(await here.of_kind(turn, "tool_done")) == STEPS * 3
        assert len(here.paid("agent")) == TURNS * (STEPS + 1)
        assert broken.total() >= 4
        await here.assert_sound()


class _Tasks:
    """Tasks that end with a block."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def __enter__(self) -> _Tasks:
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
