"""What a check is given of a turn, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from runtime_service.domain.approvals import Approval
from runtime_service.domain.calls import Call
from runtime_service.domain.earlier import DelegateCall
from runtime_service.domain.journal import Record
from runtime_service.domain.turns import Turn


@dataclass(frozen=True, slots=True)
class Wrong:
    """One thing that does not hold: where, what, and the rule that it breaks."""

    where: str
    what: str
    rule: str


@dataclass(frozen=True, slots=True)
class Kept:
    """All that is kept of a turn, as one snapshot has it."""

    turn: Turn
    # In order, each with its line. None: what is stored there cannot be read. Looked at once, one by one.
    records: Iterable[tuple[int, Record | None]]
    # What it asked, and its attempts.
    approvals: Sequence[Approval]
    calls: Sequence[Call]
    # To whom each approval is put, by the rows that lists go by.
    put_to: Mapping[str, frozenset[str]]
    # Lines of the feeds about the turn and what it asked: kind, subject, detail.
    told: frozenset[tuple[str, str, str]]
    # The number of the newest session of each incarnation that its calls went to.
    sessions: Mapping[str, int]
    # What delegates remember of its calls, by the line that says that they returned.
    remembered: Mapping[int, DelegateCall]
    # Whether there is an agent of a name and version, and a list of tools of a hash.
    has_agent: Callable[[str, str], bool]
    has_tools: Callable[[str], bool]


def at_line(turn: Turn, line: int) -> str:
    """Name a record's place."""
    return f"turn {turn.id}, line {line}"
