"""What hosts do to the rows: sessions begin and end, results are taken (`runtime.md` R6.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from runtime_service.domain.calls import Call, Outcome, Result, late_result
from runtime_service.domain.hosts import CallId, Hello, Incarnation, Offer, Session
from runtime_service.domain.ledger import Ledger, Needs
from runtime_service.domain.problems import NotAdmitted
from runtime_service.engine.units.turns import settle


@dataclass(frozen=True, slots=True)
class Opened:
    """A session, and the calls that it is to be sent again."""

    session: Session
    moved: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Begin an incarnation's next session.

    Every call of the incarnation that nobody has settled and that it does not hold never arrived: it moves to this
    session under the same id. Raises `NotAdmitted` where another account opened the incarnation.
    """

    hello: Hello
    process: str

    @property
    def needs(self) -> Needs:
        own = (self.hello.incarnation,)
        return Needs(sessions=own, sessions_change=True, calls_of=own)

    def run(self, ledger: Ledger) -> Opened:
        hello = self.hello
        before = ledger.sessions.get(hello.incarnation)
        if before is not None and (before.tenant, before.account) != (hello.tenant, hello.account):
            raise NotAdmitted("speak for another account's incarnation")
        session = Session(
            incarnation=hello.incarnation,
            tenant=hello.tenant,
            account=hello.account,
            host=hello.host,
            number=before.number + 1 if before else 1,
            process=self.process,
            start_time=ledger.now,
            offers=tuple(Offer(tool.name, tool.hash) for tool in hello.tools),
        )
        ledger.sessions.put(hello.incarnation, session)
        ledger.declare(hello.tenant, hello.tools)
        never_arrived = [call for call in self._open_calls(ledger) if call.id not in hello.holding]
        return Opened(session, tuple(self._move(ledger, call, session) for call in never_arrived))

    def _open_calls(self, ledger: Ledger) -> list[Call]:
        found = [call for call in ledger.calls.seen() if call.incarnation == self.hello.incarnation]
        return [call for call in found if call.open and not ledger.turn(call.turn_id).state.ended]

    def _move(self, ledger: Ledger, call: Call, session: Session) -> Call:
        """Have a call sent again over the new session. It certainly did not run, so it is not unfinished."""
        deadline = ledger.now + timedelta(seconds=call.timeout_seconds)
        moved = replace(call, session=session.number, deadline=deadline, unfinished=False)
        ledger.calls.put(moved.id, moved)
        if call.unfinished:
            settle(ledger, ledger.turn(moved.turn_id), "settled")
        return moved


@dataclass(frozen=True, slots=True)
class EndSession:
    """A session's stream broke. One that a later hello ended already stays as it is."""

    incarnation: Incarnation
    number: int

    @property
    def needs(self) -> Needs:
        return Needs(sessions=(self.incarnation,), sessions_change=True)

    def run(self, ledger: Ledger) -> None:
        session = ledger.sessions.get(self.incarnation)
        if session is not None and session.number == self.number and session.end_time is None:
            ledger.sessions.put(self.incarnation, replace(session, end_time=ledger.now))


@dataclass(frozen=True, slots=True)
class TakeResults:
    """Write what a host says of calls; return those that it settled. The host may forget all that it reported.

    What settles an unfinished call makes its turn READY where it was the last. What can settle nothing any more is
    evidence: its turn's writer copies it, or, where the turn is over, a writer taken for it does.
    """

    incarnation: Incarnation
    tenant: str
    account: str
    results: Mapping[CallId, Result]

    @property
    def needs(self) -> Needs:
        return Needs(calls=tuple(self.results), sessions=(self.incarnation,))

    def run(self, ledger: Ledger) -> list[CallId]:
        session = ledger.sessions.get(self.incarnation)
        if session is None or (session.tenant, session.account) != (self.tenant, self.account):
            raise NotAdmitted("report for an incarnation that you did not open")
        own = {call_id: call for call_id in self.results if (call := ledger.calls.get(call_id)) is not None}
        return [
            call_id
            for call_id, call in own.items()
            if call.incarnation == self.incarnation
            and call.result is None
            and self._settles(ledger, call, self.results[call_id])
        ]

    def _settles(self, ledger: Ledger, call: Call, result: Result) -> bool:
        """Write one result; say whether it settles its call, or is evidence alone."""
        turn = ledger.turn(call.turn_id)
        if result.outcome is Outcome.NOT_RUN and (call.resolution is not None or turn.state.over):
            # It certainly did not run, and something else settled it: there is nothing to keep as evidence.
            ledger.calls.put(call.id, replace(call, result=result, result_copied=True, unfinished=False))
            return False
        call = call.resulted(result, turn_over=turn.state.over)
        if turn.state.over:
            turn = replace(turn, writer=turn.writer + 1)
            ledger.append(turn, [late_result(call)])
            call = replace(call, result_copied=True)
        ledger.calls.put(call.id, call)
        if not call.late:
            settle(ledger, turn, "settled")
        return not call.late
