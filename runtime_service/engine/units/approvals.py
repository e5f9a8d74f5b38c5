"""What is asked of people, and what they answer (`runtime.md` R3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime_service.domain.approvals import Answer, Approval, ApprovalState, decide, expired, superseded, withdrawn
from runtime_service.domain.journal import ApprovalAsked, What
from runtime_service.domain.ledger import Hold, Ledger, Needs, Repeatable
from runtime_service.domain.problems import (
    AlreadyDecided,
    FingerprintChanged,
    NoSuchThing,
    TurnEnded,
)
from runtime_service.domain.turns import Turn, TurnId
from runtime_service.engine.units.turns import APPROVALS, settle


@dataclass(frozen=True, slots=True)
class AskPeople:
    """Write what a turn asks: the approvals, their records and the news of them, with every record before (R3.1)."""

    hold: Hold
    approvals: Sequence[Approval]
    records: Sequence[tuple[str, ApprovalAsked]]
    # The approval that is asked again: a yes to it is not used.
    instead_of: str = ""

    @property
    def needs(self) -> Needs:
        again = (self.instead_of,) if self.instead_of else ()
        return Needs(turns=(self.hold.turn_id,), approvals=again)

    def run(self, ledger: Ledger) -> Turn:
        turn = ledger.held(self.hold)
        _leave_behind(ledger, turn, self.instead_of)
        records: list[tuple[str, What]] = []
        for approval, (address, record) in zip(self.approvals, self.records, strict=True):
            # By the clock that judges it.
            expires = approval.rule.expires_at(ledger.now)
            ledger.approvals.put(approval.id, replace(approval, ask_time=ledger.now, expire_time=expires))
            ledger.tell(APPROVALS, turn.tenant, "waiting", approval.id, approval.turn_id)
            records.append((address, replace(record, expire_time=expires)))
        return ledger.append(turn, records)


@dataclass(frozen=True, slots=True)
class WithdrawQuestion:
    """Take a question back whose call needs no answer any more: a yes to it is not used (R3.5)."""

    hold: Hold
    approval_id: str

    @property
    def needs(self) -> Needs:
        return Needs(turns=(self.hold.turn_id,), approvals=(self.approval_id,))

    def run(self, ledger: Ledger) -> None:
        _leave_behind(ledger, ledger.held(self.hold), self.approval_id)


def _leave_behind(ledger: Ledger, turn: Turn, approval_id: str) -> None:
    """Let a turn go on without an approval: it is withdrawn, but for a yes on which a call was started."""
    approval = ledger.approvals.get(approval_id)
    if approval is not None:
        gone = approval if approval.used else withdrawn(approval)
        ledger.approvals.put(gone.id, replace(gone, to_copy=False, closed=True))
        ledger.tell(APPROVALS, turn.tenant, "settled", gone.id, gone.turn_id)


@dataclass(frozen=True, slots=True)
class DecideApproval:
    """Take one person's answer (R3.4). The turn that asked goes on once its question is settled.

    Raises what `approvals.decide` raises; `TurnEnded` where the turn has ended; `NoSuchThing`.
    """

    approval_id: str
    tenant: str
    answer: Answer
    fingerprint: str
    roles: frozenset[str]
    request: Repeatable | None = None

    @property
    def needs(self) -> Needs:
        return Needs(approvals=(self.approval_id,), request=self.request.key if self.request else None)

    def run(self, ledger: Ledger) -> Approval:
        if ledger.repeated(self.request) is None:
            for after in self.taken(ledger):
                _write(ledger, after)
            ledger.remember(self.request, self.approval_id)
        return self._approval(ledger)

    def taken(self, ledger: Ledger) -> list[Approval]:
        """Return what this answer changes, as it stands then. Raises where the answer is not taken."""
        approval = self._approval(ledger)
        after = _answered(ledger, approval, self.answer, self.roles, self.fingerprint)
        return [after] if after is not approval else []

    def _approval(self, ledger: Ledger) -> Approval:
        approval = ledger.approvals.get(self.approval_id)
        if approval is None or approval.tenant != self.tenant:
            raise NoSuchThing("approval", self.approval_id)
        return approval


def _answered(ledger: Ledger, approval: Approval, answer: Answer, roles: frozenset[str], fingerprint: str) -> Approval:
    turn = ledger.turn(TurnId(approval.asking_turn_id))
    if turn.state.ended and approval.state in (ApprovalState.PENDING, ApprovalState.WITHDRAWN):
        raise TurnEnded(turn.id)
    return decide(approval, replace(answer, time=ledger.now), roles, ledger.now, fingerprint=fingerprint)


def _write(ledger: Ledger, approval: Approval) -> None:
    """Write an approval as it stands now, tell of it, and let its turn go on where it is settled."""
    turn = ledger.turn(TurnId(approval.asking_turn_id))
    settled = approval.state is not ApprovalState.PENDING
    ledger.approvals.put(approval.id, replace(approval, to_copy=settled))
    ledger.tell(APPROVALS, turn.tenant, "settled", approval.id, approval.turn_id)
    if settled:
        settle(ledger, turn, "answered")


@dataclass(frozen=True, slots=True)
class DecideTurn:
    """Take one answer to everything that a turn waits for, all or none of it.

    A yes names the fingerprints of exactly what waits. Raises as `DecideApproval` does; `AlreadyDecided` where nothing
    waits (settled 14); `FingerprintChanged` where other things wait than were seen.
    """

    turn_id: TurnId
    answer: Answer
    fingerprints: frozenset[str]
    roles: frozenset[str]
    request: Repeatable | None = None

    @property
    def needs(self) -> Needs:
        turn = (self.turn_id,)
        return Needs(turns=turn, words_of=turn, request=self.request.key if self.request else None)

    def run(self, ledger: Ledger) -> list[str]:
        known = ledger.repeated(self.request)
        if known is not None:
            return known.split(",") if known else []
        ids = [approval.id for approval in ledger.waiting(self.turn_id)]
        for after in self.taken(ledger):
            _write(ledger, after)
        ledger.remember(self.request, ",".join(ids))
        return ids

    def taken(self, ledger: Ledger) -> list[Approval]:
        """Return what this answer changes, as it stands then. Raises where the answer is not taken."""
        turn = ledger.turn(self.turn_id)
        if turn.state.ended:
            raise TurnEnded(turn.id)
        waiting = ledger.waiting(turn.id)
        if not waiting:
            raise AlreadyDecided
        if self.fingerprints and self.fingerprints != {approval.fingerprint for approval in waiting}:
            raise FingerprintChanged(waiting[0].id)
        changed = []
        for approval in waiting:
            seen = approval.fingerprint if self.fingerprints else ""
            after = _answered(ledger, approval, self.answer, self.roles, seen)
            if after is not approval:
                changed.append(after)
        return changed


# Takes an answer, to one question or to all that a turn asks.
TakesAnswer = DecideApproval | DecideTurn


@dataclass(frozen=True, slots=True)
class SupersedeQuestions:
    """The instructions changed since these were asked (R3.6): what was asked in the same replies and has not started
    is SUPERSEDED, answered or not.

    Where an answer found them fallen that would not be taken if they stood, nothing is: raises as that answer does.
    """

    approval_ids: tuple[str, ...]
    found_by: TakesAnswer | None = None

    @property
    def needs(self) -> Needs:
        found_by = self.found_by.needs if self.found_by is not None else Needs()
        return replace(found_by, approvals=(*found_by.approvals, *self.approval_ids))

    def run(self, ledger: Ledger) -> None:
        if self.found_by is not None:
            self.found_by.taken(ledger)
        for approval_id in self.approval_ids:
            approval = ledger.approvals.get(approval_id)
            if approval is None:
                continue
            for sibling in ledger.approvals_of(TurnId(approval.asking_turn_id)):
                together = (sibling.task_id, sibling.step) == (approval.task_id, approval.step)
                if together and not sibling.used and not sibling.closed:
                    after = superseded(sibling)
                    if after is not sibling:
                        _write(ledger, after)


@dataclass(frozen=True, slots=True)
class ExpireApprovals:
    """Let approvals expire whose time ran out, by the database's clock."""

    approval_ids: tuple[str, ...]

    @property
    def needs(self) -> Needs:
        return Needs(approvals=self.approval_ids)

    def run(self, ledger: Ledger) -> None:
        for approval_id in self.approval_ids:
            approval = ledger.approvals.get(approval_id)
            if approval is not None and (after := expired(approval, ledger.now)) is not approval:
                _write(ledger, after)
