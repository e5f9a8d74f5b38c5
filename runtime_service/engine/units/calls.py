"""How a call leaves the runtime, and how one comes to count as unfinished (`runtime.md` R5.2, R6.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime_service.domain.calls import Call
from runtime_service.domain.hosts import CallId
from runtime_service.domain.journal import ToolStarted, What
from runtime_service.domain.ledger import Hold, Ledger, Needs, NotNow
from runtime_service.domain.turns import Turn


class SessionEnded(NotNow):
    """The session that a call was assigned to has ended: it is assigned anew. Nothing was written."""


@dataclass(frozen=True, slots=True)
class StartCall:
    """Write that a call is about to leave the runtime: its record, and the row by which its host is sent it (R5.2).

    The approval, where it was asked about, is found approved still (R3.6). Raises `SessionEnded`, `YesGone`,
    `WriterSuperseded`.
    """

    hold: Hold
    address: str
    record: ToolStarted
    call: Call
    # The attempt before it, which did not run: its word is used up by this one.
    instead_of: CallId | None = None

    @property
    def needs(self) -> Needs:
        return Needs(
            turns=(self.hold.turn_id,),
            approvals=(self.call.approval_id,) if self.call.approval_id else (),
            calls=(self.instead_of,) if self.instead_of else (),
            sessions=(self.call.incarnation,),
            leases=True,
        )

    def run(self, ledger: Ledger) -> Turn:
        turn = ledger.held(self.hold)
        if not ledger.connected(ledger.sessions.get(self.call.incarnation), self.call.session):
            raise SessionEnded
        if self.call.approval_id:
            ledger.use_yes(self.call.approval_id)
        if self.instead_of and (before := ledger.calls.get(self.instead_of)) is not None:
            ledger.calls.put(before.id, replace(before, result_copied=True))
        ledger.calls.put(self.call.id, replace(self.call, start_time=ledger.now))
        records: Sequence[tuple[str, What]] = [(self.address, self.record)]
        return ledger.append(turn, records)


@dataclass(frozen=True, slots=True)
class MarkUnfinished:
    """Write that a call may have run and that nobody is waited for any more: a person has to say (R6.5)."""

    hold: Hold
    call_id: CallId

    @property
    def needs(self) -> Needs:
        return Needs(turns=(self.hold.turn_id,), calls=(self.call_id,))

    def run(self, ledger: Ledger) -> None:
        ledger.held(self.hold)
        call = ledger.calls.get(self.call_id)
        if call is not None and call.open:
            ledger.calls.put(call.id, replace(call, unfinished=True))
