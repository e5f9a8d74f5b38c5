"""A runtime service as the tests here drive it: the real one, in this process, over the public API alone.

It serves on a port of the system's choice, from a real database in the test's folder. It can be stopped and started
again on the same port, so clients and hosts live through a restart as they would in life. Nothing waits by sleeping:
what the contract tells is waited for by a watch, and what it does not tell (that a turn was let go of, that a host is
connected) by the service's own log events.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import structlog
import yaml
from tutelage import Tutelage, TutelageError, connect
from tutelage.host import ToolHost
from tutelage.runtime.v1 import agents_pb2, approvals_pb2, conversations_pb2, journal_pb2, turns_pb2
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalRule, ApprovalSetting, ChangesRule, NothingAsked
from tutelage.token import make_token, signing_key
from tutelage.tools import Tool

from runtime_service.server import running
from runtime_service.settings import Settings

T = TypeVar("T")

DEADLINE_SECONDS = 10.0

# Everybody in these tests: their kind and roles.
ACCOUNTS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "gus": ("person", ("uses",)),
    "hale": ("person", ("uses", "supervises")),
    "ivy": ("person", ("uses", "supervises")),
    "ana": ("person", ("builds",)),
    "audra": ("person", ("audits",)),
    "stranger": ("person", ("uses",)),
    "worker": ("service", ("hosts",)),
    "other-worker": ("service", ("hosts",)),
    "robot": ("agent", ("uses", "supervises")),
    "gateway": ("service", ("uses", "supervises")),
}

CHANGES_ASKED = ApprovalSetting(rule=ApprovalRule(changes=ChangesRule()))
NOTHING_ASKED = ApprovalSetting(nothing=NothingAsked())


class Logged:
    """What the service logs: kept, and waited for."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self._came = asyncio.Event()

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
        self.events.append(dict(event))
        self._came.set()
        raise structlog.DropEvent

    async def heard(self, name: str, since: int = 0, **keys: object) -> int:
        """Wait for an event at or behind a place; return the place behind it."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while True:
                    for place, event in enumerate(self.events[since:], since):
                        if event["event"] == name and keys.items() <= event.items():
                            return place + 1
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise AssertionError(f"{name} {keys} was not logged, but {self.events[since:]}") from None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep this process's log events here for as long as the block lasts."""
        before = structlog.get_config()
        structlog.configure(processors=[structlog.contextvars.merge_contextvars, self], cache_logger_on_first_use=False)
        try:
            yield
        finally:
            structlog.configure(**before)


class Service:
    """One service in its folder, with whoever is connected to it."""

    def __init__(self, folder: Path, cleanup: AsyncExitStack, logged: Logged) -> None:
        self.folder = folder
        self.scripts = folder / "scripts"
        self.scripts.mkdir()
        self.logged = logged
        self.settings: dict[str, Any] = {"scripts_dir": self.scripts, "reconnect_seconds": 2.0}
        self.address = "127.0.0.1:0"
        # Whose everybody is who signs in.
        self.tenant = "default"
        self._cleanup = cleanup
        self._clients: dict[str, Tutelage] = {}
        self._stop = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    # The process

    async def start(self, **settings: Any) -> None:
        """Serve. Settings stay for later starts."""
        self.settings |= settings
        up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._serving = asyncio.create_task(self._serve(up, self._stop))
        self.address = await up
        for client in self._clients.values():
            async with asyncio.timeout(DEADLINE_SECONDS):
                await client.ready()

    async def stop(self) -> None:
        """Stop as on SIGTERM, and wait for the end."""
        self._stop.set()
        if self._serving is not None:
            await self._serving
        self._serving = None

    async def restart(self, **settings: Any) -> None:
        await self.stop()
        await self.start(**settings)

    async def _serve(self, up: asyncio.Future[str], stop: asyncio.Event) -> None:
        settings = Settings(listen=self.address, data_dir=self.folder, **self.settings)
        try:
            async with running(settings) as serving:
                up.set_result(serving.address)
                await stop.wait()
        except Exception as problem:
            if up.done():
                raise
            up.set_exception(problem)

    # Who calls

    def token(self, who: str, **changes: Any) -> str:
        """Sign somebody's token; `changes` are those of `make_token`."""
        kind, roles = ACCOUNTS[who]
        made: dict[str, Any] = {"sub": who, "kind": kind, "roles": roles, "tenant": self.tenant} | changes
        return make_token(signing_key(self.folder), **made)

    def client(self, token: str) -> Tutelage:
        """Connect by a token of one's own making."""
        client = connect(self.address, token)
        self._cleanup.push_async_callback(client.close)
        return client

    def __getitem__(self, who: str) -> Tutelage:
        """Somebody's connection."""
        if who not in self._clients:
            self._clients[who] = self.client(self.token(who))
        return self._clients[who]

    @asynccontextmanager
    async def host(self, name: str, *tools: Tool, who: str = "worker", **options: Any) -> AsyncIterator[ToolHost]:
        """Offer tools for as long as the block lasts; then the host is gone as if its process had been killed."""
        host, since = ToolHost(name, tools, **options), len(self.logged.events)
        client = connect(self.address, self.token(who))
        serving = asyncio.create_task(host.serve(client))
        try:
            await self.logged.heard("host.connected", since, host=name)
            yield host
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            await client.close()

    # What is set up

    def script(self, name: str, *rules: Mapping[str, Any]) -> None:
        """Write a scripted model."""
        text = yaml.safe_dump(list(rules), allow_unicode=True, sort_keys=False)
        (self.scripts / f"{name}.yaml").write_text(text)

    def paid(self, name: str) -> list[dict[str, Any]]:
        """The requests that a scripted model was paid for, from its own file."""
        path = self.scripts / f"{name}.requests.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [asked for asked in map(json.loads, lines) if "failed" not in asked]

    async def agent(
        self,
        name: str,
        *rules: Mapping[str, Any],
        tools: Sequence[str] = (),
        agents: Sequence[str] = (),
        delegates: Sequence[str] = (),
        **spec: Any,
    ) -> agents_pb2.Agent:
        """Register an agent whose model says what these rules say."""
        self.script(name, *rules)
        uses = [agents_pb2.ToolUse(tool=tool) for tool in tools]
        uses += [agents_pb2.ToolUse(agent=agent) for agent in agents]
        uses += [agents_pb2.ToolUse(delegate=delegate) for delegate in delegates]
        hosted = agents_pb2.HostedLoop(model=f"scripted:{name}")
        request = agents_pb2.PutAgentRequest(spec=agents_pb2.AgentSpec(name=name, hosted=hosted, tools=uses, **spec))
        return (await self["ana"].agents.PutAgent(request)).agent

    async def conversation(
        self, agent: str, approve: ApprovalSetting | None = None, by: str = "gus", conversation_id: str = ""
    ) -> str:
        """Open a conversation and return its id."""
        request = conversations_pb2.OpenConversationRequest(
            agent=agent, approve=approve, conversation_id=conversation_id
        )
        return (await self[by].conversations.OpenConversation(request)).conversation.id

    async def turn(self, conversation_id: str, text: str = "Go on.", by: str = "gus", **request: Any) -> turns_pb2.Turn:
        """Start a turn."""
        work = turns_pb2.Work(input=text)
        asked = turns_pb2.StartTurnRequest(conversation_id=conversation_id, work=work, **request)
        return (await self[by].turns.StartTurn(asked)).turn

    async def asked_of(
        self, agent: str, text: str = "Go on.", approve: ApprovalSetting | None = None, by: str = "gus"
    ) -> str:
        """Ask an agent something in a conversation of its own; return the turn's id."""
        return (await self.turn(await self.conversation(agent, approve, by), text, by)).id

    # What is waited for

    async def events(
        self, turn_id: str, until: Callable[[turns_pb2.TurnEvent], bool], cursor: str = "", by: str = "gus"
    ) -> list[turns_pb2.TurnEvent]:
        """Watch a turn until an event; return all events up to it, but for bookmarks, and text, which is not kept."""
        seen: list[turns_pb2.TurnEvent] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DEADLINE_SECONDS), aclosing(self[by].watch_turn(turn_id, cursor)) as events:
                async for event in events:
                    if not (event.HasField("bookmark") or event.HasField("text")):
                        seen.append(event)
                        if until(event):
                            return seen
        raise AssertionError(f"what was waited for was not shown: {kinds(seen)}; {await self.get(turn_id, by)}")

    async def questions(self, turn_id: str, count: int = 1, by: str = "gus") -> list[approvals_pb2.Approval]:
        """Wait until a turn asks so many questions that nobody has settled; return them in the order asked."""
        pending: dict[str, approvals_pb2.Approval] = {}

        def enough(event: turns_pb2.TurnEvent) -> bool:
            waits = approvals_pb2.APPROVAL_STATE_PENDING
            pending.update({one.id: one for one in event.waiting.approvals if one.state == waits})
            return len(pending) >= count

        await self.events(turn_id, enough, by=by)
        return list(pending.values())

    async def question(self, turn_id: str) -> approvals_pb2.Approval:
        """Wait for a turn's one question, and for the turn to have been let go of."""
        [asked] = await self.questions(turn_id)
        await self.at_rest(turn_id)
        return asked

    async def at_rest(self, turn_id: str, by: str = "gus") -> turns_pb2.Turn:
        """Wait until a turn that can do nothing more was let go of."""
        at_rest = (turns_pb2.TURN_STATE_WAITING, turns_pb2.TURN_STATE_INTERRUPTED)
        while True:
            since = len(self.logged.events)
            turn = await self.get(turn_id, by)
            if turn.state in at_rest:
                return turn
            await self.logged.heard("turn.let_go", since, turn=turn_id)

    async def interrupted(self, turn_id: str) -> turns_pb2.Turn:
        """Wait until a turn is interrupted with something unfinished."""

        def stuck(event: turns_pb2.TurnEvent) -> bool:
            return len(event.interrupted.unfinished) > 0

        return (await self.events(turn_id, stuck))[-1].interrupted

    async def ended(self, turn_id: str, by: str = "gus") -> turns_pb2.Turn:
        """Wait until a turn has ended."""
        return (await self.events(turn_id, lambda event: event.HasField("ended"), by=by))[-1].ended

    # What is done and read

    async def decide(
        self,
        asked: approvals_pb2.Approval,
        decision: approvals_pb2.Decision.ValueType,
        by: str = "gus",
        **answer: Any,
    ) -> approvals_pb2.Approval:
        """Answer a question, to the fingerprint that was shown."""
        request = {"fingerprint": asked.fingerprint} | answer
        response = await self[by].approvals.DecideApproval(
            approvals_pb2.DecideApprovalRequest(approval_id=asked.id, decision=decision, **request)
        )
        return response.approval

    async def yes(self, asked: approvals_pb2.Approval, by: str = "gus", **answer: Any) -> approvals_pb2.Approval:
        return await self.decide(asked, approvals_pb2.DECISION_APPROVE, by, **answer)

    async def no(self, asked: approvals_pb2.Approval, by: str = "gus", **answer: Any) -> approvals_pb2.Approval:
        return await self.decide(asked, approvals_pb2.DECISION_DENY, by, **answer)

    async def get(self, turn_id: str, by: str = "gus") -> turns_pb2.Turn:
        return (await self[by].turns.GetTurn(turns_pb2.GetTurnRequest(turn_id=turn_id))).turn

    async def approval(self, approval_id: str, by: str = "gus") -> approvals_pb2.Approval:
        request = approvals_pb2.GetApprovalRequest(approval_id=approval_id)
        return (await self[by].approvals.GetApproval(request)).approval

    async def records(self, turn_id: str, by: str = "gus") -> list[journal_pb2.Record]:
        """A turn's whole journal."""
        records: list[journal_pb2.Record] = []
        token = ""
        while True:
            request = turns_pb2.ListRecordsRequest(turn_id=turn_id, page_token=token)
            page = await self[by].turns.ListRecords(request)
            records += page.records
            token = page.next_page_token
            if not token:
                return records

    async def record(self, turn_id: str, kind: str) -> Any:
        """What the one record of a kind says."""
        [found] = [getattr(record, kind) for record in await self.records(turn_id) if record.HasField(kind)]  # type: ignore[arg-type]
        return found

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Look into the database's file."""
        with closing(sqlite3.connect(self.folder / "runtime.db")) as database:
            return database.execute(query).fetchall()


def calls(*asked: tuple[str, Mapping[str, Any]], when: str = "step == 0", say: str = "") -> dict[str, Any]:
    """A script's rule that calls tools."""
    rule: dict[str, Any] = {"when": when}
    if say:
        rule["say"] = say
    return rule | {"calls": [{"tool": tool, "input": dict(given)} for tool, given in asked]}


def kinds(events: Sequence[turns_pb2.TurnEvent]) -> list[str]:
    """Name what events tell, a record by what it records."""
    return [str(event.record.WhichOneof("what") or event.WhichOneof("event")) for event in events]


def whats(records: Sequence[journal_pb2.Record]) -> list[str]:
    """Name what records tell."""
    return [str(record.WhichOneof("what")) for record in records]


async def refusal(call: Awaitable[object]) -> TutelageError:
    """Return what a call was refused with."""
    try:
        answer = await call
    except TutelageError as error:
        return error
    raise AssertionError(f"this was not refused: {answer}")


async def within_deadline(waited: Awaitable[T]) -> T:
    """Wait for something that will come."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await waited
