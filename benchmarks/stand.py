"""What a benchmark stands on: a runtime service in this process, on disk, with a client and a host over the wire."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import structlog
from tutelage import Tool, ToolHost, Tutelage, connect
from tutelage.runtime.v1 import agents_pb2, conversations_pb2, tools_pb2, turns_pb2
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalSetting
from tutelage.token import make_token, signing_key

from runtime_service.server import running
from runtime_service.settings import Settings


class Stand:
    """One runtime in a folder of its own. It can be stopped and started again; its client and its host stay."""

    def __init__(self, folder: Path, tools: Sequence[Tool]) -> None:
        self._folder = folder
        self._tools = tools
        self._address = "127.0.0.1:0"
        self._serving = AsyncExitStack()
        self._around = AsyncExitStack()
        self.client: Tutelage

    async def start(self) -> None:
        """Serve, with the host connected."""
        scripts = self._folder / "scripts"
        scripts.mkdir(exist_ok=True)
        settings = Settings(listen=self._address, data_dir=self._folder, scripts_dir=scripts, approve="nothing")
        self._address = (await self._serving.enter_async_context(running(settings))).address
        self.client = self._connect("person", "uses", "supervises", "builds")
        worker = self._connect("service", "hosts")
        host = asyncio.create_task(ToolHost("bench", self._tools).serve(worker))
        self._serving.callback(host.cancel)
        await self._offered()

    async def stop(self) -> None:
        """Stop, and close the database: all of it is in its file then."""
        await self._serving.aclose()

    def _connect(self, kind: Any, *roles: str) -> Tutelage:
        token = make_token(signing_key(self._folder), sub=kind, kind=kind, roles=roles, tenant="default")
        client = connect(self._address, token)
        self._serving.push_async_callback(client.close)
        return client

    async def _offered(self) -> None:
        names = {tool.name for tool in self._tools}
        while names - {one.name for one in (await self.client.tools.ListTools(tools_pb2.ListToolsRequest())).tools}:
            await asyncio.sleep(0.01)  # no event tells of tools

    async def agent(
        self, name: str, rules: Sequence[Mapping[str, Any]], approve: ApprovalSetting | None = None
    ) -> None:
        """Register an agent that may call every tool and says what these rules say."""
        (self._folder / "scripts" / f"{name}.yaml").write_text(json.dumps(list(rules)))
        tools = [agents_pb2.ToolUse(tool=tool.name) for tool in self._tools]
        hosted = agents_pb2.HostedLoop(model=f"scripted:{name}")
        spec = agents_pb2.AgentSpec(name=name, hosted=hosted, tools=tools, approve=approve)
        await self.client.agents.PutAgent(agents_pb2.PutAgentRequest(spec=spec))

    async def conversation(self, agent: str) -> str:
        """Open a conversation."""
        opened = await self.client.conversations.OpenConversation(
            conversations_pb2.OpenConversationRequest(agent=agent)
        )
        return opened.conversation.id

    async def turn(self, conversation: str, text: str = "Go on.") -> str:
        """Start a turn."""
        asked = turns_pb2.StartTurnRequest(conversation_id=conversation, work=turns_pb2.Work(input=text))
        return (await self.client.turns.StartTurn(asked)).turn.id

    def forget_requests(self) -> None:
        """Throw away what the scripted models wrote down: each request whole, which is not what is measured."""
        for file in (self._folder / "scripts").glob("*.requests.jsonl"):
            file.unlink()

    async def get(self, turn_id: str) -> turns_pb2.Turn:
        """Look a turn up."""
        return (await self.client.turns.GetTurn(turns_pb2.GetTurnRequest(turn_id=turn_id))).turn

    async def until(self, turn_id: str, event: str) -> turns_pb2.TurnEvent:
        """Wait until a turn's watcher is shown such an event."""
        async with aclosing(self.client.watch_turn(turn_id)) as events:
            async for one in events:
                if one.WhichOneof("event") == event:
                    return one
        raise AssertionError(f"{event} was not shown")

    def bytes_on_disk(self) -> int:
        """Return how large the database is, all of it in its file."""
        file = self._folder / "runtime.db"
        with closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            free, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
        return file.stat().st_size - int(free) * int(size)


@asynccontextmanager
async def standing(*tools: Tool) -> AsyncIterator[Stand]:
    """A stand for as long as the block lasts, in a folder that is gone afterwards."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with TemporaryDirectory() as folder:
        stand = Stand(Path(folder), tools)
        await stand.start()
        try:
            yield stand
        finally:
            await stand.stop()
