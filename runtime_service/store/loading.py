"""Loads the rows that the units of one transaction need, and locks them (`runtime.md` R5.5).

On PostgreSQL rows are locked in one order everywhere: conversations, turns (the root first), approvals, sessions,
calls; of one kind in the order of their keys. Conversations and turns that another replica has at this moment are
passed over: nobody waits for one while holding another, and the units that need it wait for the next batch. What
belongs to a turn changes under the turn's lock alone. On SQLite the transaction holds the one writer, which locks all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, and_, or_, select, tuple_

from runtime_service.domain.hosts import Incarnation
from runtime_service.domain.ledger import Ledger, Needs, RequestKey
from runtime_service.domain.turns import ConversationKey, TurnId, TurnState
from runtime_service.store import tables
from runtime_service.store.rows import approval_of, call_of, conversation_of, session_of, turn_of
from service_kit.statements import clock, one_writes

T = TypeVar("T")

NOT_ENDED = [state for state in TurnState if not state.ended]


@dataclass
class Loaded:
    """A ledger, and which of the rows that were needed another replica has."""

    ledger: Ledger
    # Turns that were named by their calls and approvals.
    turn_of: Mapping[str, TurnId]
    # Turns of the open calls of incarnations, as they were found before anything was locked.
    turns_at: Mapping[Incarnation, Collection[TurnId]]
    turns: dict[TurnId, ConversationKey] = field(default_factory=dict)
    conversations: set[ConversationKey] = field(default_factory=set)

    def turns_of(self, needs: Needs) -> set[TurnId]:
        """Return the turns that a unit needs, with their roots, but for the others of its conversations."""
        named = (self.turn_of[one] for one in chain(needs.calls, needs.approvals) if one in self.turn_of)
        turns = {*needs.turns, *needs.words_of, *needs.conversations_of, *named, *self._turns_at(needs.calls_of)}
        here = self.ledger.turns.loaded
        return turns | {here[one].root_id for one in turns if one in here}

    def lacks(self, needs: Needs) -> bool:
        """Whether another replica has something that a unit needs."""
        turns, here = self.turns_of(needs), self.ledger.turns.loaded
        keys = {*needs.conversations, *(here[one].conversation_key for one in needs.conversations_of if one in here)}
        return (
            not turns.isdisjoint(self.turns)
            or not keys.isdisjoint(self.conversations)
            or not keys.isdisjoint(self.turns.values())
            # A call that was begun while its incarnation was not yet locked.
            or not here.keys() >= self._turns_at(needs.calls_of)
        )

    def _turns_at(self, incarnations: Collection[Incarnation]) -> set[TurnId]:
        if not incarnations:
            return set()
        # Those of a turn that another replica has were found and not loaded.
        found = {turn_id for one in incarnations for turn_id in self.turns_at.get(one, ())}
        return found | {call.turn_id for call in self.ledger.calls.loaded.values() if call.incarnation in incarnations}


def load(connection: Connection, needs: Sequence[Needs]) -> Loaded:
    """Load what units need. The clock is read once all of it is locked."""
    return _Loading(connection, needs).all()


class _Loading:
    """Loads rows into a ledger, each statement's worth at once."""

    def __init__(self, connection: Connection, needs: Sequence[Needs]) -> None:
        self._connection = connection
        self._needs = needs
        self._locks = not one_writes(connection)
        self._calls = self._union(lambda need: need.calls)
        self._approvals = self._union(lambda need: need.approvals)
        self._calls_of = self._union(lambda need: need.calls_of)
        self._turns_at: dict[Incarnation, set[TurnId]] = defaultdict(set)
        self._turn_of = self._turns_of_named()
        # The time is told once everything is locked.
        self._ledger = Ledger(now=datetime.min.replace(tzinfo=UTC))
        self._loaded = Loaded(self._ledger, self._turn_of, self._turns_at)

    def all(self) -> Loaded:
        touched = set(self._turn_of.values())
        with_conversation = self._union(lambda need: need.conversations_of)
        keys = self._union(lambda need: need.conversations) | self._conversations_of(with_conversation)
        self._load_conversations(keys)
        self._load_turns(self._union(lambda need: need.turns) | with_conversation | touched, keys)
        self._load_given_after(self._union(lambda need: need.given_after))
        with_words = self._union(lambda need: need.words_of) | touched
        self._load_approvals(with_words)
        self._load_sessions(self._union(lambda need: need.sessions))
        self._load_calls(with_words)
        self._load_requests([need.request for need in self._needs if need.request is not None])
        self._ledger.now = clock(self._connection)
        if any(need.leases for need in self._needs):
            self._load_leases()
        return self._loaded

    def _union(self, of: Callable[[Needs], Iterable[T]]) -> set[T]:
        return {one for need in self._needs for one in of(need)}

    # What is found before anything is locked: it never changes

    def _turns_of_named(self) -> dict[str, TurnId]:
        """Return the turns of the calls and approvals that are named, and of the open calls of incarnations."""
        found: dict[str, TurnId] = {}
        started, asked = tables.calls, tables.approvals
        if self._calls or self._calls_of:
            of_calls = select(started.c.id, started.c.turn_id, started.c.incarnation).where(self._calls_named())
            for row in self._rows(of_calls):
                found[row["id"]] = row["turn_id"]
                self._turns_at[row["incarnation"]].add(row["turn_id"])
        if self._approvals:
            wanted = select(asked.c.id, asked.c.asking_turn_id).where(asked.c.id.in_(self._approvals))
            found |= {row["id"]: row["asking_turn_id"] for row in self._rows(wanted)}
        return found

    def _conversations_of(self, turn_ids: set[TurnId]) -> set[ConversationKey]:
        if not turn_ids:
            return set()
        table = tables.turns
        in_one = (table.c.id.in_(turn_ids), table.c.conversation_id != "")
        rows = self._rows(select(table.c.tenant, table.c.conversation_id).where(*in_one))
        return {ConversationKey(row["tenant"], row["conversation_id"]) for row in rows}

    # What is locked

    def _load_conversations(self, keys: set[ConversationKey]) -> None:
        if not keys:
            return
        table = tables.conversations
        of_keys = tuple_(table.c.tenant, table.c.id).in_(keys)
        wanted = select(table).where(of_keys).order_by(table.c.tenant, table.c.id)
        for row in self._rows(wanted.with_for_update(skip_locked=True)):
            self._ledger.conversations.load(ConversationKey(row["tenant"], row["id"]), conversation_of(row))
        missing = keys - self._ledger.conversations.loaded.keys()
        if self._locks and missing:
            rows = self._rows(select(table.c.tenant, table.c.id).where(of_keys))
            self._loaded.conversations = missing & {ConversationKey(row["tenant"], row["id"]) for row in rows}

    def _load_turns(self, ids: set[TurnId], keys: set[ConversationKey]) -> None:
        if not ids and not keys:
            return
        table = tables.turns
        which = self._turns_wanted(ids, keys)
        in_order = (table.c.root_id, table.c.id != table.c.root_id, table.c.id)
        wanted = select(table).where(which).order_by(*in_order).with_for_update(skip_locked=True)
        for row in self._rows(wanted):
            self._ledger.turns.load(row["id"], turn_of(row))
        here = self._ledger.turns.loaded
        roots = {turn.root_id for turn in here.values()}
        if self._locks and (keys or not here.keys() >= ids | roots):
            rows = self._rows(select(table.c.id, table.c.tenant, table.c.conversation_id).where(which))
            self._loaded.turns = {
                row["id"]: ConversationKey(row["tenant"], row["conversation_id"])
                for row in rows
                if row["id"] not in here
            }

    def _turns_wanted(self, ids: set[TurnId], keys: set[ConversationKey]) -> ColumnElement[bool]:
        table = tables.turns
        which: list[ColumnElement[bool]] = []
        if ids:
            which.append(table.c.id.in_(ids))
        if ids and self._locks:
            which.append(table.c.id.in_(select(table.c.root_id).where(table.c.id.in_(ids))))
        if keys:
            of_keys = tuple_(table.c.tenant, table.c.conversation_id).in_(keys)
            which.append(and_(of_keys, table.c.state.in_(NOT_ENDED)))
        return or_(*which)

    def _load_given_after(self, turn_ids: set[TurnId]) -> None:
        """Load what was given behind turns on their branches. None can come: their conversations are locked."""
        table = tables.turns
        later = [
            and_(
                table.c.tenant == turn.tenant,
                table.c.conversation_id == turn.conversation_id,
                table.c.after_turn_id == turn.after_turn_id,
                table.c.number > turn.number,
            )
            for turn in self._ledger.turns.loaded.values()
            if turn.id in turn_ids and turn.conversation_id
        ]
        if later:
            for row in self._rows(select(table).where(or_(*later))):
                self._ledger.turns.load(row["id"], turn_of(row))

    def _load_approvals(self, with_words: set[TurnId]) -> None:
        table = tables.approvals
        which: list[ColumnElement[bool]] = []
        if self._approvals:
            which.append(table.c.id.in_(self._approvals))
        if with_words:
            which.append(and_(table.c.asking_turn_id.in_(with_words), table.c.closed.is_(False)))
        if which:
            wanted = select(table).where(or_(*which), *self._of_locked(table.c.asking_turn_id)).order_by(table.c.seq)
            for row in self._rows(wanted.with_for_update()):
                self._ledger.approvals.load(row["id"], approval_of(row))

    def _load_sessions(self, incarnations: set[Incarnation]) -> None:
        if not incarnations:
            return
        table = tables.sessions
        # Who begins or ends a session waits for everybody who relies on it; those do not wait for each other.
        rely = not any(need.sessions_change for need in self._needs)
        wanted = select(table).where(table.c.incarnation.in_(incarnations)).order_by(table.c.incarnation)
        for row in self._rows(wanted.with_for_update(read=rely)):
            self._ledger.sessions.load(row["incarnation"], session_of(row))

    def _load_calls(self, with_words: set[TurnId]) -> None:
        table = tables.calls
        which: list[ColumnElement[bool]] = []
        if self._calls or self._calls_of:
            which.append(self._calls_named())
        if with_words:
            unsettled = or_(table.c.open.is_(True), table.c.to_copy.is_(True))
            which.append(and_(table.c.turn_id.in_(with_words), unsettled))
        if which:
            wanted = select(table).where(or_(*which), *self._of_locked(table.c.turn_id)).order_by(table.c.id)
            for row in self._rows(wanted.with_for_update()):
                self._ledger.calls.load(row["id"], call_of(row))

    def _calls_named(self) -> ColumnElement[bool]:
        table = tables.calls
        which: list[ColumnElement[bool]] = []
        if self._calls:
            which.append(table.c.id.in_(self._calls))
        if self._calls_of:
            which.append(and_(table.c.incarnation.in_(self._calls_of), table.c.open.is_(True)))
        return or_(*which)

    def _of_locked(self, turn_id: ColumnElement[Any]) -> list[ColumnElement[bool]]:
        """Leave out what belongs to turns that another replica has: it may be locked there."""
        return [turn_id.not_in(self._loaded.turns)] if self._loaded.turns else []

    # What others add to, and nobody changes

    def _load_requests(self, keys: Sequence[RequestKey]) -> None:
        if not keys:
            return
        table = tables.requests
        columns = (table.c.tenant, table.c.account, table.c.rpc, table.c.request_id)
        same = tuple_(*columns).in_([(key.tenant, key.account, key.rpc, key.request_id) for key in keys])
        for row in self._rows(select(table).where(same)):
            key = RequestKey(row["tenant"], row["account"], row["rpc"], row["request_id"])
            self._ledger.requests.load(key, (row["digest"], row["response_key"]))

    def _load_leases(self) -> None:
        table = tables.leases
        living = self._rows(select(table.c.process).where(table.c.until > self._ledger.now))
        self._ledger.living = frozenset(row["process"] for row in living)

    def _rows(self, statement: Select[Any]) -> Sequence[RowMapping]:
        return self._connection.execute(statement).mappings().all()
