"""A host's session: what its stream is sent next, each message as the lease allows it (`runtime.md` R6.6).

Invariants:
- Nothing is sent over a session that was closed, nor a call while this process's lease is short: both are looked at
  before each message.
- What waits to be sent is bounded: a host that does not read loses its stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass, field, replace

import structlog

from runtime_service.domain.calls import Call
from runtime_service.domain.hosts import CallId, Hello, Incarnation
from runtime_service.engine.lease import Lease

log = structlog.get_logger()

# A host that lets so much lie unread has stopped reading: its stream is given up.
MOST_UNREAD = 10_000
# What one message has at most, well below the 3 MiB that it may have (R12).
MOST_CALLS_AT_ONCE = 200
MOST_INPUT_BYTES_AT_ONCE = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SendCall:
    """A call to run, and until when it may begin: seconds since the host sent this session's `hello`."""

    call_id: CallId
    tool: str
    input_json: str
    idempotency_key: str
    turn_id: str
    address: str
    attempt: int
    timeout_seconds: float
    begin_by_seconds: float


@dataclass(slots=True)
class Outgoing:
    """What a session is sent next: one message's worth, of one kind."""

    calls: list[SendCall] = field(default_factory=list)
    cancelled: list[CallId] = field(default_factory=list)
    taken: list[CallId] = field(default_factory=list)


def sent(call: Call) -> SendCall:
    """Return a call's row as it is sent."""
    return SendCall(
        call_id=call.id,
        tool=call.tool,
        input_json=call.input_json,
        idempotency_key=call.idempotency_key,
        turn_id=call.turn_id,
        address=call.address,
        attempt=call.attempt,
        timeout_seconds=call.timeout_seconds,
        begin_by_seconds=0.0,
    )


class HostSession:
    """One stream of one host."""

    def __init__(self, hello: Hello, number: int, lease: Lease, heard_at: float, begin_within: float) -> None:
        self.hello = hello
        self.number = number
        self.offers = {declaration.name: declaration for declaration in hello.tools}
        self.held: set[CallId] = set(hello.holding)
        # With what was taken since the last look at the rows began: those say of none of them that it is to be sent.
        self.lately: set[CallId] = set(hello.holding)
        self.draining = False
        self.closed = False
        self._lease = lease
        self._heard_at = heard_at
        self._begin_within = begin_within
        self._calls: deque[SendCall] = deque()
        self._cancelled: list[CallId] = []
        self._taken: list[CallId] = []
        self._came = asyncio.Event()

    @property
    def takes_more(self) -> bool:
        """Whether it may be given another call."""
        return self.has_room and not self.draining

    @property
    def has_room(self) -> bool:
        """Whether it may be sent a call that it was given elsewhere: one that drains says that it did not run."""
        return not self.closed and len(self.held) < (self.hello.capacity or 100)

    @property
    def tenant(self) -> str:
        """Whose host it is."""
        return self.hello.tenant

    @property
    def host(self) -> str:
        """What its host calls itself."""
        return self.hello.host

    @property
    def incarnation(self) -> Incarnation:
        """The run of its host's process."""
        return self.hello.incarnation

    def hold(self, call_id: CallId) -> None:
        """Count a call as the host's until its result is taken."""
        self.held.add(call_id)
        self.lately.add(call_id)

    def send(self, call: SendCall) -> None:
        """Send a call, as soon as the lease allows."""
        self.hold(call.call_id)
        self._calls.append(call)
        self._bounded()

    def cancel(self, call_id: CallId) -> None:
        """Say that nobody waits for a call any more. One that was not sent yet is not sent."""
        unsent = [call for call in self._calls if call.call_id != call_id]
        if len(unsent) < len(self._calls):
            self._calls = deque(unsent)
            self.held.discard(call_id)
            return
        self._cancelled.append(call_id)
        self._bounded()

    def taken(self, call_id: CallId) -> None:
        """Say that the host may forget a result."""
        self.held.discard(call_id)
        self._taken.append(call_id)
        self._bounded()

    def close(self) -> None:
        """Send nothing more."""
        self.closed = True
        self._came.set()

    async def outgoing(self) -> Outgoing | None:
        """Wait for what is to be sent; None once the session is closed. To be sent at once.

        Calls are held back while too little of the lease is left; the rest is not.
        """
        while True:
            if self.closed:
                return None
            if (out := self._take()) is not None:
                return out
            self._came.clear()
            # Calls that are held back are looked at again as the lease is kept, at the latest within a second.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0 if self._calls else None):
                    await self._came.wait()

    def _take(self) -> Outgoing | None:
        if self._taken:
            taken, self._taken = self._taken, []
            return Outgoing(taken=taken)
        if self._calls and self._lease.good:
            return Outgoing(calls=self._due())
        if self._cancelled:
            cancelled, self._cancelled = self._cancelled, []
            return Outgoing(cancelled=cancelled)
        return None

    def _due(self) -> list[SendCall]:
        """Return as many calls as one message has, with what is left of the time in which they may begin."""
        begin_by = time.monotonic() - self._heard_at + self._begin_within
        due: list[SendCall] = []
        left = MOST_INPUT_BYTES_AT_ONCE
        while self._calls and len(due) < MOST_CALLS_AT_ONCE:
            left -= len(self._calls[0].input_json.encode())
            if due and left < 0:
                break
            due.append(replace(self._calls.popleft(), begin_by_seconds=begin_by))
        return due

    def _bounded(self) -> None:
        if len(self._calls) + len(self._cancelled) + len(self._taken) > MOST_UNREAD:
            log.warning("host.not_reading", host=self.hello.host, incarnation=self.hello.incarnation)
            self.close()
        self._came.set()
