"""`TeachingEventService`: what happens, built from rows as they stand when they are sent (T9, `runtime.md` R11).

Invariants: nothing is shown before it is on disk; a stream that is opened again at its cursor shows every event since,
once, in order.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import Any

from tutelage.teaching.v1 import events_pb2 as pb
from tutelage.teaching.v1 import events_pb2_grpc

from service_kit.feeds import START, Bell, CursorCodec
from service_kit.identity import Caller, current_caller
from service_kit.streams import Streams
from teaching_service.api import access, to_proto
from teaching_service.api.lookups import Lookups
from teaching_service.domain.corrections import Correction
from teaching_service.domain.instructions import Instruction
from teaching_service.domain.lookups import News
from teaching_service.domain.sets import InstructionSet

MOST_NEWS = 200


def topic(tenant: str) -> str:
    """Return what the bell is rung by for a tenant."""
    return f"feed:teaching:{tenant}"


class TeachingEventService(events_pb2_grpc.TeachingEventServiceServicer):
    """What happens, as it happens."""

    def __init__(self, lookups: Lookups, streams: Streams, bell: Bell, cursors: CursorCodec) -> None:
        self._lookups = lookups
        self._streams = streams
        self._bell = bell
        self._cursors = cursors

    async def WatchTeaching(
        self, request: pb.WatchTeachingRequest, context: Any
    ) -> AsyncIterator[pb.WatchTeachingResponse]:
        caller = current_caller()
        watch = TeachingWatch(self._lookups, caller, request.agent, self._cursors, request.cursor)
        async with aclosing(watch.events(self._streams, self._bell, caller.expires_at)) as events:
            async for event in events:
                yield event


class TeachingWatch:
    """One watcher. Without a cursor: a bookmark first, which says where the stream begins."""

    def __init__(self, lookups: Lookups, caller: Caller, agent: str, cursors: CursorCodec, cursor: str) -> None:
        self._lookups = lookups
        self._viewer = access.viewer(caller)
        self._reads_instructions = access.reads_instructions(caller)
        self._agent = agent
        self._cursors = cursors
        self._key = f"teaching\0{caller.tenant}\0{caller.id}\0{agent}"
        self._position = cursors.decode(cursor, self._key)[0] if cursor else None

    async def events(
        self, streams: Streams, bell: Bell, expires_at: datetime
    ) -> AsyncGenerator[pb.WatchTeachingResponse, None]:
        """Yield what happens, until the stream has had its time."""
        if self._position is None:
            self._position = await self._lookups.horizon()
            yield self._bookmark()
        following = streams.follow(
            bell, topic(self._viewer.tenant), self._look, bookmark=self._bookmark, expires_at=expires_at
        )
        async with aclosing(following) as events:
            async for event in events:
                yield event

    async def _look(self) -> tuple[list[pb.WatchTeachingResponse], bool]:
        assert self._position is not None
        news = await self._lookups.news(self._viewer, self._position, MOST_NEWS)
        events = []
        for self._position, about in news:
            event = self._event(about)
            if event is not None:
                events.append(event)
        return events, len(news) == MOST_NEWS

    def _event(self, about: News) -> pb.WatchTeachingResponse | None:
        event = pb.WatchTeachingResponse(cursor=self._cursor())
        match about:
            case Correction() as one if self._wants(one.agent):
                event.work_corrected.CopyFrom(to_proto.correction(one))
            case Instruction() as one if self._wants(one.says.agent) and self._reads_instructions:
                event.instruction_proposed.CopyFrom(to_proto.instruction(one))
            case InstructionSet() as one if self._wants(one.agent) and self._reads_instructions:
                event.instructions_changed.CopyFrom(to_proto.instruction_set(one))
            case _:
                return None
        return event

    def _wants(self, agent: str) -> bool:
        return self._agent in ("", agent)

    def _cursor(self) -> str:
        return self._cursors.encode(self._position or START, self._key)

    def _bookmark(self) -> pb.WatchTeachingResponse:
        return pb.WatchTeachingResponse(cursor=self._cursor(), bookmark=pb.EventBookmark())
