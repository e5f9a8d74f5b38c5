"""The other side of the wire, small: a real gRPC server that speaks the contract as a test tells it to.

It is for the protocol's corners, which a whole runtime does not show at will: a stream that breaks between a
result and its `taken`, a hello that is refused, a call sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from tutelage.runtime.v1 import approvals_pb2_grpc, tools_pb2_grpc, turns_pb2_grpc
from tutelage.runtime.v1.tools_pb2 import (
    CallResult,
    CallsCancelled,
    HostHello,
    HostWelcome,
    ReportResultsRequest,
    ReportResultsResponse,
    ResultsTaken,
    ServeRequest,
    ServeResponse,
    ToolCall,
    ToolCalls,
)
from tutelage.teaching.v1 import events_pb2_grpc

WAIT_SECONDS = 20


async def refuse(
    context: Any, code: grpc.StatusCode, reason: str = "", message: str = "refused", *details: Any
) -> None:
    """Abort as the services do: with `google.rpc` details in the trailers."""
    if not reason:
        await context.abort(code, message)
    status = status_pb2.Status(code=code.value[0], message=message)
    info = error_details_pb2.ErrorInfo(reason=reason, domain="runtime.tutelage", metadata={"turn_id": "t1"})
    for detail in (info, *details):
        status.details.add().Pack(detail)
    await context.abort(code, message, trailing_metadata=(("grpc-status-details-bin", status.SerializeToString()),))


def call(
    call_id: str,
    tool: str = "note",
    input_json: str = "{}",
    *,
    key: str = "",
    attempt: int = 1,
    begin_by: float = 30.0,
) -> ToolCall:
    """Make a call as the runtime sends it."""
    wait = Duration()
    wait.FromNanoseconds(round(begin_by * 1e9))
    return ToolCall(
        call_id=call_id,
        tool=tool,
        input_json=input_json,
        idempotency_key=key or f"key-{call_id}",
        turn_id="t1",
        address=f"gardener/{tool}#1",
        attempt=attempt,
        begin_by=wait,
    )


class HostSession:
    """One `Serve` stream, as the runtime sees it."""

    def __init__(self, hello: HostHello) -> None:
        self.hello = hello
        self.heard: asyncio.Queue[ServeRequest | None] = asyncio.Queue()
        self.to_say: asyncio.Queue[ServeResponse | Callable[[Any], Awaitable[None]] | None] = asyncio.Queue()

    def call(self, *calls: ToolCall) -> None:
        self.to_say.put_nowait(ServeResponse(calls=ToolCalls(calls=calls)))

    def cancel(self, *call_ids: str) -> None:
        self.to_say.put_nowait(ServeResponse(cancelled=CallsCancelled(call_ids=call_ids)))

    def take(self, *call_ids: str) -> None:
        self.to_say.put_nowait(ServeResponse(taken=ResultsTaken(call_ids=call_ids)))

    def end(self, code: grpc.StatusCode | None = None, reason: str = "") -> None:
        """End the stream: well, or with a status."""
        if code is None:
            self.to_say.put_nowait(None)
        else:
            self.to_say.put_nowait(lambda context: refuse(context, code, reason))

    async def hear(self) -> ServeRequest | None:
        """Wait for the host's next message. None: it has closed its side."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.heard.get()

    async def results(self, count: int = 1) -> dict[str, CallResult]:
        """Wait for so many results, by call."""
        found: dict[str, CallResult] = {}
        while len(found) < count:
            message = await self.hear()
            assert message is not None, "the host closed its side"
            assert message.HasField("results"), message
            found |= {result.call_id: result for result in message.results.results}
        return found


class ToolHosts(tools_pb2_grpc.ToolHostServiceServicer):
    """Takes hellos, and lets the test say the rest."""

    def __init__(self) -> None:
        self.opened: asyncio.Queue[HostSession] = asyncio.Queue()
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        self.hellos_refused = 0
        self.reconnect_within = 60
        self.reports: asyncio.Queue[ReportResultsRequest] = asyncio.Queue()
        self._sessions = 0

    async def session(self) -> HostSession:
        """Wait for the next hello."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.opened.get()

    async def Serve(self, request_iterator: Any, context: Any) -> AsyncIterator[ServeResponse]:
        first = await context.read()
        if self.refusal is not None:
            self.hellos_refused += 1
            await refuse(context, *self.refusal)
        session = HostSession(first.hello)
        self._sessions += 1

        async def listen() -> None:
            async for request in request_iterator:
                session.heard.put_nowait(request)
            session.heard.put_nowait(None)

        listening = asyncio.create_task(listen())
        try:
            within = Duration(seconds=self.reconnect_within)
            yield ServeResponse(welcome=HostWelcome(replica="double", reconnect_within=within, session=self._sessions))
            self.opened.put_nowait(session)
            while (saying := await session.to_say.get()) is not None:
                if isinstance(saying, ServeResponse):
                    yield saying
                else:
                    await saying(context)
        finally:
            listening.cancel()

    async def ReportResults(self, request: ReportResultsRequest, context: Any) -> ReportResultsResponse:
        self.reports.put_nowait(request)
        return ReportResultsResponse(taken_call_ids=[result.call_id for result in request.results])

    async def ListTools(self, request: Any, context: Any) -> Any:
        await refuse(context, grpc.StatusCode.UNIMPLEMENTED, "NOT_IN_THIS_RELEASE")


Answer = Callable[[Any, Any], Awaitable[Any]]
Streaming = Callable[[Any, Any], AsyncIterator[Any]]


class LaidDown:
    """Answers each call with the next of the answers that a test laid down."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.metadata: list[dict[str, Any]] = []
        self.remaining: list[float] = []
        self.answers: list[Answer] = []
        self.streams: list[Streaming] = []

    async def answer(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        self.remaining.append(context.time_remaining())
        return await self.answers.pop(0)(request, context)

    async def stream(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.asked.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        async for response in self.streams.pop(0)(request, context):
            yield response


class Turns(LaidDown, turns_pb2_grpc.TurnServiceServicer):
    """Turns, as a test lays them down."""

    GetTurn = AbandonTurn = ListRecords = LaidDown.answer
    WatchTurn = LaidDown.stream


class Approvals(LaidDown, approvals_pb2_grpc.ApprovalServiceServicer):
    """Approvals, as a test lays them down."""

    GetApproval = ListApprovals = DecideApproval = LaidDown.answer
    WatchApprovals = LaidDown.stream


class TeachingEvents(LaidDown, events_pb2_grpc.TeachingEventServiceServicer):
    """What is taught, as a test lays it down."""

    WatchTeaching = LaidDown.stream


class RuntimeDouble:
    """A server on a port of its own, that can be stopped and started again there."""

    def __init__(self) -> None:
        self.hosts = ToolHosts()
        # What a test does not use answers UNIMPLEMENTED: abstract in the stubs' types, not as they run.
        self.turns = Turns()  # type: ignore[abstract]
        self.approvals = Approvals()  # type: ignore[abstract]
        self.teaching_events = TeachingEvents()
        self.address = "127.0.0.1:0"
        self._server: aio.Server | None = None

    async def start(self) -> None:
        server = aio.server(options=[("grpc.so_reuseport", 0)])
        tools_pb2_grpc.add_ToolHostServiceServicer_to_server(self.hosts, server)
        turns_pb2_grpc.add_TurnServiceServicer_to_server(self.turns, server)
        approvals_pb2_grpc.add_ApprovalServiceServicer_to_server(self.approvals, server)
        events_pb2_grpc.add_TeachingEventServiceServicer_to_server(self.teaching_events, server)
        port = server.add_insecure_port(self.address)
        self.address = f"127.0.0.1:{port}"
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Break every stream and close the port."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None


@asynccontextmanager
async def runtime_double() -> AsyncIterator[RuntimeDouble]:
    double = RuntimeDouble()
    await double.start()
    try:
        yield double
    finally:
        await double.stop()
