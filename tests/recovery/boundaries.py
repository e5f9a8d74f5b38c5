"""One run of a set of turns in which the runtime, the host or both die at one crossing, and what must hold after it.

A run is a runtime, a teaching service and a host, each a process of its own (`forks.py`), and a person who answers.
Whoever dies is started again where it was. The person says of an unfinished call what the host's file of effects tells,
and only of one whose host has died: what a living host holds settles by itself (D4).

A `Street` is the folder that all runs begin with: agents registered, tools declared, an instruction proposed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tutelage import TutelageError
from tutelage.client import connect_teaching
from tutelage.journal_lines import state_name
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalRule, ApprovalSetting, NamesRule
from tutelage.runtime.v1.approvals_pb2 import DECISION_APPROVE, Approval, DecideApprovalRequest
from tutelage.runtime.v1.turns_pb2 import Resolution, ResumeTurnRequest, RunAgain, Turn, UnfinishedCall
from tutelage.teaching.v1.instructions_pb2 import (
    ActivateInstructionRequest,
    InstructionDraft,
    ListInstructionsRequest,
    ProposeInstructionRequest,
)
from tutelage.token import make_token, signing_key

from tests.recovery import effects_host
from tests.recovery.forks import Forks, Process
from tests.recovery.house import House, Rules, until
from tests.recovery.tracer import BOTH, KILL

RUN_SECONDS = 60.0

# Three agents deep, reads beside changes, calls side by side; the innermost calls alone are asked about.
TOP: Rules = [
    {
        "when": "step == 0",
        "calls": [{"tool": "look"}, {"tool": "write", "input": {"n": 1}}, {"tool": "middle", "input": {"input": "go"}}],
    },
    {"when": "step == 1", "calls": [{"tool": "write", "input": {"n": 2}}]},
    {"say": "Done."},
]
MIDDLE: Rules = [
    {
        "when": "step == 0",
        "calls": [{"tool": "low", "input": {"input": "go"}}, {"tool": "look"}, {"tool": "write", "input": {"n": 3}}],
    },
    {"say": "Middle."},
]
LOW: Rules = [
    {"when": "step == 0", "calls": [{"tool": "write", "input": {"n": 4}}, {"tool": "write", "input": {"n": 5}}]},
    {"say": "Low."},
]
# Asked about once its instructions have changed, and so asked anew.
TAUGHT: Rules = [
    {
        "when": "size(results) == 0 || results[size(results) - 1].startsWith('The instructions changed')",
        "calls": [{"tool": "write", "input": {"n": 6}}],
    },
    {"say": "Done."},
]
ASKED = ApprovalSetting(rule=ApprovalRule(names=NamesRule(names=["low/write", "taught/write"])))
STRUCK = ("runtime", "host")
TURNS = ("top", "taught")
REPLIES = {"top": 3, "middle": 2, "low": 2, "taught": 3}
WRITES = {
    "top/write#2",
    "top/write#4",
    "top/middle#3/write#3",
    "top/middle#3/low#1/write#1",
    "top/middle#3/low#1/write#2",
    "taught/write#2",
}
RESULTS = {"top": 4 + 3 + 2, "taught": 2}


@dataclass(frozen=True, slots=True)
class Strike:
    """Who dies, and at which crossing of whom. `part`: `runtime` or `host`."""

    part: str
    crossing: str
    by: str = KILL

    def __str__(self) -> str:
        return f"{self.part}{' and the other' if self.by == BOTH else ''} at: {self.crossing}"


@dataclass
class Outcome:
    """What a run came to."""

    struck: bool = False
    crossed: dict[str, list[str]] = field(default_factory=dict)
    resolved: int = 0


class Street:
    """What every run begins with, and the settings of its services."""

    def __init__(self, forks: Forks, folder: Path, settings: Mapping[str, str], tool_seconds: float) -> None:
        self.forks = forks
        self.folder = folder
        self.settings = settings
        self.tool_seconds = tool_seconds

    @classmethod
    async def build(
        cls, forks: Forks, folder: Path, settings: Mapping[str, str] | None = None, tool_seconds: float = 60.0
    ) -> Street:
        """Register agents and propose an instruction, once for all runs. `settings` are added to each runtime's."""
        street = cls(forks, folder / "street", settings or {}, tool_seconds)
        street.folder.mkdir()
        async with _run_in(street, street.folder, folder / "s") as run:
            await run.start(None)
            await run.house.ann.ready()
            offered = "SELECT count(*) FROM declarations WHERE name = 'write'"
            await until(partial(_finds, run.house, offered), "the host offers its tools")
            await run.house.agent("low", LOW, ["write", "look"])
            await run.house.agent("middle", MIDDLE, ["write", "look"], below=["low"])
            await run.house.agent("top", TOP, ["write", "look"], below=["middle"])
            await run.house.agent("taught", TAUGHT, ["write"])
            draft = InstructionDraft(agent="taught", guidance="Write neatly.")
            await run.teaching.instructions.ProposeInstruction(ProposeInstructionRequest(draft=draft))
            await run.stop()
        for left in (*street.folder.glob("*.trace"), *street.folder.glob("*.log"), *street.folder.glob("*.pid")):
            left.unlink()
        return street

    @asynccontextmanager
    async def run(self, folder: Path, sockets: Path) -> AsyncIterator[Run]:
        """Begin a run in a folder of its own."""
        await asyncio.to_thread(shutil.copytree, self.folder, folder)
        async with _run_in(self, folder, sockets) as run:
            yield run


async def _finds(house: House, statement: str) -> bool:
    return house.sql(statement) == [(1,)]


@asynccontextmanager
async def _run_in(street: Street, folder: Path, sockets: Path) -> AsyncIterator[Run]:
    async with AsyncExitStack() as stack:
        await asyncio.to_thread(sockets.mkdir)
        run = Run(street, folder, sockets)
        stack.push_async_callback(run.close)
        yield run


class Run:
    """One run. A second replica would be one more `_Life` of the runtime on the same database."""

    def __init__(self, street: Street, folder: Path, sockets: Path) -> None:
        self.folder = folder
        self._street = street
        self._sockets = sockets
        self.runtime_at = f"unix:{sockets}/r"
        self.teaching_at = f"unix:{sockets}/t"
        self.house = House(folder, self.runtime_at)
        teacher = make_token(signing_key(folder), sub="ann", kind="person", roles=["uses", "teaches"])
        self.teaching = connect_teaching(self.teaching_at, teacher)
        self.outcome = Outcome()
        self.lives: dict[str, list[Process]] = {"runtime": [], "teaching": [], "host": []}
        self._strike: Strike | None = None
        self._settled: dict[tuple[str, int], int] = {}
        self._taught = False
        # The lines of each turn's journal that somebody who watched it all along was shown.
        self._shown: dict[str, asyncio.Task[list[int]]] = {}

    # Processes

    async def start(self, strike: Strike | None) -> None:
        """Start all three; one of them is to be struck."""
        self._strike = strike
        for part in ("teaching", "runtime", "host"):
            await self.begin(part)

    async def begin(self, part: str) -> None:
        """Begin another life of a part."""
        life = len(self.lives[part]) + 1
        settings = self._settings(part, life)
        process = await self._street.forks.fork(part, self.folder / f"{part}.log", settings)
        self.lives[part].append(process)
        (self.folder / f"{part}.pid").write_text(str(process.pid))

    def _settings(self, part: str, life: int) -> dict[str, str]:
        trace = {"TRACE_FILE": str(self.folder / f"{part}.{life}.trace")}
        if self._strike is not None and self._strike.part == part and life == 1:
            other = "host" if part == "runtime" else "runtime"
            trace |= {
                "TRACE_AT": self._strike.crossing,
                "TRACE_BY": self._strike.by,
                "TRACE_OTHER": str(self.folder / f"{other}.pid"),
            }
        match part:
            case "runtime":
                own = {
                    "TUTELAGE_RUNTIME_DATA_DIR": str(self.folder),
                    "TUTELAGE_RUNTIME_LISTEN": self.runtime_at,
                    "TUTELAGE_RUNTIME_TEACHING_ADDRESS": self.teaching_at,
                    "TUTELAGE_RUNTIME_SCRIPTS_DIR": str(self.folder / "scripts"),
                    **self._street.settings,
                }
            case "teaching":
                own = {"TUTELAGE_TEACHING_DATA_DIR": str(self.folder), "TUTELAGE_TEACHING_LISTEN": self.teaching_at}
            case _:
                own = {
                    "TUTELAGE_TO_RUNTIME": self.runtime_at,
                    "TUTELAGE_TOKEN": self.house.token("effects"),
                    "HOST_FOLDER": str(self.folder),
                    "HOST_TOOL_SECONDS": str(self._street.tool_seconds),
                    "HOST_NAME": f"effects-{life}",
                }
        return own | trace

    async def _keep_alive(self, part: str) -> None:
        """Start a part again whenever it has died."""
        while True:
            await self.lives[part][-1].ended()
            assert len(self.lives[part]) < 5, f"the {part} ends by itself: {self.folder / part}.log"
            if part == "runtime":
                self._note_recorded()
            await self.begin(part)

    async def stop(self) -> None:
        """Stop all cleanly."""
        for part in ("host", "runtime", "teaching"):
            self.lives[part][-1].signal(signal.SIGTERM)
            await self.lives[part][-1].ended()

    async def close(self) -> None:
        """End whatever runs."""
        for watching in self._shown.values():
            watching.cancel()
        await asyncio.gather(*self._shown.values(), return_exceptions=True)
        await self.house.close()
        await self.teaching.close()
        for lives in self.lives.values():
            for process in lives:
                await process.kill()

    # The work

    async def go(self, strike: Strike | None) -> Outcome:
        """Run the turns to their end, whoever dies on the way, and hold all to what was promised."""
        async with asyncio.timeout(RUN_SECONDS):
            await self.start(strike)
            alive = [asyncio.create_task(self._keep_alive(part)) for part in STRUCK]
            working = asyncio.create_task(self._work())
            try:
                await asyncio.wait([working, *alive], return_when=asyncio.FIRST_COMPLETED)
                for task in (*alive, working):
                    if task.done():
                        task.result()
                turns = working.result()
            finally:
                for task in (*alive, working):
                    task.cancel()
                await asyncio.gather(*alive, working, return_exceptions=True)
            await self._hold(turns)
        for part in STRUCK:
            self.outcome.crossed[part] = (self.folder / f"{part}.1.trace").read_text().splitlines()
        self.outcome.struck = strike is not None and self.outcome.crossed[strike.part][-1:] == [strike.crossing]
        return self.outcome

    async def _work(self) -> dict[str, Turn]:
        return dict(zip(TURNS, await asyncio.gather(*map(self._see_through, TURNS)), strict=True))

    async def _see_through(self, agent: str) -> Turn:
        """Give a turn, and answer whatever it asks until it is done, whoever is away meanwhile."""
        turn_id = ""
        while True:
            try:
                turn_id = turn_id or await self._given(agent)
                if agent not in self._shown:
                    self._shown[agent] = asyncio.create_task(self._watch(turn_id))
                turn = await self.house.turn(turn_id)
                if state_name(turn.state) == "DONE":
                    return turn
                assert state_name(turn.state) not in ("FAILED", "ABANDONED"), turn.cause
                for approval in turn.waiting:
                    await self._answer(approval)
                await self._resolve(turn)
            except TutelageError as problem:
                if not problem.passing and problem.reason not in ("ALREADY_DECIDED", "INSTRUCTIONS_CHANGED"):
                    raise
            await asyncio.sleep(0.02)

    async def _given(self, agent: str) -> str:
        conversation = await self.house.conversation(agent, ASKED, own_id=agent)
        return await self.house.start(conversation, request_id=agent)

    async def _watch(self, turn_id: str) -> list[int]:
        async with aclosing(self.house.ann.watch_turn(turn_id)) as events:
            return [event.record.line async for event in events if event.HasField("record")]

    async def _answer(self, approval: Approval) -> None:
        if approval.agent == "taught" and not self._taught:
            [proposed] = (
                await self.teaching.instructions.ListInstructions(ListInstructionsRequest(agent="taught"))
            ).instructions
            await self.teaching.instructions.ActivateInstruction(
                ActivateInstructionRequest(instruction_id=proposed.id, guidance_hash=proposed.guidance_hash)
            )
            self._taught = True
        await self.house.ann.approvals.DecideApproval(
            DecideApprovalRequest(
                approval_id=approval.id,
                decision=DECISION_APPROVE,
                fingerprint=approval.fingerprint,
                request_id=approval.id,
            )
        )

    async def _resolve(self, turn: Turn) -> None:
        """Say the truth of what is unfinished, once all of it is known: its host has died."""
        if state_name(turn.state) != "INTERRUPTED" or not turn.unfinished:
            return
        living = f"effects-{len(self.lives['host'])}"
        if any(call.host == living for call in turn.unfinished):
            return
        said = [self._truth(call) for call in turn.unfinished]
        await self.house.ann.turns.ResumeTurn(ResumeTurnRequest(turn_id=turn.id, resolutions=said))
        self.outcome.resolved += len(said)

    def _truth(self, call: UnfinishedCall) -> Resolution:
        ran = next((effect for effect in self.effects() if effect["call_id"] == call.call_id), None)
        if ran is None:
            return Resolution(call_id=call.call_id, run_again=RunAgain())
        return Resolution(call_id=call.call_id, output_json=json.dumps(ran["n"]))

    # What is on disk

    def effects(self) -> list[dict[str, object]]:
        """What the tools did, by their host's file."""
        return effects_host.lines(self.folder)

    def _steps_paid(self) -> Counter[tuple[str, int]]:
        return Counter((agent, int(line["step"])) for agent in REPLIES for line in self.house.paid(agent))

    def _note_recorded(self) -> None:
        """Hold every reply that is recorded now to be paid no more."""
        paid = self._steps_paid()
        replied = "SELECT address, count(*) FROM records WHERE kind = 'model_replied' GROUP BY address"
        for address, count in self.house.sql(replied):
            agent = address.rpartition("/")[2].partition("#")[0]
            self._settled |= {(agent, step): paid[(agent, step)] for step in range(count)}

    # What must hold

    async def _hold(self, turns: Mapping[str, Turn]) -> None:
        keys = Counter(str(effect["key"]) for effect in self.effects())
        assert {key.partition("/")[2] for key in keys} == WRITES, keys
        assert set(keys.values()) == {1}, f"a tool ran twice: {keys}"
        paid = self._steps_paid()
        assert set(paid) == {(agent, step) for agent, count in REPLIES.items() for step in range(count)}
        for step, before in self._settled.items():
            assert paid[step] == before, f"a recorded reply was paid again: {step}"
        for agent, turn in turns.items():
            assert (turn.output, list(turn.unfinished), list(turn.waiting)) == ("Done.", [], [])
            done = await self.house.of_kind(turn.id, "tool_done")
            assert len(done) == RESULTS[agent], f"{agent}: {len(done)} results"
            lines = list(range(1, len(await self.house.records(turn.id)) + 1))
            assert await self._shown[agent] == lines, f"{agent}: who watched was not shown each record once"
        await self._hold_rows(turns.values())
        taken_up = await self.house.of_kind(turns["taught"].id, "instructions_taken_up")
        assert [(one.number, one.from_set, one.block.instruction_set) for one in taken_up] == [(1, 0, 1)]
        await self.house.assert_sound()

    async def _hold_rows(self, turns: Iterable[Turn]) -> None:
        """Hold state and journal to each other: the same calls and questions, and nothing is left to do."""
        started, asked = set(), set()
        for turn in turns:
            started |= {start.call_id for start in await self.house.of_kind(turn.id, "tool_started")}
            asked |= {question.approval_id for question in await self.house.of_kind(turn.id, "approval_asked")}
        sql = self.house.sql
        assert {call_id for (call_id,) in sql("SELECT id FROM calls")} == started
        assert {approval_id for (approval_id,) in sql("SELECT id FROM approvals")} == asked
        assert sql("SELECT * FROM calls WHERE open OR to_copy OR unfinished") == []
        assert sql("SELECT * FROM approvals WHERE state = 'PENDING' OR to_copy OR NOT closed") == []
