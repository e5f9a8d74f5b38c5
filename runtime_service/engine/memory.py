"""What the delegates of a turn remember: what their calls returned, along the branch and earlier in the turn (R9).

Invariant: a call remembers what had returned where its `TaskStarted` stands in the journal, whoever runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from runtime_service.domain.addresses import Address
from runtime_service.domain.earlier import Earlier, Remembered
from runtime_service.domain.turns import Turn
from runtime_service.engine.writer import Writer


class DelegateCalls(Protocol):
    """The store's side."""

    async def delegate_calls(self, turn: Turn, delegate: str) -> Remembered:
        """Return what a delegate's calls returned before this turn's writer began."""
        ...


class Memory:
    """The delegates of one turn, for one writer."""

    def __init__(self, store: DelegateCalls, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._remembered: dict[str, Remembered] = {}

    async def of(self, delegate: str, address: Address) -> Callable[[], Earlier]:
        """Return what tells what a call of a delegate remembers; asked as its `TaskStarted` is submitted, or after."""
        if delegate not in self._remembered:
            self._remembered[delegate] = await self._store.delegate_calls(self._writer.turn, delegate)
        return lambda: self._at(delegate, address)

    def _at(self, delegate: str, address: Address) -> Earlier:
        remembered = self._remembered[delegate]
        if line := self._writer.past.task(address).line:
            return remembered.before.then([said for at, said in remembered.here if at < line])
        now = [call.said for call in self._writer.delegate_calls if call.delegate == delegate]
        return remembered.before.then([*(said for _, said in remembered.here), *now])
