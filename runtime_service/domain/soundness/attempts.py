"""Whether calls that changed things were started once, and ended by somebody's word (`runtime.md` R5.2, R6.5, R6.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from runtime_service.domain import told
from runtime_service.domain.addresses import below
from runtime_service.domain.calls import Call, Outcome, Resolve
from runtime_service.domain.hosts import CallId
from runtime_service.domain.journal import LateResult, Record, ToolDone, ToolEnd, ToolStarted, UnfinishedResolved
from runtime_service.domain.soundness.found import Kept, Wrong, at_line


class Attempts:
    """Follows a turn's attempts, beside what is kept of them in rows."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._turn = kept.turn
        self._rows = {call.id: call for call in kept.calls}
        self._approvals = {approval.id: approval for approval in kept.approvals}
        self._started: dict[str, tuple[str, int]] = {}
        self._by_call: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        # By attempt: how its end, a person's word and a late result were recorded.
        self._done: dict[str, ToolEnd] = {}
        self._resolved: set[str] = set()
        self._late: set[str] = set()

    def see(self, record: Record) -> Iterator[Wrong]:
        """Take the next record in."""
        what, where = record.what, at_line(self._turn, record.line)
        match what:
            case ToolStarted():
                yield from self._starts(where, record, what)
            case ToolDone():
                yield from (Wrong(where, wrong, "R6.5") for wrong in self._ends(record, what))
            case UnfinishedResolved():
                yield from (Wrong(where, wrong, "R6.5") for wrong in self._is_resolved(record, what))
            case LateResult():
                yield from (Wrong(where, wrong, "R6.6") for wrong in self._comes_late(record, what))
            case _:
                pass

    def end(self) -> Iterator[Wrong]:
        """Hold each row to what the records came to."""
        for call in self._kept.calls:
            where = f"call {call.id}"
            if call.id not in self._started:
                yield Wrong(where, "its turn's journal does not say that it started", "R5.2")
                continue
            yield from (Wrong(where, wrong, rule) for wrong, rule in self._is_copied(call))
            yield from (Wrong(where, wrong, rule) for wrong, rule in self._fits(call))

    # Record by record

    def _starts(self, where: str, record: Record, started: ToolStarted) -> Iterator[Wrong]:
        if started.call_id in self._started:
            yield Wrong(where, f"call {started.call_id} starts twice", "R6.5")
            return
        at = (record.address, started.invocation)
        before = self._by_call[at]
        if started.attempt != len(before) + 1:
            yield Wrong(where, f"attempt {started.attempt} stands where {len(before) + 1} is due", "R6.5")
        if before and not self._may_run_again(before[-1]):
            yield Wrong(where, "it starts again, and neither its host nor a person said that it may", "R6.5")
        self._started[started.call_id] = at
        before.append(started.call_id)
        call = self._rows.get(CallId(started.call_id))
        if call is None:
            yield Wrong(where, f"there is no call {started.call_id}", "R5.2")
            return
        other = [name for name in _ALIKE if getattr(call, name) != getattr(started, name)]
        if call.address != below(record.address, started.tool, started.invocation):
            other.append("address")
        if record.erase_time is None and call.input_json != (started.edited_input_json or started.input_json):
            other.append("input_json")
        if call.session < started.session:
            other.append("session")
        if other:
            yield Wrong(f"call {call.id}", f"it is not what started: {', '.join(sorted(other))}", "R5.2")

    def _may_run_again(self, call_id: str) -> bool:
        call = self._rows.get(CallId(call_id))
        if call is None:
            return True
        again = call.resolution is not None and call.resolution.resolve is Resolve.RUN_AGAIN
        return again or call.did_not_run

    def _ends(self, record: Record, done: ToolDone) -> Iterator[str]:
        started = self._by_call.get((record.address, done.invocation), [])
        if not started:
            return
        if not done.call_id and self._may_run_again(started[-1]):
            # It was judged anew before its next attempt, and not let through.
            return
        if done.call_id != started[-1]:
            yield "its call was started, and has a result of something else"
            return
        self._done[done.call_id] = done.end
        call = self._rows.get(CallId(done.call_id))
        if call is not None and (done.end, done.output_json) not in _ends_of(call) and record.erase_time is None:
            yield "its result is nobody's word"

    def _is_resolved(self, record: Record, resolved: UnfinishedResolved) -> Iterator[str]:
        if self._started.get(resolved.call_id, ("", 0))[0] != record.address or resolved.call_id in self._resolved:
            yield "nothing was to be said of this call here"
        self._resolved.add(resolved.call_id)
        call = self._rows.get(CallId(resolved.call_id))
        said = call.resolution if call is not None else None
        if call is None:
            return
        if said is None or (said.by, said.proof) != (resolved.by, resolved.proof) or not said.by.is_person:
            yield "no person said this"
        elif record.erase_time is None:
            text = {Resolve.OUTPUT: resolved.output_json, Resolve.ERROR: resolved.error, Resolve.RUN_AGAIN: said.text}
            if text[said.resolve] != said.text or resolved.run_again != (said.resolve is Resolve.RUN_AGAIN):
                yield "it is not what the person said"

    def _comes_late(self, record: Record, late: LateResult) -> Iterator[str]:
        if self._started.get(late.call_id, ("", 0))[0] != record.address or late.call_id in self._late:
            yield "no result of this call was to come"
        self._late.add(late.call_id)
        call = self._rows.get(CallId(late.call_id))
        if call is None:
            return
        if call.result is None or not call.late:
            yield "its host said nothing late"
        elif record.erase_time is None and late.output_json != call.result.text:
            yield "it is not what its host said"

    # At the end

    def _is_copied(self, call: Call) -> Iterator[tuple[str, str]]:
        """What a row says was copied is in the journal; then nothing of a call is lost."""
        if call.resolution is not None and call.resolution_copied != (call.id in self._resolved):
            yield _copied("what a person said of it", copied=call.resolution_copied), "R5.1"
        if call.result is None or call.result.outcome is Outcome.NOT_RUN:
            return
        if call.late:
            if call.result_copied != (call.id in self._late):
                yield _copied("its late result", copied=call.result_copied), "R6.6"
        elif call.result_copied != (call.id in self._done):
            yield _copied("its result", copied=call.result_copied), "R5.1"

    def _fits(self, call: Call) -> Iterator[tuple[str, str]]:
        at = self._started[call.id]
        if call.open and call.id in self._done:
            yield "it has a result in the journal, and its row has none", "R5.1"
        if call.open and self._by_call[at][-1] != call.id:
            yield "it is open, and a later attempt was started", "R6.5"
        if call.unfinished and not call.open:
            yield "it is unfinished, and somebody said what became of it", "R6.5"
        if call.session > self._kept.sessions.get(call.incarnation, 0):
            yield f"its incarnation {call.incarnation} never began session {call.session}", "R6.6"
        if call.approval_id:
            approval = self._approvals.get(call.approval_id)
            if approval is None or approval.address != call.address or not approval.used:
                yield f"it started on a yes that is none: {call.approval_id}", "R3.6"


# What a row and its record say in the same words.
_ALIKE = ("invocation", "tool", "attempt", "host", "incarnation")


def _copied(what: str, *, copied: bool) -> str:
    return f"its row says that {what} was copied; its journal has none" if copied else f"{what} was copied unsaid"


def _ends_of(call: Call) -> Iterator[tuple[ToolEnd, str]]:
    """Give each end that a call can have by the words that its row has."""
    if call.result is not None and not call.late:
        if call.result.outcome is Outcome.RETURNED:
            yield ToolEnd.RETURNED, call.result.text
        elif call.result.outcome is Outcome.FAILED:
            yield ToolEnd.FAILED, told.as_json(call.result.text)
    if call.resolution is not None:
        if call.resolution.resolve is Resolve.OUTPUT:
            yield ToolEnd.RESOLVED, call.resolution.text
        elif call.resolution.resolve is Resolve.ERROR:
            yield ToolEnd.RESOLVED, told.as_json(call.resolution.text)
