"""Other replicas: what they did is found in rows, by looking; a notice only says "look now" (`runtime.md` R3.1, R6.6).

Invariants:
- Nothing is learnt from a notice but that there may be something new, and without any it is looked for every second.
- What a row asks of a host that is connected here is sent once for each session, and given up once nobody waits for it.
- Words reach the writers of turns that are held here from committed rows alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import structlog

from runtime_service.domain.approvals import Approval
from runtime_service.domain.calls import Call, Result
from runtime_service.domain.hosts import CallId, Incarnation
from runtime_service.domain.replicas import Held, Read, Seen, SessionElsewhere
from runtime_service.domain.turns import TurnId
from runtime_service.engine.host_session import SendCall, sent
from runtime_service.engine.hosts import Hosts, ReadLost
from runtime_service.engine.lease import Lease
from service_kit.errors import PartUnavailable

log = structlog.get_logger()

# How often it is looked where nobody says that there is something, and at most where somebody does.
POLL_SECONDS = 1.0
SOON_SECONDS = 0.02


class Rows(Protocol):
    """The store's side."""

    async def look(self, held: Held) -> Seen:
        """Look at what others did, in one snapshot."""
        ...

    async def ask(self, read: Read) -> None:
        """Write a read for the replica that holds its host's session."""
        ...

    async def forget(self, call_ids: Collection[CallId]) -> None:
        """Remove reads that nobody waits for any more."""
        ...


class Turns(Protocol):
    """Who holds turns here."""

    def held(self) -> Mapping[TurnId, int]:
        """Return the turns that are held here, with the number of each writer."""
        ...

    def hear(self, approvals: Sequence[Approval], calls: Sequence[Call], lost: Sequence[TurnId]) -> None:
        """Bring writers what was said of their turns elsewhere, and end those whose turn another writer took."""
        ...


class Elsewhere:
    """Looks at what other replicas did. `run` must be under way for anything to be seen."""

    def __init__(
        self, rows: Rows, hosts: Hosts, turns: Turns, lease: Lease, told: asyncio.Event, tell: Callable[[], None]
    ) -> None:
        self._rows = rows
        self._hosts = hosts
        self._turns = turns
        self._lease = lease
        self._tell = tell
        self._reads: dict[CallId, tuple[SessionElsewhere, asyncio.Future[Result]]] = {}
        # Set where another replica says that there may be something.
        self._told = told
        hosts.read_elsewhere = self.read
        hosts.tell_replicas = tell
        hosts.look_again = told.set

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except PartUnavailable:
                log.warning("elsewhere.not_seen")
            except Exception:
                log.exception("elsewhere.look_failed")
            await asyncio.sleep(SOON_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._told.wait()
            self._told.clear()

    async def look(self) -> None:
        """Look once, and act on what is found."""
        sessions, in_hand = self._hosts.in_hand()
        held = Held(self._lease.process, sessions, in_hand, list(self._reads), self._turns.held())
        seen = await self._rows.look(held)
        self._hosts.see(seen.sessions)
        for call in seen.calls:
            self._send(sessions, call.incarnation, call.session, sent(call))
        for read in seen.reads:
            self._send(sessions, read.incarnation, read.session, _as_sent(read))
        self._hosts.give_up(seen.given_up, seen.settled)
        self._turns.hear(seen.approvals, seen.words, seen.lost)
        self._settle_reads(seen.results)

    async def read(self, session: SessionElsewhere, call: SendCall) -> Result:
        """Have a host elsewhere run a call that only looks. Raises `ReadLost`, `TimeoutError`."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._reads[call.call_id] = (session, future)
        try:
            async with asyncio.timeout(call.timeout_seconds):
                await self._rows.ask(_as_row(session, call, self._lease.process))
                self._tell()
                return await future
        finally:
            del self._reads[call.call_id]
            await self._forget(call.call_id)

    async def _forget(self, call_id: CallId) -> None:
        """Remove a read. Where its host was not done with it, it is told so once the row is gone."""
        try:
            await self._rows.forget([call_id])
        except PartUnavailable:
            log.warning("elsewhere.not_forgotten", call=call_id)
        self._tell()

    def _send(self, sessions: Mapping[Incarnation, int], incarnation: Incarnation, number: int, call: SendCall) -> None:
        if sessions.get(incarnation) == number:
            self._hosts.send_for_others(incarnation, number, call)

    def _settle_reads(self, results: Mapping[CallId, Result]) -> None:
        for call_id, (session, future) in self._reads.items():
            if future.done():
                continue
            if call_id in results:
                future.set_result(results[call_id])
            elif not self._hosts.is_there(session):
                future.set_exception(ReadLost(call_id))


def _as_row(session: SessionElsewhere, call: SendCall, process: str) -> Read:
    return Read(
        id=call.call_id,
        tenant=session.tenant,
        process=process,
        incarnation=session.incarnation,
        session=session.number,
        tool=call.tool,
        input_json=call.input_json,
        idempotency_key=call.idempotency_key,
        turn_id=TurnId(call.turn_id),
        address=call.address,
        attempt=call.attempt,
        timeout_seconds=call.timeout_seconds,
    )


def _as_sent(read: Read) -> SendCall:
    return SendCall(
        call_id=read.id,
        tool=read.tool,
        input_json=read.input_json,
        idempotency_key=read.idempotency_key,
        turn_id=read.turn_id,
        address=read.address,
        attempt=read.attempt,
        timeout_seconds=read.timeout_seconds,
        begin_by_seconds=0.0,
    )
