"""Whoever stands still (SIGSTOP) past their time, at any step of R6.6 all along a set of turns: nothing is done twice.

`test_fencing.py` looks at one call closely. The runs here are those of `boundaries.py`. The runtime or the host stops
where it crosses something, and goes on once its time is over: a runtime when its lease has lapsed, a host when another
has done its work, on a person's word, and the turns are done. `make test` tries some crossings, another share by
`TUTELAGE_SEED`; `make test-long` tries all.

On SQLite one process has the data folder: no other can take over from one that is stopped, and none begins.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.recovery.boundaries import Outcome, Run, Street, Strike
from tests.recovery.forks import Forks, Process
from tests.recovery.house import until
from tests.recovery.tracer import STOP

ALL = int(os.environ.get("TUTELAGE_ROUNDS", "1")) > 1
SEED = int(os.environ.get("TUTELAGE_SEED", "0"))
SAMPLE = 6
AT_ONCE = 4
MOST_TRIES = 3
LEASE_SECONDS = 1.5
TOOL_SECONDS = 1.0
SETTINGS = {
    "TUTELAGE_RUNTIME_LEASE_SECONDS": str(LEASE_SECONDS),
    "TUTELAGE_RUNTIME_LEASE_KEEP_SECONDS": "0.5",
    # A call may begin for half of this: for less than its host or the runtime stays stopped.
    "TUTELAGE_RUNTIME_RECONNECT_SECONDS": "2",
    "TUTELAGE_RUNTIME_TOOL_SECONDS": str(TOOL_SECONDS),
}
# The steps of R6.6: what is started, sent, heard, taken, and the sessions that it goes over.
STEPS = ("StartCall", "sending", "heard", "TakeResults", "OpenSession", "EndSession", "calls", "taken")


class Stops:
    """Runs in which somebody is stopped."""

    def __init__(self, street: Street, folder: Path, sockets: Path) -> None:
        self._street = street
        self._folder = folder
        self._sockets = sockets
        self._runs = 0

    async def crossed(self, part: str) -> list[str]:
        """Find out what a part crosses where nobody is stopped."""
        async with self._run() as run:
            return list(dict.fromkeys((await run.go(None)).crossed[part]))

    async def stop_runtime(self, crossing: str) -> bool:
        """Stop the runtime at a crossing, past its lease. False where it did not come by."""
        async with self._run() as run:
            going = asyncio.create_task(run.go(Strike("runtime", crossing, STOP)))
            stopped = await _stopped(run, "runtime", going)
            if stopped:
                another = await self._street.forks.fork("runtime", run.folder / "another.log", self._second(run))
                # It is refused the data folder, or this is cut short by the run's time-out.
                await asyncio.gather(another.ended(), asyncio.sleep(LEASE_SECONDS + 0.2))
                stopped.signal(signal.SIGCONT)
            outcome = await going
            # Its host lives: what was under way settles by itself.
            assert not outcome.resolved, f"a person had to say what became of {outcome.resolved} calls"
            if stopped:
                _hold_silence(run, crossing)
            return stopped is not None

    async def stop_host(self, crossing: str) -> bool:
        """Stop the host at a crossing until another has done its work; then have it go on."""
        async with self._run() as run:
            going = asyncio.create_task(run.go(Strike("host", crossing, STOP)))
            stopped = await _stopped(run, "host", going)
            if stopped:
                await run.begin("host")
            await going
            if stopped:
                stopped.signal(signal.SIGCONT)
                await until(partial(_all_forgotten, run), "the first host's last words")
                _hold_effects(run, crossing)
                await run.house.assert_sound()
            return stopped is not None

    def _run(self) -> AbstractAsyncContextManager[Run]:
        self._runs += 1
        name = f"run{self._runs}"
        return self._street.run(self._folder / name, self._sockets / name)

    def _second(self, run: Run) -> dict[str, str]:
        return {
            "TUTELAGE_RUNTIME_DATA_DIR": str(run.folder),
            "TUTELAGE_RUNTIME_LISTEN": f"unix:{self._sockets}/second{self._runs}",
        }


async def _stopped(run: Run, part: str, going: asyncio.Task[Outcome]) -> Process | None:
    """Wait until a part stands still, and return it; None where the run is over before."""
    while not going.done():
        if (life := run.lives[part]) and life[0].stopped:
            return life[0]
        await asyncio.sleep(0.005)
    return None


def _hold_silence(run: Run, crossing: str) -> None:
    """Hold the runtime to have sent no call from its stop to its next lease, but for one whose sending had begun."""
    lines = (run.folder / "runtime.1.trace").read_text().splitlines()
    since = lines[lines.index(crossing) + 1 :]
    old = since[: since.index("before begin (2)")] if "before begin (2)" in since else since
    if not crossing.startswith("before sending calls"):
        assert not [line for line in old if line.startswith("before sending calls")], old


async def _all_forgotten(run: Run) -> bool:
    """Whether the first host has no call any more: the runtime took its last word on each."""
    lines = (run.folder / "host.1.trace").read_text().splitlines()
    received = {line.removeprefix("after receiving ") for line in lines if line.startswith("after receiving")}
    return received <= {line.removeprefix("after forgetting ") for line in lines if line.startswith("after forgetting")}


def _hold_effects(run: Run, crossing: str) -> None:
    """Hold what ran to once each, though the first host has gone on.

    One that stops between its look at the clock and its effect cannot be held off by anybody: this is what the
    idempotency key is for, which is the same.
    """
    ran = Counter(str(effect["key"]) for effect in run.effects())
    if crossing.startswith("before the effect of"):
        ran[next(key for key in ran if key.partition("/")[2] == crossing.removeprefix("before the effect of "))] -= 1
    assert set(ran.values()) == {1}, f"a tool ran twice: {ran}"


@pytest.fixture(scope="module")
async def stops(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stops]:
    """What all these tests stop."""
    folder = tmp_path_factory.mktemp("stops")
    street = await Street.build(forks, folder, SETTINGS, TOOL_SECONDS)
    # A socket's path has at most some hundred characters.
    with tempfile.TemporaryDirectory(prefix="t") as sockets:
        yield Stops(street, folder, Path(sockets))


async def test_a_runtime_that_was_stopped_past_its_lease_acts_on_nothing_old(
    stops: Stops, capsys: pytest.CaptureFixture[str]
) -> None:
    """R6.1, R6.6, 5, 24b, as far as one process on a data folder can show it."""
    steps = [one for one in await stops.crossed("runtime") if any(step in one for step in STEPS)]
    await _try_each(stops.stop_runtime, "the runtime", steps, capsys)


async def test_a_host_that_was_stopped_runs_nothing_that_another_ran(
    stops: Stops, capsys: pytest.CaptureFixture[str]
) -> None:
    """R6.6, A14, 24b, 24c, 24h: a person said run again; the first goes on, and refuses or reports late."""
    steps = [one for one in await stops.crossed("host") if not one.startswith("before hello")]
    await _try_each(stops.stop_host, "the host", steps, capsys)


async def _try_each(
    stop: Callable[[str], Awaitable[bool]], who: str, steps: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = list(steps) if ALL else random.Random(f"{who} {SEED}").sample(steps, SAMPLE)
    room = asyncio.Semaphore(AT_ONCE)
    missed: list[str] = []
    failed: list[str] = []

    async def one(crossing: str) -> None:
        async with room:
            try:
                for _ in range(MOST_TRIES):
                    if await stop(crossing):
                        return
                missed.append(crossing)
            except Exception as problem:
                failed.append(f"{crossing}: {''.join(traceback.format_exception(problem)[-3:])}")

    await asyncio.gather(*map(one, chosen))
    with capsys.disabled():
        print(f"\n{who} stopped at {len(chosen) - len(missed)} steps of {len(steps)}; {len(missed)} not come by")  # noqa: T201
    assert not failed, f"{len(failed)}:\n" + "\n".join(failed)
    assert len(missed) <= len(chosen) // 10 + 1, missed
