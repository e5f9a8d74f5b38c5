"""What models write, told as it comes to whoever watches in this process (`runtime.md` R11).

Invariants:
- Nothing of it is kept: who begins to listen in the middle of a reply hears its rest, and who reads too slowly for what
  is held for them loses it. The record of the reply has all of it.
- A piece says behind which line of the journal it comes, so that a watcher shows it before the record of its own reply
  and behind every earlier one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from runtime_service.domain.addresses import Address
from runtime_service.domain.turns import TurnId

# Held for one watcher; pieces that follow each other are told as one up to the smaller size.
MOST_HELD_LETTERS = 256 * 1024
MOST_PIECE_LETTERS = 16 * 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """What a call's model wrote, behind a line of the journal."""

    address: Address
    after_line: int
    text: str

    def goes_on_with(self, other: Piece) -> bool:
        """Whether both are told as one."""
        together = (self.address, self.after_line) == (other.address, other.after_line)
        return together and len(self.text) + len(other.text) <= MOST_PIECE_LETTERS


@dataclass(slots=True, eq=False)
class Heard:
    """What one watcher has not been shown yet."""

    pieces: deque[Piece] = field(default_factory=deque)
    letters: int = 0

    def take(self, shown_line: int) -> list[Piece]:
        """Take what comes behind the lines that were shown."""
        taken = []
        while self.pieces and self.pieces[0].after_line <= shown_line:
            taken.append(self.pieces.popleft())
            self.letters -= len(taken[-1].text)
        return taken

    def add(self, piece: Piece) -> None:
        if self.letters + len(piece.text) > MOST_HELD_LETTERS:
            self.pieces.clear()
            self.letters = 0
        self.letters += len(piece.text)
        last = self.pieces[-1] if self.pieces else None
        if last is not None and last.goes_on_with(piece):
            piece = replace(last, text=self.pieces.pop().text + piece.text)
        self.pieces.append(piece)


class Words:
    """Those who listen to what is written in turns. Belongs to the event loop's thread."""

    def __init__(self, ring: Callable[[Iterable[str]], None]) -> None:
        self._ring = ring
        self._listeners: defaultdict[TurnId, set[Heard]] = defaultdict(set)

    def listened(self, turn_id: TurnId) -> bool:
        """Whether anybody listens to a turn."""
        return turn_id in self._listeners

    def tell(self, turn_id: TurnId, piece: Piece) -> bool:
        """Tell a piece, and say whether anybody hears it."""
        if not self.listened(turn_id):
            return False
        for heard in self._listeners[turn_id]:
            heard.add(piece)
        self._ring([f"turn:{turn_id}"])
        return True

    @contextmanager
    def listen(self, turn_id: TurnId) -> Iterator[Heard]:
        """Hear what is written in a turn for as long as the block lasts."""
        heard = Heard()
        self._listeners[turn_id].add(heard)
        try:
            yield heard
        finally:
            self._listeners[turn_id].discard(heard)
            if not self._listeners[turn_id]:
                del self._listeners[turn_id]
