"""Every boundary: whoever dies wherever, nothing is lost, no change is made twice, no recorded reply is paid twice.

A first few runs tell what is crossed on the way; then there is one run for each crossing, in which the process that
crosses it dies there, alone or with the other one. `make test` tries some of them, another share by `TUTELAGE_SEED`;
`make test-long` tries all. Each tells how many it tried.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
import traceback
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.recovery.boundaries import STRUCK, Outcome, Street, Strike
from tests.recovery.forks import Forks
from tests.recovery.tracer import BOTH, KILL

ALL = int(os.environ.get("TUTELAGE_ROUNDS", "1")) > 1
SEED = int(os.environ.get("TUTELAGE_SEED", "0"))
SAMPLE = 12
COUNTING_RUNS = 3
AT_ONCE = 3
# A crossing that a run did not come by is tried again so often: two events of the same time come in either order.
MOST_TRIES = 3
# A host that lives is back long before; one that died is waited for in vain.
RECONNECT_SECONDS = {"runtime": "6", "host": "1.5"}


@dataclass
class Trying:
    """Many runs on one street, some of them side by side."""

    street: Street
    folder: Path
    sockets: Path
    crossed: dict[str, list[str]] = field(default_factory=dict)
    runs: int = 0

    async def run(self, strike: Strike | None) -> Outcome:
        """Make one run. What it leaves on disk is kept where it fails."""
        self.runs += 1
        name = f"run{self.runs}"
        async with self.street.run(self.folder / name, self.sockets / name) as run:
            outcome = await run.go(strike)
        await asyncio.to_thread(shutil.rmtree, self.folder / name)
        return outcome

    async def count(self) -> None:
        """Find out what is crossed where nobody dies."""
        for _ in range(COUNTING_RUNS):
            outcome = await self.run(None)
            assert outcome.resolved == 0
            for part in STRUCK:
                self.crossed[part] = list(dict.fromkeys([*self.crossed.get(part, ()), *outcome.crossed[part]]))


@pytest.fixture(scope="module")
async def trying(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Trying]:
    """Runs, whose crossings have been counted."""
    # A socket's path has at most some hundred characters.
    with tempfile.TemporaryDirectory(prefix="t") as sockets:
        folder = tmp_path_factory.mktemp("boundaries")
        made = Trying(await Street.build(forks, folder), folder, Path(sockets))
        await made.count()
        yield made


@pytest.mark.parametrize("by", [KILL, BOTH])
@pytest.mark.parametrize("part", STRUCK)
async def test_every_boundary(trying: Trying, part: str, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A11, A12, A14, D4, D9, 3, 5, 6, 24a: killed there, started again, gone on with; what must hold is counted."""
    chosen = _chosen(trying.crossed[part], f"{part} {by}")
    trying.street.settings = {"TUTELAGE_RUNTIME_RECONNECT_SECONDS": RECONNECT_SECONDS["host" if by == BOTH else part]}
    missed: list[str] = chosen
    failed: list[str] = []
    for _ in range(MOST_TRIES):
        missed = await _strike_each(trying, [Strike(part, crossing, by) for crossing in missed], failed)
    with capsys.disabled():
        who = {"runtime": "the runtime", "host": "the host"}[part] + (" and the other" if by == BOTH else "")
        tried = len(chosen) - len(missed)
        print(f"\n{who} killed at {tried} boundaries of {len(trying.crossed[part])}; {len(missed)} not come by")  # noqa: T201
    assert not failed, f"{len(failed)} of {tried}:\n" + "\n".join(failed)
    assert len(missed) <= len(chosen) // 10, missed


def _chosen(crossings: Sequence[str], what: str) -> list[str]:
    if ALL:
        return list(crossings)
    step = max(1, len(crossings) // SAMPLE)
    return list(crossings[random.Random(f"{what} {SEED}").randrange(step) :: step])


async def _strike_each(trying: Trying, strikes: Sequence[Strike], failed: list[str]) -> list[str]:
    """Make one run for each, note which fail, and return the crossings that were not come by."""
    missed: list[str] = []
    room = asyncio.Semaphore(AT_ONCE)

    async def one(strike: Strike) -> None:
        async with room:
            try:
                outcome = await trying.run(strike)
            except Exception as problem:
                failed.append(f"{strike}: {''.join(traceback.format_exception(problem)[-3:])}")
                return
        if not outcome.struck:
            missed.append(strike.crossing)
        # What a host that lives holds settles by itself.
        if strike.part == "runtime" and strike.by == KILL and outcome.resolved:
            failed.append(f"{strike}: a person had to say what became of {outcome.resolved} calls")

    await asyncio.gather(*map(one, strikes))
    return missed
