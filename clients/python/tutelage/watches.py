"""Watches that go on where their stream broke.

A service ends its watches now and then, is restarted, or is away for an hour. A watch is opened again at
the cursor of the last event that was handed out, so the caller gets each event once and in order
(`runtime.md` R11). Only what no later try can mend is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol, TypeVar

from tutelage.channel import pause_before
from tutelage.errors import TutelageError
from tutelage.runtime.v1.approvals_pb2 import ApprovalFilter, WatchApprovalsRequest, WatchApprovalsResponse
from tutelage.runtime.v1.turns_pb2 import TurnEvent, WatchTurnRequest, WatchTurnResponse
from tutelage.teaching.v1.events_pb2 import WatchTeachingRequest, WatchTeachingResponse

if TYPE_CHECKING:
    from tutelage.runtime.v1.approvals_pb2_grpc import ApprovalServiceAsyncStub
    from tutelage.runtime.v1.turns_pb2_grpc import TurnServiceAsyncStub
    from tutelage.teaching.v1.events_pb2_grpc import TeachingEventServiceAsyncStub

LONGEST_PAUSE_SECONDS = 5.0

Message = TypeVar("Message", covariant=True)


class _Stream(Protocol[Message]):
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def cancel(self) -> bool: ...


async def watched_turn(turns: TurnServiceAsyncStub, turn_id: str, cursor: str) -> AsyncGenerator[TurnEvent, None]:
    """Yield a turn's events until `ended`."""

    def opened() -> _Stream[WatchTurnResponse]:
        return turns.WatchTurn(WatchTurnRequest(turn_id=turn_id, cursor=cursor))

    async with aclosing(_reopened(opened)) as responses:
        async for response in responses:
            # Text is not kept, so it has no cursor of its own: the one before it holds.
            cursor = response.event.cursor or cursor
            yield response.event
            if response.event.HasField("ended"):
                return


async def watched_approvals(
    approvals: ApprovalServiceAsyncStub, filter: ApprovalFilter | None, cursor: str
) -> AsyncGenerator[WatchApprovalsResponse, None]:
    """Yield what waits and what becomes of it."""

    def opened() -> _Stream[WatchApprovalsResponse]:
        return approvals.WatchApprovals(WatchApprovalsRequest(filter=filter, cursor=cursor))

    async with aclosing(_reopened(opened)) as responses:
        async for response in responses:
            cursor = response.cursor or cursor
            yield response


async def watched_teaching(
    events: TeachingEventServiceAsyncStub, agent: str, cursor: str
) -> AsyncGenerator[WatchTeachingResponse, None]:
    """Yield what is corrected, proposed and changed."""

    def opened() -> _Stream[WatchTeachingResponse]:
        return events.WatchTeaching(WatchTeachingRequest(agent=agent, cursor=cursor))

    async with aclosing(_reopened(opened)) as responses:
        async for response in responses:
            cursor = response.cursor or cursor
            yield response


async def _reopened(opened: Callable[[], _Stream[Message]]) -> AsyncGenerator[Message, None]:
    """Yield what each stream brings, one stream after the other; pause between those that brought nothing."""
    silent = 0
    while True:
        stream = opened()
        try:
            async for message in stream:
                silent = 0
                yield message
        except TutelageError as error:
            if not error.passing:
                raise
        finally:
            stream.cancel()
        await asyncio.sleep(pause_before(silent, LONGEST_PAUSE_SECONDS))
        silent += 1
