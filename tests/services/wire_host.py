"""A tool host that a test speaks word by word over `Serve`: it says, and leaves unsaid, what a real one would not."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from tutelage.runtime.v1 import tools_pb2 as pb
from tutelage.tools import CHANGES, READS

from tests.services.service import DEADLINE_SECONDS, Service

ANY_INPUT = '{"type":"object"}'
WIRE_TOOLS = (
    pb.Tool(name="wire_read", description="Looks.", input_schema_json=ANY_INPUT, effects=READS),
    pb.Tool(name="wire_write", description="Writes.", input_schema_json=ANY_INPUT, effects=CHANGES),
)


class WireHost:
    """One stream of an incarnation, after its welcome."""

    def __init__(self, incarnation: str, responses: AsyncIterator[pb.ServeResponse]) -> None:
        self.incarnation = incarnation
        self.welcome = pb.HostWelcome()
        self.to_say: asyncio.Queue[pb.ServeRequest] = asyncio.Queue()
        # What was received and not yet asked for, by its kind.
        self.unread: defaultdict[str, deque[Any]] = defaultdict(deque)
        self._responses = responses

    async def hear(self, kind: str) -> Any:
        """Return the next message of a kind; others are kept for when they are asked for."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not self.unread[kind]:
                response = await anext(self._responses)
                heard = str(response.WhichOneof("message"))
                self.unread[heard].append(getattr(response, heard))
        return self.unread[kind].popleft()

    async def was_sent(self, kind: str) -> bool:
        """Say whether a message of this kind was sent up to now that was not asked for.

        Reads on to a `taken` of its own making; to a second one, since calls stand behind it in one batch.
        """
        for _ in range(2):
            nobodys = pb.CallResult(call_id=uuid.uuid4().hex, output_json="0")
            self.to_say.put_nowait(pb.ServeRequest(results=pb.CallResults(results=[nobodys])))
            while nobodys.call_id not in (await self.hear("taken")).call_ids:
                pass
        return bool(self.unread[kind])

    async def call(self) -> pb.ToolCall:
        """Return the one call of the next batch."""
        calls: pb.ToolCalls = await self.hear("calls")
        [call] = calls.calls
        return call

    def say(self, call: pb.ToolCall, **outcome: Any) -> None:
        """Say what a call returned."""
        results = pb.CallResults(results=[pb.CallResult(call_id=call.call_id, **outcome)])
        self.to_say.put_nowait(pb.ServeRequest(results=results))


@asynccontextmanager
async def wire_host(
    service: Service,
    tools: Iterable[pb.Tool] = WIRE_TOOLS,
    *,
    incarnation: str = "",
    holding: Iterable[str] = (),
    who: str = "worker",
    name: str = "wire",
    token: str = "",
    **hello: Any,
) -> AsyncIterator[WireHost]:
    """Connect such a host; at the end of the block its stream breaks."""
    incarnation = incarnation or uuid.uuid4().hex
    first = pb.HostHello(host=name, incarnation=incarnation, tools=tools, holding=holding, **hello)

    async def said() -> AsyncIterator[pb.ServeRequest]:
        yield pb.ServeRequest(hello=first)
        while True:
            yield await host.to_say.get()

    client = service.client(token or service.token(who))
    stream = client.tools.Serve(said())
    host = WireHost(incarnation, aiter(stream))
    try:
        host.welcome = await host.hear("welcome")
        yield host
    finally:
        stream.cancel()
        await client.close()
