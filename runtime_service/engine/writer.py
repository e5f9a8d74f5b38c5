"""A writer: this process's hold on one turn (`runtime.md` R5, R6.1).

It knows the turn's records and what others said of it, adds to the journal, and knows when the turn can do nothing more
here: then it lets go, and nothing of the turn stays in memory (R3.1).

Invariants:
- Records go to the committer in the order in which they were made; what was not kept ends this writer.
- What others say reaches it from committed rows alone, and is copied into the journal before it is acted on.
- `_active` counts the tasks that can go on by themselves. A task that rests waits for a word and for nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from runtime_service.domain.approvals import Approval, ApprovalState
from runtime_service.domain.calls import Call, late_result
from runtime_service.domain.earlier import DelegateCall
from runtime_service.domain.journal import Record, TurnEnd, What
from runtime_service.domain.ledger import Hold, NotNow, Unit, YesGone
from runtime_service.domain.problems import PartUnavailable, WriterSuperseded
from runtime_service.domain.replay import Past
from runtime_service.domain.turns import Turn
from runtime_service.engine.committer import Committer
from runtime_service.engine.units.turns import Append, EndTurn, LetGo
from runtime_service.teaching_link import TEACHING, TeachingAway

T = TypeVar("T")


class Released(Exception):
    """The turn was let go of: this process is done with it."""


class Stuck(Exception):
    """A turn that ends with its process cannot go on in it. `str` is its cause."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Why a task can do nothing more here. `cause` empty: it waits for a person; else it interrupts the turn."""

    cause: str = ""
    # A tool whose host, or the part, that has the turn taken up once it is there.
    awaits: str = ""
    # The scheduler tries again by itself, not before so many seconds have passed.
    again: bool = False
    after: float = 0.0


FOR_A_PERSON = Rest()
# What a task waits for that only another taking of the turn can bring.
_NOTHING = ""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    future: asyncio.Future[None]
    # None: what it waits for is under way, and the task counts as active.
    rest: Rest | None


class Writer:
    """One process's hold on one turn."""

    def __init__(self, turn: Turn, approvals: Sequence[Approval], calls: Sequence[Call], committer: Committer) -> None:
        self.turn = turn
        self.hold = Hold(turn.id, turn.writer, turn.line)
        self.past = Past()
        self.approvals = {approval.id: approval for approval in approvals}
        self.calls = {call.id: call for call in calls}
        # What delegates' calls returned to this writer.
        self.delegate_calls: list[DelegateCall] = []
        self._committer = committer
        self._active = 1
        self._waiters: dict[str, list[_Waiter]] = defaultdict(list)
        self._at_rest = asyncio.Event()
        # What was submitted last.
        self.newest: asyncio.Future[Any] | None = None
        # What took the turn from this writer.
        self._lost_by: Exception | None = None

    def open(self, records: Sequence[Record]) -> None:
        """Take in the turn's records, and copy what came late while nobody held the turn."""
        for record in records:
            self.past.add(record.address, record.what, record.line)
        for call in list(self.calls.values()):
            self._copy_late(call)

    # The journal

    def record(self, address: str, *whats: What, **also: Any) -> asyncio.Future[Turn]:
        """Add records, written behind: await the future to have them on disk. `also`: fields of `Append`."""
        for what in whats:
            self.past.add(address, what)
        return self.submit(Append(hold=self.hold, records=[(address, what) for what in whats], **also))

    def submit(self, unit: Unit[T]) -> asyncio.Future[T]:
        """Submit a unit of this writer. What was not written, whatever kept it, ends this one."""
        future = self._committer.submit(unit)
        future.add_done_callback(self._notice)
        self.newest = future
        return future

    async def end(
        self, end: TurnEnd, *, output: str = "", cause: str = "", needed_approval: str = ""
    ) -> Sequence[Call]:
        """End the turn; return the calls that are under way all the same, of which nobody knows whether they run."""
        return await self._committer.commit(EndTurn(self.hold, end, output, cause, needed_approval))

    # Words of others

    def hear_approval(self, approval: Approval) -> None:
        """Take in an approval's row as committed."""
        self.approvals[approval.id] = approval
        self.wake(approval.id)

    def hear_call(self, call: Call) -> None:
        """Take in a call's row as committed."""
        self.calls[call.id] = call
        self._copy_late(call)
        self.wake(call.id)

    def supersede(self, problem: Exception | None = None) -> None:
        """Another writer has the turn, or a write failed, which `problem` tells of: add nothing more."""
        self.hold.lost = True
        self._lost_by = self._lost_by or problem or WriterSuperseded(self.turn.id, self.turn.writer)
        self._at_rest.set()

    # Resting and letting go

    def branches(self, count: int) -> Branches:
        """Stand for `count` tasks that go on side by side while their maker waits for them all."""
        self._active += count - 1
        return Branches(self, count)

    async def rest(self, why: Rest, *keys: str) -> None:
        """Wait for a word about one of these; the turn is let go of where nothing else can go on meanwhile."""
        await self._wait(why, keys or (_NOTHING,))

    async def until_there(self, ask: Callable[[], Awaitable[T]], approval_id: str = "") -> T:
        """Ask a part of the service that may be away; the turn rests then, and is tried again (R6.7).

        Raises `YesGone` where the yes for which it asks falls meanwhile.
        """
        while True:
            self.check_yes(approval_id)
            try:
                return await ask()
            except PartUnavailable as problem:
                awaits = TEACHING if isinstance(problem, TeachingAway) else ""
                rest = Rest(cause=str(problem), awaits=awaits, again=True, after=problem.retry_after or 0.0)
                await self.rest(rest, *filter(None, [approval_id, awaits]))

    def check_yes(self, approval_id: str) -> None:
        """Look whether the yes with which a call is to start stands, as far as was heard. Raises `YesGone`."""
        if approval_id and self.approvals[approval_id].state is not ApprovalState.APPROVED:
            raise YesGone

    async def heard(self, *keys: str, seconds: float) -> None:
        """Wait for a word about something that is under way, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wait(None, keys)

    def wake(self, key: str) -> None:
        """Let those go on who wait for a word about this."""
        for waiter in self._waiters.get(key, ()):
            if not waiter.future.done():
                self._active += waiter.rest is not None
                waiter.future.set_result(None)
        self._look_at_rest()

    async def let_go_when_at_rest(self) -> None:
        """Let the turn go once everything rests.

        Raises `Released`, or `Stuck` for a turn that ends with its process; once another has the turn,
        `WriterSuperseded`; once a write failed, what kept it.
        """
        while True:
            await self._at_rest.wait()
            self._at_rest.clear()
            if self._lost_by is not None:
                raise self._lost_by
            if self._active == 0 and self.turn.saved and await self._let_go():
                raise Released
            if self._active == 0 and not self.turn.saved and (causes := self._causes()):
                raise Stuck(causes)

    async def _wait(self, rest: Rest | None, keys: Sequence[str]) -> None:
        waiter = _Waiter(asyncio.get_running_loop().create_future(), rest)
        for key in keys:
            self._waiters[key].append(waiter)
        if rest is not None:
            self.less()
        try:
            await waiter.future
        except asyncio.CancelledError:
            if rest is not None and (waiter.future.cancelled() or not waiter.future.done()):
                self._active += 1
            raise
        finally:
            for key in keys:
                self._waiters[key].remove(waiter)
                if not self._waiters[key]:
                    del self._waiters[key]

    async def _let_go(self) -> bool:
        rests = self._rests()
        again = any(rest.again for rest in rests)
        heard = (word.id for words in (self.approvals, self.calls) for word in words.values() if word.to_copy)
        unit = LetGo(
            hold=self.hold,
            cause=self._causes(),
            awaits_tools=tuple(sorted({rest.awaits for rest in rests if rest.awaits})),
            # These did not run, and wait for a host: there is no more to copy of them than their next attempt does.
            did_not_run=frozenset(call.id for call in self.calls.values() if call.did_not_run),
            out_of_reach=frozenset(heard) if again else frozenset(),
            again=again,
            after=max((rest.after for rest in rests), default=0.0),
        )
        return await self._committer.commit(unit)

    def _rests(self) -> list[Rest]:
        waiting = {waiter for waiters in self._waiters.values() for waiter in waiters}
        return [waiter.rest for waiter in waiting if waiter.rest is not None]

    def _causes(self) -> str:
        return "; ".join(sorted({rest.cause for rest in self._rests() if rest.cause}))

    def less(self) -> None:
        """One task less can go on by itself."""
        self._active -= 1
        self._look_at_rest()

    def _look_at_rest(self) -> None:
        if self._active == 0:
            self._at_rest.set()

    def _copy_late(self, call: Call) -> None:
        """Keep a result that settles nothing as evidence (R6.6)."""
        if call.late and call.result is not None and call.id not in self.past.late:
            address, late = late_result(call)
            self.record(address, late, copied_results=(call.id,))

    def _notice(self, future: asyncio.Future[Any]) -> None:
        problem = None if future.cancelled() else future.exception()
        if isinstance(problem, Exception) and not isinstance(problem, NotNow):
            self.supersede(problem)


class Branches:
    """Tasks that go on side by side. The last that ends hands its place on to the one that waits for them all."""

    def __init__(self, writer: Writer, count: int) -> None:
        self._writer = writer
        self._left = count

    def ended(self) -> None:
        """One of them has ended."""
        self._left -= 1
        if self._left > 0:
            self._writer.less()
