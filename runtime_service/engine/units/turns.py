"""What happens to a turn's row: it is taken, added to, let go of, handed back, ended (`runtime.md` R3.1, R5, R6).

`giving.py` has how one begins, `resuming.py` how a person has one that stopped go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from runtime_service.domain.agents import Shown
from runtime_service.domain.approvals import ApprovalState, withdrawn
from runtime_service.domain.calls import Call, late_result
from runtime_service.domain.earlier import DelegateCall
from runtime_service.domain.hosts import CallId
from runtime_service.domain.journal import (
    ApprovalRecorded,
    TurnEnd,
    TurnEnded,
    TurnGiven,
    What,
    WriterStarted,
)
from runtime_service.domain.ledger import Hold, Ledger, Needs, Repeatable, unfinished
from runtime_service.domain.principals import Principal
from runtime_service.domain.problems import TurnEnded as TurnHasEnded
from runtime_service.domain.turns import Turn, TurnId, TurnState

APPROVALS = "approvals"
TURNS = "turns"


def take(ledger: Ledger, turn: Turn, process: str) -> Turn:
    """Take a turn as its next writer, and record that."""
    why = _why(turn)
    turn = ledger.put_turn(turn.taken(process, ledger.now))
    return ledger.append(turn, _begun(turn, process, why))


@dataclass(frozen=True, slots=True)
class TakeTurn:
    """Take a turn as its next writer, where it is free; None where it is not (R6.1).

    One without a conversation whose process has gone is not gone on with: it is ABANDONED (R3.2).
    """

    turn_id: TurnId
    process: str

    @property
    def needs(self) -> Needs:
        return Needs(turns=(self.turn_id,), words_of=(self.turn_id,), leases=True)

    def run(self, ledger: Ledger) -> Turn | None:
        turn = ledger.turns.get(self.turn_id)
        if turn is None or not self._free(ledger, turn):
            return None
        if not turn.saved:
            stopped(ledger, turn, self.process, TurnEnded(end=TurnEnd.ABANDONED, cause="Its process went."))
            return None
        return take(ledger, turn, self.process)

    def _free(self, ledger: Ledger, turn: Turn) -> bool:
        match turn.state:
            case TurnState.READY:
                return True
            case TurnState.RUNNING:
                return turn.process not in ledger.living
            case TurnState.INTERRUPTED:
                due = turn.retry_time is not None and turn.retry_time <= ledger.now
                return due and not unfinished(ledger.calls_of(turn.id))
            case _:
                return False


def _why(turn: Turn) -> str:
    """Say why a writer takes the turn, in the words of settled 22."""
    return turn.ready_because if turn.state is TurnState.READY else "taken over"


def _begun(turn: Turn, process: str, why: str) -> list[tuple[str, What]]:
    """Return the records that a writer begins with: its own, and before the first one's, line 1 of the journal."""
    line_1: list[tuple[str, What]] = [(turn.agent, _given(turn))] if turn.line == 0 else []
    return [*line_1, (turn.agent, WriterStarted(process=process, why=why))]


def _given(turn: Turn) -> TurnGiven:
    """Return line 1 of a turn's journal."""
    return TurnGiven(
        conversation_id=turn.conversation_id,
        after_turn_id=turn.after_turn_id,
        agent=turn.agent,
        agent_version=turn.agent_version,
        skill=turn.skill,
        input=turn.input,
        work_for=turn.work_for,
        given_by=turn.given_by,
        scope=turn.scope,
        settings=turn.settings,
        parent_turn_id=turn.parent_turn_id,
        parent_address=turn.parent_address,
    )


@dataclass(frozen=True, slots=True)
class Append:
    """Add records to the journal, and with them what was copied into it. Raises `WriterSuperseded`."""

    hold: Hold
    records: Sequence[tuple[str, What]]
    # Words of others that these records copy, beside what they say of approvals.
    copied_results: tuple[CallId, ...] = ()
    copied_resolutions: tuple[CallId, ...] = ()
    # Approvals whose call has its result, and what came of it: shown to whoever approved. Empty: it never ran.
    closed: Mapping[str, str] = field(default_factory=dict)
    # The yes on which what these records begin was to start. Raises `YesGone` where it does not stand.
    uses: str = ""
    # What a task's model is shown, by its hash.
    tools: tuple[str, tuple[Shown, ...]] | None = None
    # A delegate's call that returned by the last of these records.
    remembered: DelegateCall | None = None

    @property
    def needs(self) -> Needs:
        return Needs(
            turns=(self.hold.turn_id,),
            approvals=(*self._recorded, *self.closed, *filter(None, [self.uses])),
            calls=(*self.copied_results, *self.copied_resolutions),
        )

    @property
    def _recorded(self) -> dict[str, ApprovalState]:
        """How these records say that approvals stand."""
        return {what.approval_id: what.state for _, what in self.records if isinstance(what, ApprovalRecorded)}

    def run(self, ledger: Ledger) -> Turn:
        turn = ledger.held(self.hold)
        if self.uses:
            ledger.use_yes(self.uses)
        for approval_id, state in self._recorded.items():
            approval = ledger.approvals.get(approval_id)
            # A yes that fell meanwhile is another word, which has yet to be copied.
            if approval is not None and approval.state is state:
                ledger.approvals.put(approval_id, replace(approval, to_copy=False))
        for call_id in self.copied_results:
            if (call := ledger.calls.get(call_id)) is not None:
                ledger.calls.put(call_id, replace(call, result_copied=True))
        for call_id in self.copied_resolutions:
            if (call := ledger.calls.get(call_id)) is not None:
                ledger.calls.put(call_id, replace(call, resolution_copied=True))
        for approval_id, outcome in self.closed.items():
            if (approval := ledger.approvals.get(approval_id)) is not None:
                ledger.approvals.put(approval_id, replace(approval, outcome=outcome, closed=True))
                if outcome:
                    ledger.tell(APPROVALS, turn.tenant, "outcome", approval_id, approval.turn_id)
        if self.tools is not None:
            ledger.keep_tools(turn.tenant, *self.tools)
        turn = ledger.append(turn, self.records)
        if self.remembered is not None:
            ledger.remember_call(turn, self.remembered)
        return turn


@dataclass(frozen=True, slots=True)
class LetGo:
    """Let a turn go that can do nothing more; False where there is a word that its writer has not copied (R3.1).

    INTERRUPTED when something is unfinished or a part is away, else WAITING.
    """

    hold: Hold
    cause: str
    awaits_tools: tuple[str, ...] = ()
    did_not_run: frozenset[CallId] = frozenset()
    # Words that its writer knows and cannot get to, because a part is away: the turn is tried again, and finds them.
    out_of_reach: frozenset[str] = frozenset()
    again: bool = False
    after: float = 0.0

    @property
    def needs(self) -> Needs:
        return Needs(turns=(self.hold.turn_id,), words_of=(self.hold.turn_id,))

    def run(self, ledger: Ledger) -> bool:
        turn = ledger.held(self.hold)
        answers = {approval.id for approval in ledger.approvals_of(turn.id) if approval.to_copy}
        words = {str(call.id) for call in ledger.calls_of(turn.id) if call.to_copy and call.id not in self.did_not_run}
        if not answers | words <= self.out_of_reach:
            return False
        if self.cause:
            turn = turn.interrupted(
                self.cause, ledger.now, awaits_tools=self.awaits_tools, again=self.again, after=self.after
            )
            ledger.tell(TURNS, turn.tenant, "interrupted", turn.id, str(turn.line))
        else:
            turn = turn.moved(TurnState.WAITING, ledger.now)
        ledger.put_turn(turn)
        return True


@dataclass(frozen=True, slots=True)
class HandBack:
    """Give turns back that this process holds and does not go on with: READY, or, with a cause, tried again later.

    Those that are no longer in this writer's hands stay as they are.
    """

    held: Mapping[TurnId, tuple[int, str]]

    @property
    def needs(self) -> Needs:
        return Needs(turns=tuple(self.held), words_of=tuple(self.held))

    def run(self, ledger: Ledger) -> None:
        for turn_id, (writer, cause) in self.held.items():
            turn = ledger.turns.get(turn_id)
            if turn is None or not turn.held or turn.writer != writer:
                continue
            if not turn.saved:
                why = cause or "Its process stopped."
                stopped(ledger, turn, turn.process, TurnEnded(end=TurnEnd.ABANDONED, cause=why))
            elif cause:
                ledger.put_turn(turn.interrupted(cause, ledger.now, awaits_tools=(), again=True))
                ledger.tell(TURNS, turn.tenant, "interrupted", turn.id, str(turn.line))
            else:
                ledger.put_turn(turn.ready("taken over", ledger.now))


@dataclass(frozen=True, slots=True)
class EndTurn:
    """End a turn with what it handed back, or why it failed. Raises `WriterSuperseded`."""

    hold: Hold
    end: TurnEnd
    output: str = ""
    cause: str = ""
    needed_approval: str = ""

    @property
    def needs(self) -> Needs:
        turn = (self.hold.turn_id,)
        return Needs(turns=turn, words_of=turn, conversations_of=turn)

    def run(self, ledger: Ledger) -> Sequence[Call]:
        turn = replace(ledger.held(self.hold), needed_approval=self.needed_approval)
        return ended(ledger, turn, TurnEnded(end=self.end, output=self.output, cause=self.cause))


def ended(ledger: Ledger, turn: Turn, what: TurnEnded) -> Sequence[Call]:
    """End a turn: withdraw what it asked and what was never used, record the end, let the next of its branch begin.

    Returns the calls that are under way all the same: they may have run, and are listed as unfinished.
    """
    in_line = turn.state is TurnState.QUEUED
    under_way = [call for call in ledger.calls_of(turn.id) if call.open]
    for call in under_way:
        ledger.calls.put(call.id, replace(call, unfinished=True))
    for approval in ledger.approvals_of(turn.id):
        gone = approval if approval.used or approval.closed else withdrawn(approval)
        if gone is not approval:
            ledger.approvals.put(gone.id, gone)
            ledger.tell(APPROVALS, turn.tenant, "settled", gone.id, gone.turn_id)
    late = [call for call in ledger.calls_of(turn.id) if call.late and not call.result_copied]
    for call in late:
        ledger.calls.put(call.id, replace(call, result_copied=True))
    turn = ledger.append(turn, [*map(late_result, late), (turn.agent, what)])
    state = TurnState[what.end.name]
    turn = replace(turn.moved(state, ledger.now, what.cause), output=what.output, tries=0)
    ledger.put_turn(turn)
    if not in_line:
        _begin_next(ledger, turn)
    return under_way


def stopped(ledger: Ledger, turn: Turn, process: str, what: TurnEnded) -> Sequence[Call]:
    """End a turn as its next writer, whatever runs it: that one can record nothing more (R5.1)."""
    turn = replace(turn, writer=turn.writer + 1)
    turn = ledger.append(turn, _begun(turn, process, "stopped"))
    return ended(ledger, turn, what)


def _begin_next(ledger: Ledger, turn: Turn) -> None:
    """Let the first that queues behind a turn begin, and the others queue behind that one (R9).

    A turn queues behind the one that was given last on its branch before it, and had not ended.
    """
    conversation = ledger.conversations.get(turn.conversation_key)
    if conversation is None:
        return
    done = turn.state is TurnState.DONE
    if done:
        ledger.conversations.put(conversation.key, replace(conversation, newest_done=turn.id))
    behind = [one for one in ledger.given_after(turn) if not one.state.ended]
    queued = list(takewhile(lambda one: one.state is TurnState.QUEUED, behind))
    for place, one in enumerate(queued):
        one = replace(one, after_turn_id=turn.id if done else one.after_turn_id)
        ledger.put_turn(one.ready("given", ledger.now) if place == 0 else one)


def settle(ledger: Ledger, turn: Turn, because: str) -> None:
    """Make a turn that waits for a word READY, where nobody holds it and nothing of it is unfinished (R3.1, R6.6)."""
    waits = turn.state in (TurnState.WAITING, TurnState.INTERRUPTED)
    if waits and not unfinished(ledger.calls_of(turn.id)):
        ledger.put_turn(turn.ready(because, ledger.now))


@dataclass(frozen=True, slots=True)
class AbandonTurn:
    """End a turn as its next writer: whoever runs it can record nothing more, which is what stops it (R5.1).

    What may have run is listed; its result, if it comes, is kept as evidence. Raises `TurnEnded`.
    """

    turn_id: TurnId
    # None: whoever it ran for went.
    by: Principal | None
    why: str
    process: str
    request: Repeatable | None = None

    @property
    def needs(self) -> Needs:
        return Needs(
            turns=(self.turn_id,),
            words_of=(self.turn_id,),
            conversations_of=(self.turn_id,),
            request=self.request.key if self.request else None,
        )

    def run(self, ledger: Ledger) -> Sequence[Call]:
        if ledger.repeated(self.request) is not None:
            return []
        turn = ledger.turn(self.turn_id)
        if turn.state.ended:
            raise TurnHasEnded(turn.id)
        what = TurnEnded(end=TurnEnd.ABANDONED, cause=self.why, by=self.by)
        under_way = stopped(ledger, turn, self.process, what)
        ledger.remember(self.request, turn.id)
        return under_way


@dataclass(frozen=True, slots=True)
class WakeTurns:
    """Make interrupted turns READY whose missing part is back, where nothing of them is unfinished (R6.7)."""

    turn_ids: tuple[TurnId, ...]

    @property
    def needs(self) -> Needs:
        return Needs(turns=self.turn_ids, words_of=self.turn_ids)

    def run(self, ledger: Ledger) -> None:
        for turn_id in self.turn_ids:
            turn = ledger.turns.get(turn_id)
            if turn is not None and turn.state is TurnState.INTERRUPTED and turn.awaits_tools:
                settle(ledger, turn, "taken over")
