"""Tool hosts that are connected here: their sessions, what they are sent, what they say (`runtime.md` R6.6).

Invariants:
- A session is closed once a later `hello` of its incarnation was read.
- A call that changes things is in its row, with its session, before it comes here.
- `taken` names a result only once it is on disk, or once nobody needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import structlog

from runtime_service.domain.calls import Call, Outcome, Result
from runtime_service.domain.effects import Declaration
from runtime_service.domain.hosts import CallId, Hello, Incarnation
from runtime_service.domain.replicas import SessionElsewhere
from runtime_service.domain.turns import Turn
from runtime_service.engine.committer import Committer
from runtime_service.engine.host_session import HostSession, SendCall, sent
from runtime_service.engine.lease import Lease
from runtime_service.engine.units.hosts import EndSession, Opened, OpenSession, TakeResults

log = structlog.get_logger()


class ReadLost(Exception):
    """The session that a read was sent to has gone: it runs again, for it changes nothing."""


class ReplicaRows(Protocol):
    """The store's side: rows by which replicas tell each other."""

    async def answer(self, incarnation: Incarnation, results: Mapping[CallId, Result]) -> None:
        """Write what a host said of reads: whoever asked finds it. Those that nobody asks any more are passed over."""
        ...


class Hosts:
    """The hosts connected here, and what is known of those that are connected to other replicas.

    `rows` is None where there are no other replicas.
    """

    def __init__(
        self, committer: Committer, lease: Lease, rows: ReplicaRows | None = None, *, reconnect_seconds: float
    ) -> None:
        self._committer = committer
        self._lease = lease
        self.reconnect_seconds = reconnect_seconds
        self._rows = rows
        self._sessions: dict[Incarnation, HostSession] = {}
        self._elsewhere: dict[Incarnation, SessionElsewhere] = {}
        # Sends a read to a host elsewhere, and tells other replicas that there are rows for them.
        self.read_elsewhere: Callable[[SessionElsewhere, SendCall], Awaitable[Result]] | None = None
        self.tell_replicas: Callable[[], None] = _nobody
        # Looks at the rows again, where one had to wait because its host was busy.
        self.look_again: Callable[[], None] = _nobody
        self._held_back = False
        # What hosts here hold, for turns of any replica: rows tell when nobody waits for it any more.
        self._followed: dict[CallId, Incarnation] = {}
        # When an incarnation that was connected here went, by the monotonic clock.
        self._gone_at: dict[Incarnation, float] = {}
        # When a tool was last offered here, by tenant, name and declaration.
        self._offered_at: dict[tuple[str, str, str], float] = {}
        self._began_at = time.monotonic()
        self._reads: dict[CallId, tuple[HostSession, asyncio.Future[Result]]] = {}
        self._changed = asyncio.Event()
        # Told of every host that connected, with the tenant and the tools it offers.
        self.on_arrival: list[Callable[[str, Iterable[str]], None]] = []
        lease.on_lapse.append(self.close_all)

    async def open(self, hello: Hello) -> HostSession:
        """Begin the incarnation's next session, end the one before it, and send what never arrived."""
        heard_at = time.monotonic()
        if (earlier := self._sessions.get(hello.incarnation)) is not None and _owner(earlier.hello) == _owner(hello):
            self._drop(earlier)
        opened = await self._opened(hello)
        if (meanwhile := self._sessions.get(hello.incarnation)) is not None:
            # A hello that was read before this one, and whose session began while this one waited.
            self._drop(meanwhile)
        session = HostSession(hello, opened.session.number, self._lease, heard_at, self.reconnect_seconds / 2)
        self._sessions[hello.incarnation] = session
        self._gone_at.pop(hello.incarnation, None)
        self._follow([*hello.holding, *(call.id for call in opened.moved)], hello.incarnation)
        for call in opened.moved:
            session.send(sent(call))
        log.info(
            "host.connected",
            host=hello.host,
            incarnation=hello.incarnation,
            session=session.number,
            tools=len(hello.tools),
            sent_again=len(opened.moved),
        )
        self._tell_changed()
        for told in self.on_arrival:
            told(hello.tenant, session.offers)
        return session

    async def _opened(self, hello: Hello) -> Opened:
        """Begin a session in its row, again where the lease lapsed meanwhile: with it that session has ended."""
        process = ""
        while process != self._lease.process:
            process = self._lease.process
            opened = await self._committer.commit(OpenSession(hello=hello, process=process))
        return opened

    async def close(self, session: HostSession) -> None:
        """End a session whose stream broke, or whose host left."""
        self._drop(session)
        await self._committer.commit(EndSession(session.hello.incarnation, session.number))

    def close_all(self) -> None:
        """End every session here at once: their hosts connect again."""
        for session in list(self._sessions.values()):
            self._drop(session)

    def drain(self, session: HostSession) -> None:
        """Send it no more calls."""
        session.draining = True

    async def results(
        self, incarnation: Incarnation, tenant: str, account: str, results: Mapping[CallId, Result]
    ) -> Sequence[CallId]:
        """Take what a host says of calls, on disk; return those that it settled. Reads are settled in memory.

        The host is told that it may forget the rest too: they had been settled before, or nobody needs them.
        """
        settled = {
            call_id
            for call_id, result in results.items()
            if self._settle_read(call_id, (tenant, account, incarnation), result)
        }
        rest = {call_id: result for call_id, result in results.items() if call_id not in settled}
        if rest:
            taken = await self._committer.commit(TakeResults(incarnation, tenant, account, rest))
            if self._rows is not None and (others := rest.keys() - taken):
                await self._rows.answer(incarnation, {call_id: rest[call_id] for call_id in others})
            self.taken(incarnation, rest)
            self.tell_replicas()
            return taken
        return []

    def taken(self, incarnation: Incarnation, call_ids: Iterable[CallId]) -> None:
        """Tell the incarnation, where it is connected, that it may forget results."""
        session = self._sessions.get(incarnation)
        for call_id in call_ids:
            self._followed.pop(call_id, None)
            if session is not None:
                session.taken(call_id)
        if self._held_back:
            self._held_back = False
            self.look_again()
        self._tell_changed()

    def session_for(self, tenant: str, tool: str, declaration_hash: str) -> HostSession | SessionElsewhere | None:
        """Return the least busy session here that offers a tool by this declaration and has room, or any elsewhere."""
        offering = [
            session
            for session in self._sessions.values()
            if session.hello.tenant == tenant
            and tool in session.offers
            and session.offers[tool].hash == declaration_hash
            and session.takes_more
        ]
        if offering:
            return min(offering, key=lambda session: len(session.held))
        others = [
            session
            for session in self._elsewhere.values()
            if session.tenant == tenant and tool in session.offers and session.offers[tool].hash == declaration_hash
        ]
        return random.choice(others) if others else None  # noqa: S311

    def offers(self, tenant: str, tool: str) -> list[Declaration]:
        """Return the declarations by which connected hosts offer a tool, the newest host's first."""
        return [
            session.offers[tool]
            for session in self._everywhere(newest_first=True)
            if session.tenant == tenant and tool in session.offers
        ]

    def offered(self, tenant: str) -> Mapping[str, Declaration]:
        """Return every tool that is on offer, by name, as the newest host declares it."""
        return {
            name: declaration
            for session in self._everywhere(newest_first=False)
            if session.tenant == tenant
            for name, declaration in session.offers.items()
        }

    def _everywhere(self, *, newest_first: bool) -> list[HostSession | SessionElsewhere]:
        """Return all sessions: those here first, or last."""
        sessions: list[HostSession | SessionElsewhere] = [*self._elsewhere.values(), *self._sessions.values()]
        return sessions[::-1] if newest_first else sessions

    def seconds_to_wait(self, tenant: str, tool: str, declaration_hash: str) -> float:
        """Return for how much longer a host of a tool is waited for: 0 once `reconnect_within` has passed."""
        seen_at = self._offered_at.get((tenant, tool, declaration_hash), self._began_at)
        return max(0.0, seen_at + self.reconnect_seconds - time.monotonic())

    async def changed(self, seconds: float) -> None:
        """Wait until a host comes, goes, or can take more; at most so long."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def is_connected(self, incarnation: Incarnation) -> bool:
        """Whether the incarnation is connected, here or elsewhere."""
        return incarnation in self._sessions or incarnation in self._elsewhere

    def holds(self, incarnation: Incarnation, call_id: CallId) -> bool:
        """Whether a connected incarnation was sent a call whose result is not taken yet. Elsewhere: whether it may."""
        session = self._sessions.get(incarnation)
        return call_id in session.held if session is not None else incarnation in self._elsewhere

    def seconds_to_return(self, incarnation: Incarnation) -> float:
        """Return for how much longer an incarnation that went is waited for (R6.6)."""
        gone_at = self._gone_at.get(incarnation, self._began_at)
        return max(0.0, gone_at + self.reconnect_seconds - time.monotonic())

    def send_once_started(
        self, session: HostSession | SessionElsewhere, call: Call, started: asyncio.Future[Turn]
    ) -> None:
        """Send a call once its row, which names this session, is on disk, whoever still waits for that.

        Its place at the host is kept from now on. A session that ended meanwhile sends nothing: the next hello does.
        One that is held elsewhere is sent it there, by the row.
        """
        if isinstance(session, SessionElsewhere):
            started.add_done_callback(lambda _: self.tell_replicas())
            return
        session.hold(call.id)
        started.add_done_callback(partial(self._started, session, call))

    def _started(self, session: HostSession, call: Call, started: asyncio.Future[Turn]) -> None:
        if started.cancelled() or started.exception() is not None:
            session.held.discard(call.id)
            self._tell_changed()
        elif self._sessions.get(session.hello.incarnation) is session:
            self._follow([call.id], session.incarnation)
            session.send(sent(call))

    async def read(self, session: HostSession | SessionElsewhere, call: SendCall) -> Result:
        """Send a call that only looks and return what came of it. Raises `ReadLost`, `TimeoutError`."""
        if isinstance(session, SessionElsewhere):
            assert self.read_elsewhere is not None
            return await self.read_elsewhere(session, call)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._reads[call.call_id] = (session, future)
        try:
            session.send(call)
            async with asyncio.timeout(call.timeout_seconds):
                return await future
        except (TimeoutError, asyncio.CancelledError):
            if future.cancelled() or not future.done():
                self.cancel(session.hello.incarnation, call.call_id)
            else:
                # Its result came in the same moment, and nobody is left to keep it.
                self.taken(session.hello.incarnation, [call.call_id])
            raise
        finally:
            self._reads.pop(call.call_id, None)

    def cancel(self, incarnation: Incarnation, call_id: CallId) -> None:
        """Tell the incarnation, where it is connected, that nobody waits for a call any more."""
        self._followed.pop(call_id, None)
        if (session := self._sessions.get(incarnation)) is not None and call_id in session.held:
            session.cancel(call_id)

    def _settle_read(self, call_id: CallId, reporter: tuple[str, str, Incarnation], result: Result) -> bool:
        """Settle a read, where it is one that was sent to whoever reports it."""
        session, future = self._reads.get(call_id, (None, None))
        if session is None or future is None or _owner(session.hello) != reporter or future.cancelled():
            return False
        if not future.done():
            future.set_result(result)
        if result.outcome is Outcome.NOT_RUN:
            self.taken(session.hello.incarnation, [call_id])
        return True

    def _drop(self, session: HostSession) -> None:
        session.close()
        if self._sessions.get(session.hello.incarnation) is session:
            del self._sessions[session.hello.incarnation]
            self._went(session)
        for call_id, (holder, future) in list(self._reads.items()):
            if holder is session and not future.done():
                future.set_exception(ReadLost(call_id))
        self._tell_changed()

    def _went(self, session: HostSession | SessionElsewhere) -> None:
        """Remember when a host went, and until when its tools were on offer."""
        now = time.monotonic()
        # One that went longer ago counts as gone since the start, which comes to the same.
        self._gone_at = {one: at for one, at in self._gone_at.items() if at + self.reconnect_seconds > now}
        self._gone_at[session.incarnation] = now
        for tool, declaration in session.offers.items():
            self._offered_at[(session.tenant, tool, declaration.hash)] = now

    # Other replicas

    def in_hand(self) -> tuple[Mapping[Incarnation, int], Sequence[CallId]]:
        """Return the sessions here by their number, and what they hold that rows tell of, as a look at those begins."""
        for session in self._sessions.values():
            session.lately = set(session.held)
        return {session.incarnation: session.number for session in self._sessions.values()}, list(self._followed)

    def see(self, sessions: Iterable[SessionElsewhere]) -> None:
        """Take in which hosts are connected elsewhere. One that began anew there is no longer connected here."""
        now = {session.incarnation: session for session in sessions if not self._is_newer_here(session)}
        before, self._elsewhere = self._elsewhere, now
        for incarnation in now.keys() & self._sessions.keys():
            self._drop(self._sessions[incarnation])
        for incarnation, session in before.items():
            if incarnation not in now and incarnation not in self._sessions:
                self._went(session)
        for incarnation, session in now.items():
            self._gone_at.pop(incarnation, None)
            if incarnation not in before or before[incarnation].number != session.number:
                for told in self.on_arrival:
                    told(session.tenant, session.offers)
        if {(one.incarnation, one.number) for one in before.values()} != {
            (one.incarnation, one.number) for one in now.values()
        }:
            self._tell_changed()

    def is_there(self, session: SessionElsewhere) -> bool:
        """Whether that session runs still, as far as was seen."""
        seen = self._elsewhere.get(session.incarnation)
        return seen is not None and seen.number == session.number

    def send_for_others(self, incarnation: Incarnation, number: int, call: SendCall) -> None:
        """Send what a row asks of a session here, once."""
        session = self._sessions.get(incarnation)
        if session is None or session.number != number or call.call_id in session.lately:
            return
        if session.has_room:
            self._follow([call.call_id], incarnation)
            session.send(call)
        else:
            self._held_back = True

    def give_up(self, call_ids: Iterable[CallId], settled: Iterable[CallId]) -> None:
        """Tell hosts here of what nobody waits for any more, and forget what has come to its end."""
        for call_id in settled:
            self._followed.pop(call_id, None)
        for call_id in call_ids:
            if (incarnation := self._followed.pop(call_id, None)) is not None:
                self.cancel(incarnation, call_id)

    def _follow(self, call_ids: Iterable[CallId], incarnation: Incarnation) -> None:
        if self._rows is not None:
            self._followed |= dict.fromkeys(call_ids, incarnation)

    def _is_newer_here(self, session: SessionElsewhere) -> bool:
        here = self._sessions.get(session.incarnation)
        return here is not None and here.number > session.number

    def _tell_changed(self) -> None:
        self._changed.set()


def _nobody() -> None:
    """There are no other replicas to tell."""


def _owner(hello: Hello) -> tuple[str, str, Incarnation]:
    return hello.tenant, hello.account, hello.incarnation
