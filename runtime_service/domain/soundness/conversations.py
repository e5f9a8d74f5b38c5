"""Whether a conversation says what its turns say (`runtime.md` R9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from runtime_service.domain.soundness.found import Wrong
from runtime_service.domain.turns import Conversation, TurnState


@dataclass(frozen=True, slots=True)
class Place:
    """A turn's place in its conversation. `end_time` is that of the last end in its journal."""

    id: str
    number: int
    state: TurnState
    after_turn_id: str
    end_time: datetime | None


def wrong_of_conversation(conversation: Conversation, turns: Sequence[Place]) -> Iterator[Wrong]:
    """Say what does not hold of a conversation and the turns in it."""
    where = f"conversation {conversation.id}"
    numbers = sorted(turn.number for turn in turns)
    if numbers != list(range(1, conversation.turns + 1)):
        yield Wrong(where, f"its turns are not numbered 1 to {conversation.turns}", "R9")
    done = {turn.id: turn for turn in turns if turn.state is TurnState.DONE}
    # Of turns that ended in one transaction, either is the newest.
    last = max((turn.end_time for turn in done.values() if turn.end_time is not None), default=None)
    newest = {turn.id for turn in done.values() if turn.end_time == last} or {""}
    if conversation.newest_done not in newest:
        yield Wrong(where, "its newest turn that is done is another", "R9")
    for turn in turns:
        if turn.after_turn_id and turn.after_turn_id not in done:
            yield Wrong(f"turn {turn.id}", "it follows a turn of its conversation that is not done", "R9")
        if turn.state is TurnState.QUEUED and not any(_is_before(other, turn) for other in turns):
            yield Wrong(f"turn {turn.id}", "it is QUEUED, and behind nobody", "R9")


def _is_before(other: Place, queued: Place) -> bool:
    goes_on = not other.state.ended and other.state is not TurnState.QUEUED
    return goes_on and other.after_turn_id == queued.after_turn_id and other.number < queued.number
