"""A runtime service on a folder of its own, an agent with a script, a person who supervises, and what is on disk.

The service is the real one on a real SQLite file: in this process (`House`), or as `python -m runtime_service`
(`ServiceProcess`, by `test_kills.py`). What was paid and what ran is counted in files, never in anybody's memory.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from tutelage import Tutelage, connect
from tutelage.journal_lines import state_name
from tutelage.runtime.v1.agents_pb2 import AgentSpec, HostedLoop, Limits, PutAgentRequest, Skill, ToolUse
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalSetting, NothingAsked
from tutelage.runtime.v1.approvals_pb2 import DECISION_APPROVE, Approval, DecideApprovalRequest, Decision
from tutelage.runtime.v1.conversations_pb2 import OpenConversationRequest
from tutelage.runtime.v1.journal_pb2 import Record
from tutelage.runtime.v1.turns_pb2 import (
    AbandonTurnRequest,
    GetTurnRequest,
    ListRecordsRequest,
    Resolution,
    ResumeTurnRequest,
    StartTurnRequest,
    Turn,
    Work,
)
from tutelage.token import Kind, make_token, signing_key

from runtime_service.server import running
from runtime_service.settings import Settings
from tests.sound import wrong_in

WAIT_SECONDS = 20.0
NOTHING = ApprovalSetting(nothing=NothingAsked())

Rules = Sequence[Mapping[str, Any]]


async def until(look: Callable[[], Awaitable[Any]], what: str, seconds: float = WAIT_SECONDS) -> Any:
    """Look until something is there, and return it."""
    try:
        async with asyncio.timeout(seconds):
            while not (found := await look()):  # noqa: ASYNC110 — what is looked at is on disk
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"it never came to pass: {what}") from None
    return found


class House:
    """What a test needs of a service, whoever runs it."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address
        self.scripts = folder / "scripts"
        self.ann = connect(address, self.token("ann", "person", "uses", "supervises", "builds"))

    def token(self, who: str, kind: Kind = "service", *roles: str) -> str:
        return make_token(signing_key(self.folder), sub=who, kind=kind, roles=roles or ("hosts",))

    def person(self, who: str, *roles: str) -> Tutelage:
        return connect(self.address, self.token(who, "person", *roles))

    async def agent(
        self,
        name: str,
        rules: Rules,
        tools: Sequence[str] = (),
        *,
        below: Sequence[str] = (),
        limits: Limits | None = None,
        skills: Sequence[Skill] = (),
    ) -> None:
        """Register an agent that answers by a script."""
        self.script(name, rules)
        uses = [ToolUse(tool=tool) for tool in tools] + [ToolUse(agent=agent) for agent in below]
        spec = AgentSpec(
            name=name, hosted=HostedLoop(model=f"scripted:{name}"), tools=uses, limits=limits, skills=skills
        )
        await self.ann.agents.PutAgent(PutAgentRequest(spec=spec))

    def script(self, name: str, rules: Rules) -> None:
        self.scripts.mkdir(exist_ok=True)
        (self.scripts / f"{name}.yaml").write_text(json.dumps(list(rules)))

    async def conversation(self, agent: str, approve: ApprovalSetting | None = None, own_id: str = "") -> str:
        request = OpenConversationRequest(agent=agent, approve=approve, conversation_id=own_id)
        opened = await self.ann.conversations.OpenConversation(request)
        return opened.conversation.id

    async def start(self, conversation: str, words: str = "go", request_id: str = "") -> str:
        request = StartTurnRequest(conversation_id=conversation, work=Work(input=words), request_id=request_id)
        return (await self.ann.turns.StartTurn(request)).turn.id

    async def begin(self, agent: str, approve: ApprovalSetting | None = None) -> str:
        """Start a turn in a conversation of its own."""
        return await self.start(await self.conversation(agent, approve))

    async def turn(self, turn_id: str) -> Turn:
        return (await self.ann.turns.GetTurn(GetTurnRequest(turn_id=turn_id))).turn

    async def comes_to(self, turn_id: str, *states: str, seconds: float = WAIT_SECONDS) -> Turn:
        """Wait until a turn stands in one of these states."""
        turn = await self.turn(turn_id)
        try:
            async with asyncio.timeout(seconds):
                while state_name(turn.state) not in states:
                    await asyncio.sleep(0.01)
                    turn = await self.turn(turn_id)
        except TimeoutError:
            raise AssertionError(f"{state_name(turn.state)}, and not {states}: {turn.cause}") from None
        return turn

    async def asked(self, turn_id: str, count: int = 1) -> list[Approval]:
        """Wait until a turn asks so much."""

        async def look() -> list[Approval]:
            waiting = list((await self.turn(turn_id)).waiting)
            return waiting if len(waiting) >= count else []

        found: list[Approval] = await until(look, f"{count} approvals")
        return found

    async def decide(self, approval: Approval, decision: Decision.ValueType = DECISION_APPROVE) -> None:
        await self.ann.approvals.DecideApproval(
            DecideApprovalRequest(approval_id=approval.id, decision=decision, fingerprint=approval.fingerprint)
        )

    async def resume(self, turn_id: str, *resolutions: Resolution) -> None:
        await self.ann.turns.ResumeTurn(ResumeTurnRequest(turn_id=turn_id, resolutions=resolutions))

    async def abandon(self, turn_id: str) -> None:
        await self.ann.turns.AbandonTurn(AbandonTurnRequest(turn_id=turn_id, why="enough"))

    async def unfinished(self, turn_id: str, count: int = 1) -> Turn:
        """Wait until so many calls of a turn are listed as unfinished."""

        async def look() -> Turn | None:
            turn = await self.turn(turn_id)
            return turn if len(turn.unfinished) >= count else None

        found: Turn = await until(look, f"{count} unfinished calls")
        return found

    async def records(self, turn_id: str) -> list[Record]:
        page = await self.ann.turns.ListRecords(ListRecordsRequest(turn_id=turn_id, page_size=1000))
        return list(page.records)

    async def of_kind(self, turn_id: str, kind: str) -> list[Any]:
        """Return what was recorded of one kind: `tool_done`."""
        records = await self.records(turn_id)
        return [getattr(record, kind) for record in records if record.WhichOneof("what") == kind]

    async def recorded(self, turn_id: str, kind: str, count: int = 1) -> list[Any]:
        """Wait until so many records of a kind are there."""

        async def look() -> list[Any]:
            found = await self.of_kind(turn_id, kind)
            return found if len(found) >= count else []

        found: list[Any] = await until(look, f"{count} {kind}")
        return found

    # What is on disk

    def paid(self, agent: str) -> list[dict[str, Any]]:
        """Return the replies that an agent's model was paid for, by its own file."""
        path = self.scripts / f"{agent}.requests.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if "failed" not in line]

    @property
    def database(self) -> Path:
        return self.folder / "runtime.db"

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement on the service's own database, from outside."""
        with closing(sqlite3.connect(self.database, timeout=10, isolation_level=None)) as connection:
            return connection.execute(statement, values).fetchall()

    @asynccontextmanager
    async def no_commit(self) -> AsyncIterator[None]:
        """Hold the block to leave the database as it is: nothing at all is committed meanwhile."""
        with closing(sqlite3.connect(self.database)) as connection:
            before = connection.execute("PRAGMA data_version").fetchone()
            yield
            assert connection.execute("PRAGMA data_version").fetchone() == before, "something was committed"

    async def assert_sound(self) -> None:
        """Hold all that is kept to its rules, while it is in use."""
        wrong = await wrong_in(self.folder)
        assert not wrong, "\n".join([f"{len(wrong)} do not hold:", *wrong[:20]])

    async def close(self) -> None:
        await self.ann.close()


def settings_of(folder: Path, **changes: object) -> Settings:
    """Return a service's settings: leases that are not kept while a test looks, and little patience with hosts."""
    usual: dict[str, object] = {
        "TUTELAGE_RUNTIME_DATA_DIR": folder,
        "listen": "127.0.0.1:0",
        "scripts_dir": folder / "scripts",
        "lease_seconds": 120.0,
        "lease_keep_seconds": 60.0,
        "reconnect_seconds": 1.5,
        "tool_seconds": 60.0,
    }
    return Settings.model_validate(usual | changes)


@asynccontextmanager
async def house(folder: Path, **changes: object) -> AsyncIterator[House]:
    """Run a service in this process for as long as the block lasts."""
    async with running(settings_of(folder, **changes)) as service:
        there = House(folder, service.address)
        try:
            yield there
        finally:
            await there.close()
