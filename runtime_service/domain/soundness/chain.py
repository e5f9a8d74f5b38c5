"""Whether a journal is whole: no line missing, none changed, none moved (`runtime.md` R5.1, R5.4)."""

from __future__ import annotations

from collections.abc import Iterator

from runtime_service.domain import journal
from runtime_service.domain.journal import Record
from runtime_service.domain.soundness.found import Wrong, at_line
from runtime_service.domain.turns import Turn


class Chain:
    """Follows a turn's records from the first to the last that its row names."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._line = 0
        # Unknown behind a gap: then the next record is looked at in itself alone.
        self._before: str | None = journal.first_chain(turn.tenant, turn.id)

    def see(self, line: int, record: Record | None) -> Iterator[Wrong]:
        """Hold the next record to the one before it."""
        if line != self._line + 1:
            yield self._gap(self._line + 1, line - 1)
            self._before = None
        self._line = line
        changed = "facts" if record is None else journal.changed(record, self._before)
        if changed:
            yield Wrong(at_line(self._turn, line), _CHANGED[changed], "R5.4")
        self._before = record.chain if record is not None else None

    def end(self) -> Iterator[Wrong]:
        """Hold the turn's row to the last record."""
        turn = self._turn
        if self._line < turn.line:
            yield self._gap(self._line + 1, turn.line)
        elif self._line > turn.line:
            yield Wrong(f"turn {turn.id}", f"its row ends at line {turn.line}, its journal at {self._line}", "R5.1")
        elif turn.chain != ((self._before or "") if self._line else ""):
            yield Wrong(f"turn {turn.id}", "the chain in its row is not that of its last record", "R5.4")

    def _gap(self, first: int, last: int) -> Wrong:
        where = f"line {first}" if first == last else f"lines {first} to {last}"
        return Wrong(f"turn {self._turn.id}, {where}", "no record is there", "R5.1")


_CHANGED = {
    "facts": "its facts were changed",
    "words": "its words were changed",
    "chain": "it is not what was sealed behind the record before it",
}
