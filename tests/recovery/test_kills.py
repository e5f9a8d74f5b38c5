"""SIGKILL, at every point of a turn: nothing lost, nothing that changes things run twice, no recorded reply paid twice.

The runtime is `python -m runtime_service`, the host a process too. What happened is counted in files that outlive both:
the tool's effects, the model's requests, the journal. `TUTELAGE_ROUNDS` asks for more rounds (`make test-long`).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tutelage import TutelageError
from tutelage.journal_lines import state_name
from tutelage.runtime.v1.agents_pb2 import Skill
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalSetting
from tutelage.runtime.v1.turns_pb2 import Resolution, RunAgain, Turn
from tutelage.service_process import ServiceProcess

from tests.recovery.house import NOTHING, House, Rules, until

ROUNDS = int(os.environ.get("TUTELAGE_ROUNDS", "1"))
# How long a host is waited for: where it lives on it is back by then, and no person has to say anything.
LONG = 20.0
SHORT = 2.0

TOP: Rules = [
    {
        "when": "step == 0",
        "calls": [
            {"tool": "look"},
            {"tool": "write", "input": {"n": 1}},
            {"tool": "middle", "input": {"input": "go"}},
            {"tool": "look"},
        ],
    },
    {"when": "step == 1", "calls": [{"tool": "write", "input": {"n": 2}}]},
    {"say": "Done."},
]
MIDDLE: Rules = [
    {
        "when": "step == 0",
        "calls": [
            {"tool": "low", "input": {"input": "go"}},
            {"tool": "look"},
            {"tool": "write", "input": {"n": 3}},
        ],
    },
    {"say": "Middle."},
]
LOW: Rules = [
    {"when": "step == 0", "calls": [{"tool": "write", "input": {"n": 4}}, {"tool": "write", "input": {"n": 5}}]},
    {"when": "step == 1", "calls": [{"tool": "look"}]},
    # It does not fit its schema, and the model is told so.
    {"when": "step == 2", "say": "Low."},
    {"say": '"Low."'},
]
LOWS_SKILL = Skill(output_schema_json='{"type":"string"}')
REPLIES = {"top": 3, "middle": 2, "low": 4}
WRITES = 5

# Every so many records of a turn the runtime is killed; each round begins one record later.
STRIDE = 12


class Life:
    """A runtime and a host that are killed and started again, and a person who answers truthfully."""

    def __init__(self, folder: Path, reconnect_seconds: float) -> None:
        self.folder = folder
        self._reconnect_seconds = reconnect_seconds
        self.runtime: ServiceProcess
        self.host: asyncio.subprocess.Process | None = None
        self.house: House
        self.kills = 0
        self.resolved = 0
        # The turn, and the steps whose reply was recorded at the last kill, and how often each had been paid then.
        self._turn_id = ""
        self._settled: dict[tuple[str, int], int] = {}

    async def start(self, listen: str = "127.0.0.1:0") -> None:
        settings = {
            "TUTELAGE_RUNTIME_SCRIPTS_DIR": str(self.folder / "scripts"),
            "TUTELAGE_RUNTIME_RECONNECT_SECONDS": str(self._reconnect_seconds),
        }
        self.runtime = await ServiceProcess.start("runtime", self.folder, listen, settings)

    async def start_host(self) -> None:
        with (self.folder / "host.log").open("ab") as log:
            self.host = await asyncio.create_subprocess_exec(
                sys.executable,
                str(Path(__file__).with_name("effects_host.py")),
                str(self.folder),
                env={
                    **os.environ,
                    "TUTELAGE_TO_RUNTIME": self.runtime.address,
                    "TUTELAGE_TOKEN": self.house.token("effects"),
                },
                stdout=log,
                stderr=log,
            )

    async def kill_runtime(self) -> None:
        """Kill it, and start it again where it was."""
        address = self.runtime.address
        self.runtime.kill()
        await self.runtime.ended()
        self.note_recorded()
        self.kills += 1
        await self.start(address)

    async def kill_host(self) -> None:
        assert self.host is not None
        if self.host.returncode is None:
            self.host.kill()
        await self.host.wait()
        self.kills += 1
        await self.start_host()

    # What is on disk

    def lines(self) -> int:
        """How many records the journals have, read from outside."""
        found: int = self.house.sql("SELECT count(*) FROM records")[0][0]
        return found

    def effects(self) -> list[dict[str, object]]:
        path = self.folder / "effects.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def steps_paid(self) -> Counter[tuple[str, int]]:
        return Counter((agent, int(line["step"])) for agent in REPLIES for line in self.house.paid(agent))

    def steps_recorded(self) -> set[tuple[str, int]]:
        """The steps whose reply is in the turn's journal: each agent is called once in it."""
        replied = "SELECT address, count(*) FROM records WHERE kind = 'model_replied' AND turn_id = ? GROUP BY address"
        rows = self.house.sql(replied, self._turn_id)
        return {
            (address.rpartition("/")[2].partition("#")[0], step) for address, count in rows for step in range(count)
        }

    def note_recorded(self) -> None:
        """Hold every reply that is recorded now to be paid no more."""
        paid = self.steps_paid()
        self._settled = {step: paid[step] for step in self.steps_recorded()}

    # The person

    async def give(self, approve: ApprovalSetting | None) -> str:
        self._settled = {}
        (self.folder / "effects.jsonl").unlink(missing_ok=True)
        for agent in REPLIES:
            (self.house.scripts / f"{agent}.requests.jsonl").unlink(missing_ok=True)
        self._turn_id = await self.house.begin("top", approve)
        return self._turn_id

    async def answer(self, turn_id: str) -> Turn:
        """Say yes to whatever is asked, and the truth of what is unfinished, until the turn is done."""
        while True:
            try:
                turn = await self.house.turn(turn_id)
                if state_name(turn.state) == "DONE":
                    return turn
                assert state_name(turn.state) not in ("FAILED", "ABANDONED"), turn.cause
                for approval in turn.waiting:
                    await self.house.decide(approval)
                if state_name(turn.state) == "INTERRUPTED" and turn.unfinished:
                    await self.house.resume(turn_id, *(self._truth(call.call_id) for call in turn.unfinished))
                    self.resolved += len(turn.unfinished)
            except TutelageError as problem:
                if not problem.passing and problem.reason not in ("INVALID_FIELD", "ALREADY_DECIDED"):
                    raise
            await asyncio.sleep(0.01)

    def _truth(self, call_id: str) -> Resolution:
        ran = next((effect for effect in self.effects() if effect["call_id"] == call_id), None)
        if ran is None:
            return Resolution(call_id=call_id, run_again=RunAgain())
        return Resolution(call_id=call_id, output_json=json.dumps(ran["n"]))

    # What must hold, whatever happened

    async def hold(self, turn_id: str) -> None:
        """Hold a turn that is done to what was promised."""
        effects = Counter(str(effect["key"]) for effect in self.effects())
        assert len(effects) == WRITES, effects
        assert set(effects.values()) == {1}, f"a tool ran twice: {effects}"
        paid = self.steps_paid()
        assert set(paid) == {(agent, step) for agent, count in REPLIES.items() for step in range(count)}
        for step, before in self._settled.items():
            assert paid[step] == before, f"a recorded reply was paid again: {step}"
        told = {str(line["messages"]) for line in self.house.paid("low") if line["step"] == 3}
        assert len(told) == 1, f"one conversation was gone on with as two: {told}"
        done = [record.tool_done for record in await self.house.records(turn_id) if record.HasField("tool_done")]
        assert len(done) == 4 + 1 + 3 + 2 + 1
        turn = await self.house.turn(turn_id)
        assert (turn.output, list(turn.unfinished), list(turn.waiting)) == ("Done.", [], [])
        assert turn.usage.model_requests == sum(REPLIES.values())
        await self.house.assert_sound()


@asynccontextmanager
async def life(folder: Path, reconnect_seconds: float = LONG) -> AsyncIterator[Life]:
    """Start both, and stop both at the end."""
    async with AsyncExitStack() as stack:
        both = Life(folder, reconnect_seconds)
        await both.start()
        both.house = House(folder, both.runtime.address)
        stack.push_async_callback(both.house.close)
        await both.start_host()

        async def stop() -> None:
            assert both.host is not None
            if both.host.returncode is None:
                both.host.kill()
            await both.host.wait()
            await both.runtime.stop()

        stack.push_async_callback(stop)
        offered = "SELECT count(*) FROM declarations WHERE name = 'write'"

        async def on_offer() -> bool:
            return both.house.sql(offered) == [(1,)]

        await until(on_offer, "the host offers its tools")
        await both.house.agent("low", LOW, ["write", "look"], skills=[LOWS_SKILL])
        await both.house.agent("middle", MIDDLE, ["write", "look"], below=["low"])
        await both.house.agent("top", TOP, ["write", "look"], below=["middle"])
        yield both


async def _when(event: Callable[[], bool], over: asyncio.Task[Turn]) -> bool:
    """Wait for an event by looking at what is on disk; False where the turn is done before it."""
    while not event():
        if over.done():
            return False
        await asyncio.sleep(0.001)
    return True


async def _through(both: Life, turn_id: str, plan: Callable[[asyncio.Task[Turn]], Awaitable[None]]) -> None:
    """Have a person answer while a plan of kills is gone through, and then hold the turn to its promises."""
    async with asyncio.timeout(100):
        answering = asyncio.create_task(both.answer(turn_id))
        try:
            await plan(answering)
            await answering
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
    await both.hold(turn_id)


@pytest.mark.parametrize("approve", [None, NOTHING], ids=["asked", "unasked"])
async def test_the_runtime_is_killed_all_along_a_turn(tmp_path: Path, approve: ApprovalSetting | None) -> None:
    """A11, A14, D4: at every few records; its host lives on and reconnects, so that no person has to say anything."""
    async with life(tmp_path) as both:
        for offset in range(ROUNDS):
            before = both.lines()
            turn_id = await both.give(approve)

            async def plan(over: asyncio.Task[Turn], first: int = before + 1 + offset % STRIDE) -> None:
                line = first
                while await _when(lambda line=line: both.lines() >= line, over):  # type: ignore[misc]
                    await both.kill_runtime()
                    line = max(line + STRIDE, both.lines() + 1)

            await _through(both, turn_id, plan)
        assert both.kills >= 3 * ROUNDS
        assert both.resolved == 0


@pytest.mark.parametrize("flag", ["die-before", "die-after"])
@pytest.mark.parametrize("victims", ["host", "both"])
async def test_a_host_that_dies_around_its_effect_leaves_it_to_a_person(
    tmp_path: Path, flag: str, victims: str
) -> None:
    """3, A14: listed as unfinished; it runs again only where the truth is that it did not run."""
    async with life(tmp_path, SHORT) as both:
        (both.folder / flag).touch()
        turn_id = await both.give(None)

        async def plan(over: asyncio.Task[Turn]) -> None:
            assert both.host is not None
            await both.host.wait()
            if victims == "both":
                await both.kill_runtime()
            await both.start_host()

        await _through(both, turn_id, plan)
        assert both.resolved >= 1


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_anybody_is_killed_at_any_time(tmp_path: Path, seed: int) -> None:
    """The runtime, the host, or both, at random times of several turns."""
    chance = random.Random(seed)
    async with life(tmp_path, SHORT) as both:
        for _ in range(2 if ROUNDS > 1 else 1):
            turn_id = await both.give(chance.choice([None, NOTHING]))

            async def plan(over: asyncio.Task[Turn]) -> None:
                for _ in range(3):
                    await asyncio.sleep(chance.uniform(0, 0.3))
                    if over.done():
                        return
                    victims = chance.choice(["runtime", "host", "both"])
                    if victims != "host":
                        await both.kill_runtime()
                    if victims != "runtime":
                        await both.kill_host()

            await _through(both, turn_id, plan)
