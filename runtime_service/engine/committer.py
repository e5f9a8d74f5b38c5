"""The committer: units from every turn, checked and committed together (`runtime.md` R5.5).

It commits whatever came in while the last commit was under way: no timer, no waiting for company. A caller that needs
its unit on disk awaits what `submit` returns; one that does not goes on.

Invariants:
- Units are taken in the order in which they were submitted, and those of one turn are run in it.
- A unit that is refused changes nothing, and its caller alone is told. What a database that is away did not take is
  refused together, at once.
- Once `submit` has been called the unit is written or refused, whether its caller still waits or not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import structlog

from runtime_service.domain.ledger import LATER, Committed, Ledger, Unit, hold_of
from runtime_service.domain.problems import PartUnavailable

log = structlog.get_logger()
T = TypeVar("T")
_Submitted = tuple[Unit[Any], asyncio.Future[Any]]

# How many units share a transaction at most.
MOST_AT_ONCE = 512
# How soon units are run again all of which another replica kept waiting: about as long as its transaction takes.
LATER_SECONDS = 0.003


class Transactions(Protocol):
    """The store's side: loads the rows that units need, runs them, writes what changed."""

    async def run(self, units: Sequence[Unit[Any]]) -> Committed:
        """Run units in one transaction, each all or nothing. An answer that is an exception is a refusal.

        `LATER` is the answer of one that was not run. Raises `PartUnavailable` where the database is busy or away, and
        what else it raises; then nothing was written.
        """
        ...


class Listener(Protocol):
    """Who is told of what was committed."""

    def committed(self, ledger: Ledger) -> None:
        """Look at what changed. Must not block."""
        ...


class Committer:
    """Takes units and commits them together. `run` must be under way for anything to be written."""

    def __init__(self, transactions: Transactions, listener: Listener) -> None:
        self._transactions = transactions
        self._listener = listener
        self._waiting: deque[_Submitted] = deque()
        self._came = asyncio.Event()
        self._closing = False

    def submit(self, unit: Unit[T]) -> asyncio.Future[T]:
        """Take a unit. Await the future to have it on disk; raises the unit's refusal."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closing:
            future.set_exception(PartUnavailable("service, which is stopping,"))
            return future
        self._waiting.append((unit, future))
        self._came.set()
        return future

    async def commit(self, unit: Unit[T]) -> T:
        """Take a unit and return its answer once it is on disk. A caller that is cancelled leaves the unit behind."""
        return await asyncio.shield(self.submit(unit))

    async def run(self) -> None:
        """Commit until `close`, then what is left. Never cancelled in the middle of a transaction by its owner."""
        while True:
            await self._came.wait()
            self._came.clear()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_AT_ONCE))]
                later = await self._transact(batch)
                self._waiting.extendleft(reversed(later))
                if len(later) == len(batch):
                    await asyncio.sleep(LATER_SECONDS)
            if self._closing:
                return

    def close(self) -> None:
        """Take no more units; `run` returns once those it has are on disk."""
        self._closing = True
        self._came.set()

    async def _transact(self, batch: Sequence[_Submitted]) -> Sequence[_Submitted]:
        """Commit units, and return those that wait for the next batch: another replica has their rows."""
        try:
            done = await self._transactions.run([unit for unit, _ in batch])
        except PartUnavailable as problem:
            # It is away for one as for all: alone, each would only wait for it again.
            log.warning("commit.refused", units=len(batch))
            _refuse(batch, problem.retry_after)
            return []
        except Exception:
            if len(batch) > 1:
                # One of them is at fault: alone, each finds out for itself.
                for place, one in enumerate(batch):
                    if await self._transact([one]):
                        return batch[place:]
                return []
            log.exception("commit.failed", unit=type(batch[0][0]).__name__)
            _refuse(batch)
            return []
        # Any unit behind one that was refused would leave a gap in its writer's journal.
        for hold in done.ledger.refused:
            hold.lost = True
        self._listener.committed(done.ledger)
        later = []
        for one, answer in zip(batch, done.answers, strict=True):
            if answer is LATER:
                later.append(one)
            else:
                _settle(one[1], answer)
        return later


def _refuse(batch: Sequence[_Submitted], retry_after: float | None = None) -> None:
    """Tell whoever submitted these that nothing was written."""
    for unit, future in batch:
        if (hold := hold_of(unit)) is not None:
            hold.lost = True
        _settle(future, PartUnavailable("database", retry_after))


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
        # Who submitted without waiting is told by the callback that it set; nobody else need retrieve it.
        future.exception()
    else:
        future.set_result(answer)
