"""`ToolHostService`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tutelage.runtime.v1 import tools_pb2 as pb
from tutelage.runtime.v1 import tools_pb2_grpc

from runtime_service.api import from_proto, to_proto
from runtime_service.api.checks import MOST_TEXT_BYTES, Fields
from runtime_service.domain import canonical_json
from runtime_service.domain.calls import Outcome, Result
from runtime_service.domain.canonical_json import JsonProblem
from runtime_service.domain.hosts import CallId, Hello, Incarnation
from runtime_service.domain.problems import InvalidFields, NotInThisRelease
from runtime_service.engine.host_session import HostSession, Outgoing, SendCall
from runtime_service.engine.hosts import Hosts
from runtime_service.engine.lease import Lease
from service_kit.identity import Caller, current_caller
from service_kit.paging import PageCodec, page, page_size
from service_kit.streams import Streams

MOST_TOOLS = 1_000
MOST_HOLDING = 20_000
HELLO_SECONDS = 30.0


class ToolHostService(tools_pb2_grpc.ToolHostServiceServicer):
    """Tools live with the callers. A host connects, says what it offers, and is sent calls over the same stream."""

    def __init__(self, hosts: Hosts, lease: Lease, streams: Streams) -> None:
        self._hosts = hosts
        self._lease = lease
        self._streams = streams

    async def Serve(self, requests: AsyncIterator[pb.ServeRequest], context: Any) -> AsyncIterator[pb.ServeResponse]:
        """Serve one host. A task of this stream reads what it says while the stream itself is sent to."""
        caller = current_caller()
        session = await self._hosts.open(await _hello(requests, caller))
        reading = asyncio.create_task(self._read(requests, session, caller))
        closing = asyncio.create_task(self._close_at_the_end(reading, session, caller))
        try:
            yield self._welcome(session)
            while (outgoing := await session.outgoing()) is not None:
                yield _response(outgoing)
            if reading.done():
                await reading
        finally:
            reading.cancel()
            closing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(reading, closing, return_exceptions=True)
            await asyncio.shield(self._hosts.close(session))

    async def ReportResults(self, request: pb.ReportResultsRequest, context: Any) -> pb.ReportResultsResponse:
        caller = current_caller()
        fields = Fields()
        fields.needed("incarnation", request.incarnation)
        fields.done()
        taken = await self._hosts.results(
            Incarnation(request.incarnation), caller.tenant, caller.id, _results(request.results)
        )
        return pb.ReportResultsResponse(taken_call_ids=taken)

    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        most = page_size(request.page_size)
        after = str(PageCodec.decode("tools", request.page_token) or "")
        offered = self._hosts.offered(current_caller().tenant)
        found = [offered[name] for name in sorted(name for name in offered if name > after)[:most]]
        tools, token = page(found, most, "tools", to_proto.tool, lambda one: one.name)
        return pb.ListToolsResponse(tools=tools, next_page_token=token)

    def _welcome(self, session: HostSession) -> pb.ServeResponse:
        within = Duration()
        within.FromMilliseconds(round(self._hosts.reconnect_seconds * 1000))
        welcome = pb.HostWelcome(replica=self._lease.process, reconnect_within=within, session=session.number)
        return pb.ServeResponse(welcome=welcome)

    async def _read(self, requests: AsyncIterator[pb.ServeRequest], session: HostSession, caller: Caller) -> None:
        """Take in what the host says until it closes its side; then nothing more is sent to it."""
        try:
            async for request in requests:
                match request.WhichOneof("message"):
                    case "results":
                        results = _results(request.results.results)
                        incarnation = session.hello.incarnation
                        await self._hosts.results(incarnation, caller.tenant, caller.id, results)
                    case "draining":
                        self._hosts.drain(session)
                    case "hello":
                        raise InvalidFields([("hello", "A stream has one hello, its first message.")])
                    case "answers":
                        raise NotInThisRelease("A decider")
                    case _:
                        pass
        finally:
            session.close()

    async def _close_at_the_end(self, reading: asyncio.Task[None], session: HostSession, caller: Caller) -> None:
        """Close the session when the server shuts down or the host's token ends."""
        left = (caller.expires_at - datetime.now(UTC)).total_seconds()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, left)):
                await self._streams.wait_for_shutdown()
        session.close()


async def _hello(requests: AsyncIterator[pb.ServeRequest], caller: Caller) -> Hello:
    """Read a host's first message. Raises `InvalidFields` with all that is wrong with it."""
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            first = await anext(requests)
    except (StopAsyncIteration, TimeoutError):
        first = pb.ServeRequest()
    if first.WhichOneof("message") != "hello":
        raise InvalidFields([("hello", "The first message of a stream is `hello`.")])
    hello = first.hello
    fields = Fields()
    fields.needed("hello.host", fields.text("hello.host", hello.host, 256))
    fields.own_id("hello.incarnation", fields.needed("hello.incarnation", hello.incarnation))
    if len(hello.tools) > MOST_TOOLS:
        fields.refuse("hello.tools", f"At most {MOST_TOOLS} tools.")
    if len(hello.holding) > MOST_HOLDING:
        fields.refuse("hello.holding", f"At most {MOST_HOLDING} calls.")
    tools = [from_proto.declaration(tool, f"hello.tools[{place}]", fields) for place, tool in enumerate(hello.tools)]
    if len({tool.name for tool in tools}) < len(tools):
        fields.refuse("hello.tools", "A name is declared twice.")
    if hello.deciders:
        raise NotInThisRelease("A decider")
    fields.done()
    return Hello(
        tenant=caller.tenant,
        account=caller.id,
        host=hello.host,
        incarnation=Incarnation(hello.incarnation),
        tools=tuple(tools),
        capacity=hello.capacity,
        holding=frozenset(CallId(one) for one in hello.holding),
    )


def _results(messages: Iterable[pb.CallResult]) -> dict[CallId, Result]:
    return {CallId(message.call_id): _result(message) for message in messages}


def _result(message: pb.CallResult) -> Result:
    """Return what a host says of a call. An output that is not JSON, or too large, is that call's error (R12)."""
    match message.WhichOneof("outcome"):
        case "output_json":
            try:
                canonical_json.parse(message.output_json, limit_bytes=MOST_TEXT_BYTES)
            except JsonProblem as problem:
                return Result(Outcome.FAILED, f"The tool's output cannot be taken: {problem}")
            return Result(Outcome.RETURNED, message.output_json)
        case "error":
            return Result(Outcome.FAILED, message.error[: MOST_TEXT_BYTES // 4] or "The tool failed.")
        case "not_run":
            return Result(Outcome.NOT_RUN, "")
        case _:
            return Result(Outcome.FAILED, "The tool's host did not say what it returned.")


def _response(outgoing: Outgoing) -> pb.ServeResponse:
    if outgoing.taken:
        return pb.ServeResponse(taken=pb.ResultsTaken(call_ids=outgoing.taken))
    if outgoing.calls:
        return pb.ServeResponse(calls=pb.ToolCalls(calls=[_call(call) for call in outgoing.calls]))
    return pb.ServeResponse(cancelled=pb.CallsCancelled(call_ids=outgoing.cancelled))


def _call(call: SendCall) -> pb.ToolCall:
    deadline, begin_by = Timestamp(), Duration()
    deadline.FromDatetime(datetime.now(UTC) + timedelta(seconds=call.timeout_seconds))
    begin_by.FromNanoseconds(round(call.begin_by_seconds * 1_000_000_000))
    return pb.ToolCall(
        call_id=call.call_id,
        tool=call.tool,
        input_json=call.input_json,
        idempotency_key=call.idempotency_key,
        turn_id=call.turn_id,
        address=call.address,
        deadline=deadline,
        attempt=call.attempt,
        begin_by=begin_by,
    )
