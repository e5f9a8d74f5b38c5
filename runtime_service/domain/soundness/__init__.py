"""What must hold of everything that is kept, and what of it does not: `tutelage check` (docs/running.md).

Rows and journal are written in the same transactions, so at every moment they agree. These rules hold them to each
other, turn by turn; nothing here knows how either came to be written, so a defect there shows here.

Invariants:
- Of what is sound nothing is said, at whatever moment it is looked at.
- Where a journal is not whole, that alone is said of its turn: nothing else can be told from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from runtime_service.domain.soundness.attempts import Attempts
from runtime_service.domain.soundness.chain import Chain
from runtime_service.domain.soundness.conversations import Place, wrong_of_conversation
from runtime_service.domain.soundness.found import Kept, Wrong
from runtime_service.domain.soundness.life import Life
from runtime_service.domain.soundness.questions import Questions
from runtime_service.domain.soundness.work import Work

__all__ = ["Kept", "Place", "Wrong", "wrong_of_conversation", "wrong_of_turn"]


def wrong_of_turn(kept: Kept) -> Iterator[Wrong]:
    """Say what does not hold of a turn, its journal, what it asked and what it started."""
    chain, work = Chain(kept.turn), Work(kept)
    rules = (Life(kept), work, Questions(kept, work), Attempts(kept))
    broken: list[Wrong] = []
    found: list[Wrong] = []
    for line, record in kept.records:
        broken += chain.see(line, record)
        if not broken and record is not None:
            for rule in rules:
                found += rule.see(record)
    broken += chain.end()
    if broken:
        yield from broken
        return
    yield from found
    for rule in rules:
        yield from rule.end()
