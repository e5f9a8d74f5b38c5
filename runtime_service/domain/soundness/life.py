"""Whether a turn's row says what its journal says: writers, state, end and cost (`runtime.md` R3, R5, R6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace

from runtime_service.domain.approvals import ApprovalState
from runtime_service.domain.journal import (
    LateResult,
    ModelReplied,
    Record,
    TurnEnd,
    TurnEnded,
    TurnGiven,
    WriterStarted,
)
from runtime_service.domain.soundness.found import Kept, Wrong, at_line
from runtime_service.domain.turns import TurnState, Usage


class Life:
    """Follows a turn from writer to writer."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._turn = kept.turn
        self._writer = 0
        self._begun: WriterStarted | None = None
        self._end: TurnEnded | None = None
        self._end_has_words = True
        self._usage = Usage()
        self._replayed = 0

    def see(self, record: Record) -> Iterator[Wrong]:
        """Take the next record in."""
        where = at_line(self._turn, record.line)
        if (record.line == 1) != isinstance(record.what, TurnGiven):
            yield Wrong(where, "line 1, and no other, says what was given", "R5.4")
        yield from self._written_by(where, record)
        if self._end is not None:
            yield from self._behind_the_end(where, self._end, record)
        match record.what:
            case TurnGiven():
                yield from self._given(where, record, record.what)
            case WriterStarted():
                self._begun, self._end = record.what, None
                if record.what.why != "stopped":
                    self._replayed += self._usage.model_requests
            case ModelReplied():
                self._usage = self._usage.plus(record.what)
            case TurnEnded():
                self._end, self._end_has_words = record.what, record.erase_time is None
            case _:
                pass

    def end(self) -> Iterator[Wrong]:
        """Hold the row to what the records came to."""
        turn, where = self._turn, f"turn {self._turn.id}"
        if turn.writer != self._writer:
            yield Wrong(where, f"its row names writer {turn.writer}, its journal {self._writer}", "R5.1")
        if turn.usage != replace(self._usage, replies_replayed=self._replayed):
            yield Wrong(where, "its usage is not what its records add up to", "R5.3")
        yield from (Wrong(where, what, rule) for what, rule in self._state())

    def _written_by(self, where: str, record: Record) -> Iterator[Wrong]:
        begins = isinstance(record.what, WriterStarted)
        first = isinstance(record.what, TurnGiven)
        if record.writer == self._writer + 1 and (begins or first or isinstance(record.what, LateResult)):
            self._writer = record.writer
        elif record.writer != self._writer:
            yield Wrong(where, f"writer {record.writer} adds to it, and has not taken the turn", "R5.1")
        elif begins and record.line != 2:
            yield Wrong(where, f"writer {record.writer} begins twice", "R5.1")

    def _behind_the_end(self, where: str, end: TurnEnded, record: Record) -> Iterator[Wrong]:
        goes_on = end.end is TurnEnd.FAILED and isinstance(record.what, WriterStarted)
        if not goes_on and not isinstance(record.what, LateResult):
            yield Wrong(where, "it stands behind the turn's end", "R5.1")

    def _given(self, where: str, record: Record, given: TurnGiven) -> Iterator[Wrong]:
        names = [field.name for field in fields(TurnGiven) if field.name != "input" or record.erase_time is None]
        other = [name for name in names if getattr(given, name) != getattr(self._turn, name)]
        if other:
            yield Wrong(where, f"what was given is not what the turn's row says: {', '.join(other)}", "R5.4")

    # The state

    def _state(self) -> Iterator[tuple[str, str]]:
        turn = self._turn
        if self._end is not None and (self._end.end is not TurnEnd.FAILED or turn.state is not TurnState.READY):
            yield from self._has_ended(self._end)
        elif turn.state.ended:
            yield f"it is {turn.state.name}, and its journal has no end", "R5.1"
        else:
            if turn.output:
                yield "it has an output, and has not ended", "R5.1"
            yield from _STATES[turn.state](self)
        if turn.state is not TurnState.RUNNING and turn.process:
            yield f"it is {turn.state.name}, and a process holds it", "R3.1"
        if turn.state is not TurnState.INTERRUPTED and (turn.retry_time or turn.awaits_tools):
            yield f"it is {turn.state.name}, and is to be tried again", "R6.7"
        if not turn.saved and not turn.state.ended and turn.state is not TurnState.RUNNING:
            yield f"it runs for a caller, and is {turn.state.name}", "R3.2"

    def _has_ended(self, end: TurnEnded) -> Iterator[tuple[str, str]]:
        turn = self._turn
        if turn.state.name != end.end.name:
            yield f"it is {turn.state.name}, and its journal ended as {end.end.name}", "R5.1"
            return
        if self._end_has_words and turn.output != end.output:
            yield "its output is not what its journal ended with", "R5.1"
        if self._end_has_words and turn.cause != end.cause:
            yield "its cause is not what its journal ended with", "R5.1"
        if any(call.open and not call.unfinished for call in self._kept.calls):
            yield "it has ended, and a call is under way", "R6.5"

    def _queued(self) -> Iterator[tuple[str, str]]:
        if self._turn.line:
            yield "it is QUEUED, and has begun", "R9"

    def _ready(self) -> Iterator[tuple[str, str]]:
        if self._turn.cause:
            yield "it is READY, and has a cause", "R3.1"

    def _running(self) -> Iterator[tuple[str, str]]:
        if self._begun is None or self._begun.process != self._turn.process:
            yield "it is RUNNING, and its writer is not the process that holds it", "R5.1"

    def _waiting(self) -> Iterator[tuple[str, str]]:
        if not any(one.state is ApprovalState.PENDING for one in self._kept.approvals):
            yield "it is WAITING, and nothing of it waits", "R3.1"
        if any(one.to_copy for one in self._kept.approvals) or any(one.to_copy for one in self._kept.calls):
            yield "it is WAITING, and a word that was said has not been copied", "R3.1"

    def _interrupted(self) -> Iterator[tuple[str, str]]:
        turn = self._turn
        if not turn.cause:
            yield "it is INTERRUPTED, and has no cause", "R3.1"
        if not (turn.retry_time or turn.awaits_tools or any(call.open for call in self._kept.calls)):
            yield "it is INTERRUPTED, and nothing will make it go on", "R6.7"
        if ("interrupted", turn.id, str(turn.line)) not in self._kept.told:
            yield "it is INTERRUPTED, and its feed does not tell", "R11"


_STATES: Mapping[TurnState, Callable[[Life], Iterator[tuple[str, str]]]] = {
    TurnState.QUEUED: Life._queued,
    TurnState.READY: Life._ready,
    TurnState.RUNNING: Life._running,
    TurnState.WAITING: Life._waiting,
    TurnState.INTERRUPTED: Life._interrupted,
}
