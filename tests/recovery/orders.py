"""What others say of a turn, let in at an exact place among the units that make its course.

Everything that changes a turn goes through the committer, so the order of units is the order of events. A `Course` is a
turn with words to come: each at its place, by number, of the turn's own units, in a transaction of its own before that
unit or in that unit's own, before or behind it. All else is the real service; whatever the turn then waits for it is
given as soon as it has been let go of.

    place        1         2          3                     4
    units     TakeTurn   Append   AskPeople   yes ►       LetGo      …
"""

from __future__ import annotations

import asyncio
import enum
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from runtime_service.domain.approvals import Answer, Approval, ApprovalState, Decision
from runtime_service.domain.calls import Call, Outcome, Resolution, Resolve, Result
from runtime_service.domain.ledger import Ledger, Needs, Unit, unfinished
from runtime_service.domain.principals import Principal, PrincipalKind, Proof
from runtime_service.domain.turns import Turn, TurnState
from runtime_service.engine.committer import Committer
from runtime_service.engine.units.approvals import DecideApproval, ExpireApprovals, SupersedeQuestions
from runtime_service.engine.units.giving import GiveTurn
from runtime_service.engine.units.hosts import TakeResults
from runtime_service.engine.units.resuming import ResumeTurn
from runtime_service.engine.units.turns import AbandonTurn

_Submitted = tuple[Unit[Any], asyncio.Future[Any]]

ANN = Principal("ann", PrincipalKind.PERSON)
PROOF = Proof(issuer="here")


class Where(enum.Enum):
    """Where a word comes beside the unit whose place it has."""

    APART = "apart"
    BEFORE = "before"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class Word:
    """Something that others say, and when."""

    what: str
    place: int
    where: Where

    def __str__(self) -> str:
        return f"{self.what} {self.where.value} {self.place}"


@dataclass
class Course:
    """A turn, its words to come, and what is known of it by its commits."""

    words: tuple[Word, ...]
    units: list[str] = field(default_factory=list)
    turn: Turn | None = None
    approvals: dict[str, Approval] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    # What each word that was said came to: what its unit answered, or its refusal.
    said: list[tuple[Word, asyncio.Future[Any]]] = field(default_factory=list)
    # Words that came when there was nothing yet that they could be about.
    unsaid: list[Word] = field(default_factory=list)
    # By place, what there was to speak of: so many approvals and calls.
    known: list[tuple[int, int]] = field(default_factory=list)

    def __str__(self) -> str:
        return ", ".join(map(str, self.words)) or "nobody says anything"

    @property
    def over(self) -> bool:
        """Whether its turn has ended."""
        return self.turn is not None and self.turn.state.ended

    def comes_to(self, unit: Unit[Any]) -> None:
        """Come to the next place: that of this unit."""
        self.units.append(type(unit).__name__)
        self.known.append((len(self.approvals), len(self.calls)))

    def due(self, where: Where) -> Iterator[_Submitted]:
        """Say the words whose place is that of the unit that comes now."""
        for word in self.words:
            if word.place == len(self.units) and word.where is where:
                name, number = (word.what[:-1], int(word.what[-1])) if word.what[-1].isdigit() else (word.what, 0)
                unit = _SAYS[name](self, number)
                if unit is None:
                    self.unsaid.append(word)
                    continue
                answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self.said.append((word, answer))
                yield unit, answer


@dataclass(frozen=True, slots=True)
class _Later:
    """A unit whose clock runs ahead: what would expire in time has expired."""

    unit: Unit[Any]

    @property
    def needs(self) -> Needs:
        return self.unit.needs

    def run(self, ledger: Ledger) -> Any:
        now, ledger.now = ledger.now, ledger.now + timedelta(days=1)
        try:
            return self.unit.run(ledger)
        finally:
            ledger.now = now


def _approval(course: Course, number: int) -> Approval | None:
    return list(course.approvals.values())[number] if len(course.approvals) > number else None


def _call(course: Course, number: int) -> Call | None:
    return list(course.calls.values())[number] if len(course.calls) > number else None


def _decides(decision: Decision) -> Callable[[Course, int], Unit[Any] | None]:
    def says(course: Course, number: int) -> Unit[Any] | None:
        approval = _approval(course, number)
        return decides(approval, decision) if approval else None

    return says


def decides(approval: Approval, decision: Decision = Decision.APPROVE) -> Unit[Any]:
    """Return a person's answer."""
    answer = Answer(decision, ANN, time=datetime.now(UTC), proof=PROOF)
    return DecideApproval(approval.id, approval.tenant, answer, approval.fingerprint, frozenset({"supervises"}))


def _expires(course: Course, number: int) -> Unit[Any] | None:
    approval = _approval(course, number)
    return _Later(ExpireApprovals((approval.id,))) if approval else None


def _falls(course: Course, number: int) -> Unit[Any] | None:
    approval = _approval(course, number)
    return SupersedeQuestions((approval.id,)) if approval else None


def _stops(course: Course, _number: int) -> Unit[Any] | None:
    assert course.turn is not None
    return AbandonTurn(course.turn.id, ANN, "enough", "runtime-of-who-stops")


def _reports(outcome: Outcome) -> Callable[[Course, int], Unit[Any] | None]:
    def says(course: Course, number: int) -> Unit[Any] | None:
        call = _call(course, number)
        if call is None:
            return None
        text = '"late"' if outcome is Outcome.RETURNED else ""
        return TakeResults(call.incarnation, call.tenant, "hand", {call.id: Result(outcome, text)})

    return says


def _resolves(resolve: Resolve) -> Callable[[Course, int], Unit[Any] | None]:
    def says(course: Course, number: int) -> Unit[Any] | None:
        call = _call(course, number)
        return resolves([call], resolve) if call else None

    return says


def resolves(calls: Sequence[Call], resolve: Resolve) -> Unit[Any]:
    """Return a person's word on unfinished calls."""
    word = Resolution(resolve, '"seen"' if resolve is Resolve.OUTPUT else "", ANN, PROOF)
    return ResumeTurn(calls[0].turn_id, ANN, [(call.id, word) for call in calls])


def _lost(course: Course, number: int) -> Unit[Any] | None:
    """Nobody waits for a call any more (`MarkUnfinished`), as if its time were up at this place."""
    call = _call(course, number)
    return _Lost(call.id) if call else None


@dataclass(frozen=True, slots=True)
class _Lost:
    call_id: Any

    @property
    def needs(self) -> Needs:
        return Needs(calls=(self.call_id,))

    def run(self, ledger: Ledger) -> None:
        call = ledger.calls.get(self.call_id)
        if call is not None and call.open and not ledger.turn(call.turn_id).state.ended:
            ledger.calls.put(call.id, replace(call, unfinished=True))


_SAYS: Mapping[str, Callable[[Course, int], Unit[Any] | None]] = {
    "yes": _decides(Decision.APPROVE),
    "no": _decides(Decision.DENY),
    "expiry": _expires,
    "fall": _falls,
    "stop": _stops,
    "result": _reports(Outcome.RETURNED),
    "not_run": _reports(Outcome.NOT_RUN),
    "lost": _lost,
    "seen": _resolves(Resolve.OUTPUT),
    "again": _resolves(Resolve.RUN_AGAIN),
}


class OrderedCommitter(Committer):
    """A committer that lets words in at their place. Courses are found by what their turn was asked."""

    courses: ClassVar[dict[str, Course]] = {}

    def __init__(self, transactions: Any, listener: Any) -> None:
        super().__init__(transactions, _Looking(listener, self))
        self._by_turn: dict[str, Course] = {}
        # By the approvals and calls that they made.
        self._by_thing: dict[str, Course] = {}

    async def _transact(self, batch: Sequence[_Submitted]) -> Sequence[_Submitted]:
        """Commit what came, of each course one unit in a transaction, with the words that come there."""
        left = list(batch)
        while left:
            now, left = self._one_of_each(left)
            courses = [course for _, course in now if course is not None]
            apart = [list(course.due(Where.APART)) for course in courses]
            for at_once in itertools.zip_longest(*apart):
                await self._commit_all([said for said in at_once if said is not None])
            together: list[_Submitted] = []
            for submitted, course in now:
                together += course.due(Where.BEFORE) if course else ()
                together.append(submitted)
                together += course.due(Where.BEHIND) if course else ()
            await self._commit_all(together)
        return []

    async def _commit_all(self, submitted: Sequence[_Submitted]) -> None:
        if submitted:
            later = await super()._transact(submitted)
            assert not later, "only another replica could have what a unit needs"

    def _one_of_each(
        self, submitted: Sequence[_Submitted]
    ) -> tuple[list[tuple[_Submitted, Course | None]], list[_Submitted]]:
        """Return the first unit of each course, which has come to its next place, and the units behind those."""
        now: list[tuple[_Submitted, Course | None]] = []
        behind: list[_Submitted] = []
        there: set[int] = set()
        for one in submitted:
            course = self._course(one[0])
            if course is not None and id(course) in there:
                behind.append(one)
                continue
            if course is not None:
                there.add(id(course))
                course.comes_to(one[0])
            now.append((one, course))
        return now, behind

    def _course(self, unit: Unit[Any]) -> Course | None:
        """Find the course that a unit belongs to, of a turn that has begun."""
        if isinstance(unit, GiveTurn):
            if (course := self.courses.get(unit.turn.input)) is not None:
                self._by_turn[unit.turn.id] = course
            return None
        needs = unit.needs
        of_turn = (self._by_turn.get(turn_id) for turn_id in needs.turns)
        of_thing = (self._by_thing.get(one) for one in (*needs.approvals, *needs.calls))
        return next((course for course in (*of_turn, *of_thing) if course is not None), None)

    def look(self, ledger: Ledger) -> None:
        """Take in what was committed, and give a turn that was let go of what it waits for."""
        for call in ledger.calls.changed.values():
            if (course := self._by_turn.get(call.turn_id)) is not None:
                if call.tool == "hang" and call.attempt == 1 and call.id not in course.calls:
                    self.submit(_Lost(call.id))
                course.calls[call.id] = call
                self._by_thing[call.id] = course
        for approval in ledger.approvals.changed.values():
            if (course := self._by_turn.get(approval.asking_turn_id)) is not None:
                course.approvals[approval.id] = approval
                self._by_thing[approval.id] = course
        for turn in ledger.turns.changed.values():
            if (course := self._by_turn.get(turn.id)) is not None:
                course.turn = turn
                self._give(course, turn)

    def _give(self, course: Course, turn: Turn) -> None:
        if turn.state is TurnState.WAITING:
            for approval in course.approvals.values():
                if approval.state is ApprovalState.PENDING:
                    self.submit(decides(approval))
        if turn.state is TurnState.INTERRUPTED and (open_calls := unfinished(list(course.calls.values()))):
            first = all(call.attempt == 1 for call in open_calls)
            self.submit(resolves(open_calls, Resolve.RUN_AGAIN if first else Resolve.OUTPUT))


class _Looking:
    """The committer's listener, with somebody who looks after it."""

    def __init__(self, listener: Any, committer: OrderedCommitter) -> None:
        self._listener = listener
        self._committer = committer

    def committed(self, ledger: Ledger) -> None:
        self._listener.committed(ledger)
        self._committer.look(ledger)
