"""What watchers are shown: built from rows as they stand when they are sent, from a cursor on (`runtime.md` R11).

Invariants: nothing is shown before it is on disk; a stream that is opened again at its cursor shows every event since,
once, in order.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from itertools import groupby

from google.protobuf.timestamp_pb2 import Timestamp
from tutelage.runtime.v1 import approvals_pb2, journal_pb2, turns_pb2

from runtime_service.api import to_proto
from runtime_service.api.lookups import FeedLine, Lookups
from runtime_service.domain.addresses import path_of
from runtime_service.domain.approvals import Approval, is_put_to
from runtime_service.domain.journal import ApprovalAsked, Record, TurnEnded, What
from runtime_service.domain.lookups import ApprovalsWanted, Viewer
from runtime_service.domain.problems import NoSuchThing
from runtime_service.domain.turns import TurnId
from runtime_service.engine.words import Heard, Words
from service_kit.feeds import START, Bell, CursorCodec, Position
from service_kit.messages import within
from service_kit.streams import Streams

MOST_RECORDS = 200
MOST_NEWS = 200
MOST_WAITING_BYTES = 2 * 1024 * 1024
MOST_SHOWN_WITH_A_TURN = 200


def waiting_events(approvals: Sequence[Approval]) -> list[approvals_pb2.Waiting]:
    """Return what a turn asks, in as many events as their size needs."""
    left = [to_proto.approval(one) for one in approvals]
    events = []
    while left:
        shown = within(left, MOST_WAITING_BYTES)
        events.append(approvals_pb2.Waiting(turn_id=shown[0].turn_id, approvals=shown))
        left = left[len(shown) :]
    return events


def bookmark(*, caught_up: bool) -> approvals_pb2.Bookmark:
    """Return a mark of a place in a stream."""
    now = Timestamp()
    now.GetCurrentTime()
    return approvals_pb2.Bookmark(caught_up=caught_up, time=now)


class TurnWatch:
    """One watcher of one turn.

    A place in the stream is a line of the journal, whether what follows from it was told (a question, the end), and how
    far the feed of interruptions was read.
    """

    def __init__(
        self, lookups: Lookups, viewer: Viewer, turn_id: TurnId, words: Words, cursors: CursorCodec, cursor: str
    ) -> None:
        self._lookups = lookups
        self._words = words
        self._viewer = viewer
        self._turn_id = turn_id
        self._cursors = cursors
        self._key = f"turn\0{turn_id}"
        self._stopped_at, place = cursors.decode(cursor, self._key) if cursor else (START, 1)
        self._line, self._told = place // 2, bool(place % 2)
        # The questions asked together up to this line that were not told yet.
        self._asked: list[str] = []
        self._last: What | None = None
        # What models write while this watch is open.
        self._heard = Heard()

    async def events(
        self, streams: Streams, bell: Bell, expires_at: datetime, *, ends_by_itself: bool = True
    ) -> AsyncIterator[turns_pb2.TurnEvent]:
        """Yield the turn's events until it ends, or the stream has had its time, where it has one."""
        with self._words.listen(self._turn_id) as self._heard:
            async with aclosing(self._following(streams, bell, expires_at, ends_by_itself)) as events:
                async for event in events:
                    yield event
                    if event.WhichOneof("event") == "ended":
                        return

    async def _following(
        self, streams: Streams, bell: Bell, expires_at: datetime, ends_by_itself: bool
    ) -> AsyncGenerator[turns_pb2.TurnEvent, None]:
        await self._recall()
        following = streams.follow(
            bell,
            f"turn:{self._turn_id}",
            self._look,
            bookmark=self._bookmark,
            expires_at=expires_at,
            ends_by_itself=ends_by_itself,
        )
        async with aclosing(following) as events:
            async for event in events:
                yield event

    async def _recall(self) -> None:
        """Find again what stands at the line where the stream begins, and what was asked together with it."""
        place = self._line
        for record in await self._lookups.records(self._turn_id, place - MOST_RECORDS, MOST_RECORDS):
            if record.line <= place:
                self._take(record)

    def _take(self, record: Record) -> None:
        self._line, self._last = record.line, record.what
        if isinstance(record.what, ApprovalAsked):
            self._asked.append(record.what.approval_id)
        else:
            self._asked = []

    async def _look(self) -> tuple[list[turns_pb2.TurnEvent], bool]:
        """Return what is new. Interruptions stand where the journal stood when they came."""
        page, stopped = await self._lookups.turn_news(self._turn_id, self._line, self._stopped_at, MOST_RECORDS)
        stops = list(stopped)
        events: list[turns_pb2.TurnEvent] = []
        for record in page:
            events += self._written()
            await self._tell_what_follows(record, stops, events)
            self._take(record)
            self._told = False
            events.append(self._event(record=to_proto.record(record)))
        cut = len(page) == MOST_RECORDS
        if not cut:
            await self._tell_what_follows(None, stops, events)
            events += self._written()
        return events, cut

    def _written(self) -> list[turns_pb2.TurnEvent]:
        """Return what models wrote behind the line where the watch stands: without a cursor, as nothing keeps it."""
        return [
            turns_pb2.TurnEvent(
                text=turns_pb2.TextDelta(path=path_of(piece.address), address=piece.address, text=piece.text)
            )
            for piece in self._heard.take(self._line)
        ]

    async def _tell_what_follows(
        self, following: Record | None, stops: list[FeedLine], events: list[turns_pb2.TurnEvent]
    ) -> None:
        """Tell what follows from the line where the watch stands: the question, once all asked together is there;
        the end; and each stop that came before the next line.
        """
        if not self._told and not (following and self._asked and isinstance(following.what, ApprovalAsked)):
            self._told = True
            if self._asked:
                found = await self._lookups.approvals_by_id(self._viewer, self._asked)
                asked = waiting_events(sorted(found, key=lambda one: one.seq))
                events += [self._event(waiting=one) for one in asked]
            elif isinstance(self._last, TurnEnded) and (turn := await self._turn()).state in _ENDED:
                events.append(self._event(ended=turn))
        while stops and (following is None or int(stops[0].detail) < following.line):
            self._stopped_at = stops.pop(0).position
            events.append(self._event(interrupted=await self._turn()))

    async def _turn(self) -> turns_pb2.Turn:
        turn = await self._lookups.turn(self._viewer, self._turn_id)
        if turn is None:
            raise NoSuchThing("turn", self._turn_id)
        [detail] = await self._lookups.turn_details([turn], most_waiting=MOST_SHOWN_WITH_A_TURN)
        return to_proto.turn(detail)

    def _event(
        self,
        *,
        record: journal_pb2.Record | None = None,
        waiting: approvals_pb2.Waiting | None = None,
        ended: turns_pb2.Turn | None = None,
        interrupted: turns_pb2.Turn | None = None,
        bookmark: approvals_pb2.Bookmark | None = None,
    ) -> turns_pb2.TurnEvent:
        return turns_pb2.TurnEvent(
            cursor=self._cursors.encode(self._stopped_at, self._key, self._line * 2 + self._told),
            record=record,
            waiting=waiting,
            ended=ended,
            interrupted=interrupted,
            bookmark=bookmark,
        )

    def _bookmark(self) -> turns_pb2.TurnEvent:
        return self._event(bookmark=bookmark(caught_up=True))


_ENDED = (
    turns_pb2.TURN_STATE_DONE,
    turns_pb2.TURN_STATE_FAILED,
    turns_pb2.TURN_STATE_ABANDONED,
)


class ApprovalWatch:
    """One watcher of what waits. Without a cursor: all that waits now, then a bookmark, then the feed from there."""

    def __init__(
        self, lookups: Lookups, viewer: Viewer, wanted: ApprovalsWanted, cursors: CursorCodec, cursor: str
    ) -> None:
        self._lookups = lookups
        self._viewer = viewer
        self._wanted = wanted
        self._cursors = cursors
        self._key = f"approvals\0{viewer.tenant}\0{viewer.account}\0{wanted}"
        self._position = cursors.decode(cursor, self._key)[0] if cursor else None

    async def events(
        self, streams: Streams, bell: Bell, expires_at: datetime
    ) -> AsyncIterator[approvals_pb2.WatchApprovalsResponse]:
        """Yield what waits and what becomes of it, until the stream has had its time."""
        if self._position is None:
            async with aclosing(self._all_that_waits()) as waiting:
                async for event in waiting:
                    yield event
            yield self._bookmark()
        topic = f"feed:approvals:{self._viewer.tenant}"
        following = streams.follow(bell, topic, self._look, bookmark=self._bookmark, expires_at=expires_at)
        async with aclosing(following) as events:
            async for event in events:
                yield event

    async def _all_that_waits(self) -> AsyncGenerator[approvals_pb2.WatchApprovalsResponse, None]:
        """Yield what waited when the first page was read; what came after is in the feed behind its horizon."""
        after: int | None = None
        told_to: Position | None = None
        while True:
            shown, told_to = await self._lookups.waiting_now(self._viewer, self._wanted, after, MOST_NEWS, told_to)
            for _, asked in groupby(shown, key=lambda one: one.turn_id):
                for waiting in waiting_events(list(asked)):
                    yield approvals_pb2.WatchApprovalsResponse(waiting=waiting)
            if len(shown) < MOST_NEWS:
                break
            after = shown[-1].seq
        self._position = told_to

    async def _look(self) -> tuple[list[approvals_pb2.WatchApprovalsResponse], bool]:
        """Return what is new, approvals as they stand now. What asks together is told together."""
        assert self._position is not None
        news = await self._lookups.approval_news(self._viewer.tenant, self._position, MOST_NEWS)
        found = await self._lookups.approvals_by_id(self._viewer, {line.subject for line in news})
        seen = {one.id: one for one in found if self._matches(one)}
        events = []
        for (kind, _), lines in groupby(news, key=lambda line: (line.kind, line.detail)):
            together = list(lines)
            if kind == "waiting":
                about = [seen[line.subject] for line in together if line.subject in seen]
                self._position = together[-1].position
                events += [self._event(waiting=one) for one in waiting_events(about)]
            else:
                events += self._one_by_one(kind, together, seen)
        return events, len(news) == MOST_NEWS

    def _one_by_one(
        self, kind: str, lines: Sequence[FeedLine], seen: Mapping[str, Approval]
    ) -> list[approvals_pb2.WatchApprovalsResponse]:
        events = []
        for line in lines:
            self._position = line.position
            if line.subject not in seen:
                continue
            approval = to_proto.approval(seen[line.subject])
            if kind == "outcome":
                events.append(self._event(outcome=approvals_pb2.ApprovalOutcome(approval=approval)))
            else:
                events.append(self._event(settled=approvals_pb2.ApprovalSettled(approval=approval)))
        return events

    def _matches(self, approval: Approval) -> bool:
        wanted = self._wanted
        narrowed = (
            (wanted.agent, approval.agent),
            (wanted.conversation_id, approval.conversation_id),
            (wanted.turn_id, approval.turn_id),
            (wanted.tool, approval.tool),
        )
        if any(want and want != has for want, has in narrowed):
            return False
        return not wanted.put_to_me or is_put_to(approval.put_to, self._viewer.account, self._viewer.roles)

    def _event(
        self,
        *,
        waiting: approvals_pb2.Waiting | None = None,
        settled: approvals_pb2.ApprovalSettled | None = None,
        outcome: approvals_pb2.ApprovalOutcome | None = None,
        bookmark: approvals_pb2.Bookmark | None = None,
    ) -> approvals_pb2.WatchApprovalsResponse:
        return approvals_pb2.WatchApprovalsResponse(
            cursor=self._cursors.encode(self._position or START, self._key),
            waiting=waiting,
            settled=settled,
            outcome=outcome,
            bookmark=bookmark,
        )

    def _bookmark(self) -> approvals_pb2.WatchApprovalsResponse:
        return self._event(bookmark=bookmark(caught_up=True))
