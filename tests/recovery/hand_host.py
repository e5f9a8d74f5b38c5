"""A tool host by hand, over the plain stub: the test decides every message, and sees every one that comes.

It keeps nothing and answers nothing by itself, so that what a host may do, late or never, is for the test to say.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Self

import grpc
from google.protobuf.duration_pb2 import Duration
from tutelage.runtime.v1.effects_pb2 import EFFECTS_CHANGES, EFFECTS_READS, Effects
from tutelage.runtime.v1.tools_pb2 import (
    CallResult,
    CallResults,
    HostDraining,
    HostHello,
    HostWelcome,
    NotRun,
    ReportResultsRequest,
    ServeRequest,
    Tool,
    ToolCall,
)
from tutelage.runtime.v1.tools_pb2_grpc import ToolHostServiceStub

from tests.recovery.house import WAIT_SECONDS, House

QUIET_SECONDS = 0.2


def changes(name: str, *, timeout: float = 0.0, schema: str = '{"type":"object"}') -> Tool:
    """Declare a tool that changes things."""
    return _tool(name, EFFECTS_CHANGES, timeout, schema)


def reads(name: str, *, timeout: float = 0.0) -> Tool:
    """Declare a tool that only looks."""
    return _tool(name, EFFECTS_READS, timeout, '{"type":"object"}')


def _tool(name: str, effects: Effects.ValueType, seconds: float, schema: str) -> Tool:
    timeout = None
    if seconds:
        timeout = Duration()
        timeout.FromNanoseconds(round(seconds * 1e9))
    return Tool(name=name, description=name, input_schema_json=schema, effects=effects, timeout=timeout)


def returned(call: ToolCall | str, output_json: str = '"ok"') -> CallResult:
    return CallResult(call_id=_id(call), output_json=output_json)


def failed(call: ToolCall | str, error: str) -> CallResult:
    return CallResult(call_id=_id(call), error=error)


def not_run(call: ToolCall | str) -> CallResult:
    return CallResult(call_id=_id(call), not_run=NotRun())


def _id(call: ToolCall | str) -> str:
    return call if isinstance(call, str) else call.call_id


class Stream:
    """One `Serve` stream: what came over it, in the order in which it came."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.hello_sent = time.monotonic()
        self.welcome = HostWelcome()
        self.seen: list[tuple[str, str]] = []
        self._calls: asyncio.Queue[ToolCall] = asyncio.Queue()
        self._news = asyncio.Event()
        self.over = asyncio.Event()
        self.problem: grpc.aio.AioRpcError | None = None
        self.came: dict[str, float] = {}

    async def write(self, request: ServeRequest) -> None:
        await self._call.write(request)

    async def read(self) -> None:
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                self._take(response)
        except grpc.aio.AioRpcError as problem:
            self.problem = problem
        except asyncio.CancelledError:
            pass
        finally:
            self.over.set()
            self._news.set()

    def _take(self, response: Any) -> None:
        match response.WhichOneof("message"):
            case "welcome":
                self.welcome = response.welcome
                self.seen.append(("welcome", ""))
            case "calls":
                for call in response.calls.calls:
                    self.seen.append(("call", call.call_id))
                    self.came[call.call_id] = time.monotonic()
                    self._calls.put_nowait(call)
            case "cancelled":
                self.seen += [("cancelled", call_id) for call_id in response.cancelled.call_ids]
            case "taken":
                self.seen += [("taken", call_id) for call_id in response.taken.call_ids]
        self._news.set()

    async def call(self, seconds: float = WAIT_SECONDS) -> ToolCall:
        """Return the next call that was sent."""
        async with asyncio.timeout(seconds):
            return await self._calls.get()

    @property
    def unread(self) -> int:
        """How many calls have come that the test has not looked at."""
        return self._calls.qsize()

    async def calls(self, count: int) -> dict[str, ToolCall]:
        """Return so many calls, by their tool."""
        return {call.tool: call for call in [await self.call() for _ in range(count)]}

    async def hears(self, what: str, about: ToolCall | str = "") -> None:
        """Wait for a message of a kind: `taken`, `cancelled`."""
        async with asyncio.timeout(WAIT_SECONDS):
            while (what, _id(about)) not in self.seen:
                assert not self.over.is_set(), f"the stream ended: {self.problem}"
                self._news.clear()
                await self._news.wait()

    async def no_call(self, seconds: float = QUIET_SECONDS) -> None:
        """Hold the runtime to send no call for so long."""
        with suppress(TimeoutError):
            call = await self.call(seconds)
            raise AssertionError(f"a call of {call.tool} was sent")

    async def ends(self) -> None:
        """Wait until the runtime has ended the stream."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self.over.wait()

    def break_(self) -> None:
        """Break the stream, as a fault of the network would."""
        self._call.cancel()

    async def done(self) -> None:
        await self._call.done_writing()


class HandHost:
    """One incarnation of a host, and its streams."""

    def __init__(
        self,
        house: House,
        *tools: Tool,
        name: str = "hand",
        account: str = "hand",
        capacity: int = 0,
        address: str = "",
    ) -> None:
        self.tools = list(tools)
        self.name = name
        self.capacity = capacity
        self.incarnation = uuid.uuid4().hex
        self._channel = grpc.aio.insecure_channel(address or house.address)
        self._stub = ToolHostServiceStub(self._channel)
        self._metadata = (("authorization", f"Bearer {house.token(account)}"),)
        self._reading: list[asyncio.Task[None]] = []
        self.stream: Stream

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def open(self, holding: Iterable[str] = ()) -> Stream:
        """Open a stream with a hello, and do not wait for its welcome."""
        stream = Stream(self._stub.Serve(metadata=self._metadata))
        hello = HostHello(
            host=self.name,
            incarnation=self.incarnation,
            tools=self.tools,
            capacity=self.capacity,
            holding=list(holding),
        )
        stream.hello_sent = time.monotonic()
        await stream.write(ServeRequest(hello=hello))
        self._reading.append(asyncio.create_task(stream.read()))
        return stream

    async def connect(self, holding: Iterable[str] = ()) -> Stream:
        """Open a stream and wait for its welcome: the incarnation's next session."""
        self.stream = await self.open(holding)
        await self.stream.hears("welcome")
        return self.stream

    async def say(self, *results: CallResult) -> None:
        await self.stream.write(ServeRequest(results=CallResults(results=results)))

    async def drain(self) -> None:
        await self.stream.write(ServeRequest(draining=HostDraining()))

    async def report(self, *results: CallResult) -> list[str]:
        """Report results without a stream."""
        request = ReportResultsRequest(incarnation=self.incarnation, results=results)
        answer = await self._stub.ReportResults(request, metadata=self._metadata)
        return list(answer.taken_call_ids)
