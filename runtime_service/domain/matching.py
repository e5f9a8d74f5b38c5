"""What a program asks, and which of a turn's records answers it (`runtime.md` R6.3).

A program runs from its top each time that a process takes its turn. What it did before is found by what it asks, never
by when: so it may be changed and may ask in another order, pays only for what is new, and is never given another
question's answer. `ProgramService` keeps records and marks in rows; here is the rule. docs/matching.md, with vectors.

Invariants, for one writer:
- No record answers two asks.
- A record answers an ask of the very same question alone.
- The same ask again has the same answer, whatever was recorded meanwhile.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from runtime_service.domain import canonical_json
from runtime_service.domain.addresses import Address
from runtime_service.domain.length_prefix import lp
from runtime_service.domain.problems import RequestIdReused


class Kind(enum.Enum):
    """What is asked for."""

    MODEL = "model"
    TOOL = "tool"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: by which call, of which model, tool or agent, with which input as canonical JSON.

    Neither the instruction block nor what a person changed is part of it.
    """

    parent: Address
    kind: Kind
    name: str
    input: str

    @property
    def hash(self) -> str:
        """Return what tells it from every other question, in hex: rows are found by it."""
        asked = lp(self.parent, self.kind.value, self.name, self.input)
        return sha256(b"tutelage.question.v1\0" + asked).hexdigest()


def question(parent: Address, kind: Kind, name: str, input_json: str) -> Question:
    """Return what is asked, its input brought into its one form. Raises `JsonProblem`."""
    return Question(parent, kind, name, canonical_json.canonical(input_json))


@dataclass(frozen=True, slots=True)
class Mark:
    """That an ask of one writer has its answer: the line of the first record of what was asked. 0: it is new, and not
    recorded yet."""

    question: str
    line: int = 0


def answered_by(ask_id: str, asked: str, recorded: Iterable[int], marks: Mapping[str, Mark]) -> Mark:
    """Return the mark of an ask: the one that it has, or the one to be set.

    `asked` is the question's hash, `recorded` the lines at which that question was asked by any writer, in order;
    `marks` are all those of this writer, by ask. A mark is set where neither its ask nor its line has one (in one
    transaction, by compare-and-set), and an ask that is new gets its line in the transaction that writes its record.
    Raises `RequestIdReused` where the ask was another question.
    """
    known = marks.get(ask_id)
    if known is not None:
        if known.question != asked:
            raise RequestIdReused(ask_id)
        return known
    used = {mark.line for mark in marks.values()}
    return Mark(asked, next((line for line in sorted(recorded) if line not in used), 0))
