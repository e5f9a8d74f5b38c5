"""The rows that the units of one transaction see and change.

A unit says which rows it needs, checks them, and writes what follows. Several units share one transaction
(`runtime.md` R5.5), so each sees what those before it wrote, and one that is refused leaves nothing behind. All of this
is plain memory: the store loads a `Ledger` and writes its changes, and the rules need no database to be tried.

Invariants:
- A unit that raises changes nothing: its writes stand apart until it has ended.
- Records get their line and their chain here, and nowhere else.
"""

from __future__ import annotations

import secrets
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

from runtime_service.domain import journal
from runtime_service.domain.addresses import Address
from runtime_service.domain.agents import Shown
from runtime_service.domain.approvals import Approval, ApprovalState
from runtime_service.domain.calls import Call
from runtime_service.domain.earlier import DelegateCall
from runtime_service.domain.effects import Declaration
from runtime_service.domain.hosts import CallId, Incarnation, Session
from runtime_service.domain.journal import Record
from runtime_service.domain.problems import NoSuchThing, RequestIdReused, WriterSuperseded
from runtime_service.domain.turns import Conversation, ConversationKey, Turn, TurnId

K = TypeVar("K")
V = TypeVar("V")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What makes a repeated request the same (R9): by tenant, account and rpc."""

    tenant: str
    account: str
    rpc: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A request that may come again: its key, and what it asked."""

    key: RequestKey
    digest: str


@dataclass(frozen=True, slots=True)
class Needs:
    """The rows that a unit needs. A turn named here is locked, and its root with it."""

    turns: tuple[TurnId, ...] = ()
    # Also what these turns asked that waits, is unused or not copied, and their attempts that are open or not copied.
    words_of: tuple[TurnId, ...] = ()
    # With the turns that asked, and the words of those.
    approvals: tuple[str, ...] = ()
    # With their turns, and the words of those.
    calls: tuple[CallId, ...] = ()
    # The sessions of these incarnations; and whether the unit writes them, so that nobody relies on them meanwhile.
    sessions: tuple[Incarnation, ...] = ()
    sessions_change: bool = False
    # Also the open calls of these incarnations, with their turns.
    calls_of: tuple[Incarnation, ...] = ()
    # With their turns that have not ended.
    conversations: tuple[ConversationKey, ...] = ()
    # The same, for the conversations of these turns.
    conversations_of: tuple[TurnId, ...] = ()
    # Also the turns that follow the same turn as these do and were given later, ended or not.
    given_after: tuple[TurnId, ...] = ()
    request: RequestKey | None = None
    # Which processes' leases run.
    leases: bool = False


@dataclass(slots=True)
class Hold:
    """A turn in the hands of one writer: the last line that it knows to be on disk, and whether it lost the turn."""

    turn_id: TurnId
    writer: int
    line: int
    lost: bool = False


# The answer of a unit that was not run: another replica has what it needs at this moment. It is run with the next ones.
LATER: Final = object()


class NotNow(Exception):
    """A unit's refusal that harms nothing: nothing was written, and its writer goes on."""


class YesGone(NotNow):
    """The yes with which a call was to start no longer stands: what became of it is looked up again."""


class Unit(Protocol[T_co]):
    """A check and its writes."""

    @property
    def needs(self) -> Needs:
        """The rows to load and lock."""
        ...

    def run(self, ledger: Ledger) -> T_co:
        """Check the rows, write what follows, and return what the caller is told. Raises: refused, nothing written."""
        ...


def hold_of(unit: Unit[Any]) -> Hold | None:
    """Return the hold of the writer whose unit this is; None where it is nobody's."""
    hold: Hold | None = getattr(unit, "hold", None)
    return hold


@dataclass(frozen=True, slots=True)
class News:
    """A line of a feed: keys, never words."""

    feed: str
    tenant: str
    kind: str
    subject: str
    detail: str = ""


class Rows(Generic[K, V]):
    """Rows of one kind: as loaded, as changed by units that ended, and as the present unit has them.

    `group` finds those that belong together without looking at all of them.
    """

    def __init__(self, group: Callable[[V], str] | None = None) -> None:
        self.loaded: dict[K, V] = {}
        self.changed: dict[K, V] = {}
        self._draft: dict[K, V] = {}
        self._group = group
        self._groups: defaultdict[str, dict[K, None]] = defaultdict(dict)

    def load(self, key: K, row: V) -> None:
        """Take a row in as the database has it; one that is here already stays as it is."""
        if key not in self.loaded:
            self.loaded[key] = row
            self._file(key, row)

    def get(self, key: K) -> V | None:
        """Return the row as the present unit sees it."""
        for rows in (self._draft, self.changed, self.loaded):
            if key in rows:
                return rows[key]
        return None

    def put(self, key: K, row: V) -> None:
        """Write a row, for the present unit."""
        self._draft[key] = row
        self._file(key, row)

    def seen(self) -> list[V]:
        """Return every row as the present unit sees it, those that units before it made too."""
        return list((self.loaded | self.changed | self._draft).values())

    def of(self, group: str) -> list[V]:
        """Return the rows of a group as the present unit sees them."""
        return [row for key in self._groups.get(group, ()) if (row := self.get(key)) is not None]

    def keep(self) -> None:
        """The present unit has ended: what it wrote stands."""
        self.changed |= self._draft
        self._draft = {}

    def drop(self) -> None:
        """The present unit was refused."""
        self._draft = {}

    def _file(self, key: K, row: V) -> None:
        if self._group is not None:
            self._groups[self._group(row)][key] = None


def _turns() -> Rows[TurnId, Turn]:
    return Rows(lambda turn: "\0".join(turn.conversation_key))


def _approvals() -> Rows[str, Approval]:
    return Rows(lambda approval: approval.asking_turn_id)


def _calls() -> Rows[CallId, Call]:
    return Rows(lambda call: call.turn_id)


@dataclass
class Ledger:
    """The rows of one transaction. `now` is the database's clock."""

    now: datetime
    turns: Rows[TurnId, Turn] = field(default_factory=_turns)
    approvals: Rows[str, Approval] = field(default_factory=_approvals)
    calls: Rows[CallId, Call] = field(default_factory=_calls)
    sessions: Rows[Incarnation, Session] = field(default_factory=Rows)
    conversations: Rows[ConversationKey, Conversation] = field(default_factory=Rows)
    requests: Rows[RequestKey, tuple[str, str]] = field(default_factory=Rows)
    # Processes whose lease runs: a session of another one is over.
    living: frozenset[str] = frozenset()
    records: list[tuple[Turn, Record]] = field(default_factory=list)
    news: list[News] = field(default_factory=list)
    # Calls of delegates that returned, each by the turn whose last record says so.
    delegate_calls: list[tuple[Turn, DelegateCall]] = field(default_factory=list)
    # Writers of whom a unit was refused: they have lost their turns once this transaction is committed, and not before.
    refused: list[Hold] = field(default_factory=list)
    # What hosts declared, and the lists of tools that tasks were shown: kept once each, by their hash.
    declared: dict[tuple[str, str, str], Declaration] = field(default_factory=dict)
    tool_lists: dict[tuple[str, str], tuple[Shown, ...]] = field(default_factory=dict)
    _records: list[tuple[Turn, Record]] = field(default_factory=list)
    _news: list[News] = field(default_factory=list)
    _delegate_calls: list[tuple[Turn, DelegateCall]] = field(default_factory=list)

    def run(self, unit: Unit[T_co]) -> T_co:
        """Run a unit, all or nothing. A writer's unit that is refused is its last, unless it harmed nothing."""
        tables = (self.turns, self.approvals, self.calls, self.sessions, self.conversations, self.requests)
        try:
            answer = unit.run(self)
        except BaseException as refusal:
            hold = hold_of(unit)
            if hold is not None and not isinstance(refusal, NotNow):
                self.refused.append(hold)
            for table in tables:
                table.drop()
            self._records, self._news, self._delegate_calls = [], [], []
            raise
        for table in tables:
            table.keep()
        self.records += self._records
        self.news += self._news
        self.delegate_calls += self._delegate_calls
        self._records, self._news, self._delegate_calls = [], [], []
        return answer

    def turn(self, turn_id: TurnId) -> Turn:
        """Return a turn's row. Raises `NoSuchThing`."""
        turn = self.turns.get(turn_id)
        if turn is None:
            raise NoSuchThing("turn", turn_id)
        return turn

    def put_turn(self, turn: Turn) -> Turn:
        """Write a turn's row."""
        self.turns.put(turn.id, turn)
        return turn

    def held(self, hold: Hold) -> Turn:
        """Return the turn where this writer still has it, and knows its last line (R5.5). Raises `WriterSuperseded`."""
        turn = self.turn(hold.turn_id)
        known = self.turns.loaded[hold.turn_id].line == hold.line
        lost = hold.lost or any(hold is one for one in self.refused)
        if lost or turn.writer != hold.writer or not turn.held or not known:
            raise WriterSuperseded(hold.turn_id, hold.writer)
        return turn

    def append(self, turn: Turn, records: Iterable[tuple[str, journal.What]]) -> Turn:
        """Seal records, each at its address, behind the turn's last; return the turn with its new last line."""
        chain = turn.chain or journal.first_chain(turn.tenant, turn.id)
        line = turn.line
        for address, what in records:
            line += 1
            record = journal.seal(
                chain,
                line=line,
                writer=turn.writer,
                time=self.now,
                address=Address(address),
                what=what,
                salt=secrets.token_bytes(16),
            )
            chain = record.chain
            self._records.append((turn, record))
            turn = _counted(turn, what)
        return self.put_turn(replace(turn, line=line, chain=chain, update_time=self.now))

    def tell(self, feed: str, tenant: str, kind: str, subject: str, detail: str = "") -> None:
        """Add a line to a feed, written with what it tells of."""
        self._news.append(News(feed, tenant, kind, subject, detail))

    def remember_call(self, turn: Turn, call: DelegateCall) -> None:
        """Keep what a delegate's call returned, by the turn's last record (R9)."""
        self._delegate_calls.append((turn, call))

    def declare(self, tenant: str, declarations: Iterable[Declaration]) -> None:
        """Keep what a host declares: the newest of a name holds for new tasks (R1.4)."""
        self.declared |= {(tenant, one.name, one.hash): one for one in declarations}

    def keep_tools(self, tenant: str, tools_hash: str, tools: tuple[Shown, ...]) -> None:
        """Keep what a task's model is shown, for every later writer (R6.2)."""
        self.tool_lists[(tenant, tools_hash)] = tools

    def approvals_of(self, turn_id: TurnId) -> list[Approval]:
        """Return what the turn asked and its writer has yet to act on, in the order asked."""
        return sorted(self.approvals.of(turn_id), key=lambda row: row.seq or sys.maxsize)

    def waiting(self, turn_id: TurnId) -> list[Approval]:
        """Return what the turn asked and nobody has settled."""
        return [row for row in self.approvals_of(turn_id) if row.state is ApprovalState.PENDING]

    def use_yes(self, approval_id: str) -> None:
        """Write that a call starts on this yes, which stands still (R3.6). Raises `YesGone`."""
        approval = self.approvals.get(approval_id)
        if approval is None or approval.state is not ApprovalState.APPROVED:
            raise YesGone
        self.approvals.put(approval.id, replace(approval, used=True))

    def calls_of(self, turn_id: TurnId) -> list[Call]:
        """Return the turn's attempts that are open or not copied, the oldest first."""
        return sorted(self.calls.of(turn_id), key=lambda row: (row.start_time, row.address, row.attempt))

    def open_turns(self, conversation: ConversationKey) -> list[Turn]:
        """Return the conversation's turns that have not ended."""
        return [turn for turn in self.turns.of("\0".join(conversation)) if not turn.state.ended]

    def given_after(self, turn: Turn) -> list[Turn]:
        """Return the turns that follow the same turn and were given later, the oldest first."""
        siblings = self.turns.of("\0".join(turn.conversation_key))
        later = [one for one in siblings if one.after_turn_id == turn.after_turn_id and one.number > turn.number]
        return sorted(later, key=lambda one: one.number)

    def connected(self, session: Session | None, number: int | None = None) -> bool:
        """Whether an incarnation is connected (R6.6); with a number, whether by that session."""
        return (
            session is not None
            and session.end_time is None
            and session.process in self.living
            and (number is None or session.number == number)
        )

    def repeated(self, request: Repeatable | None) -> str | None:
        """Return what the same request came to before. Raises `RequestIdReused` where it asked something else."""
        if request is None:
            return None
        known = self.requests.get(request.key)
        if known is None:
            return None
        digest, answer = known
        if digest != request.digest:
            raise RequestIdReused(request.key.request_id)
        return answer

    def remember(self, request: Repeatable | None, answer: str) -> None:
        """Keep what a request came to, for when it comes again."""
        if request is not None:
            self.requests.put(request.key, (request.digest, answer))


@dataclass(frozen=True, slots=True)
class Committed:
    """What one transaction came to: each unit's answer or its refusal, and the rows as they stand now."""

    answers: Sequence[Any]
    ledger: Ledger


def _counted(turn: Turn, what: journal.What) -> Turn:
    """Return the turn with what a record adds: to what it cost, and that it got somewhere."""
    if isinstance(what, journal.ModelReplied):
        turn = replace(turn, usage=turn.usage.plus(what))
    # What stops it next is another thing, and is tried again soon.
    return replace(turn, tries=0) if turn.tries and isinstance(what, _STEPS) else turn


# What a writer records once, however often it begins anew: a turn that records one of these got further.
_STEPS = (journal.TaskStarted, journal.InstructionsTakenUp, journal.ModelReplied, journal.ToolDone)


def unfinished(turn_calls: Sequence[Call]) -> list[Call]:
    """Return those that may have run and that a person must say something of (R6.5)."""
    return [call for call in turn_calls if call.unfinished and call.open]
