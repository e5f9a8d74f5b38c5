"""One transaction of the committer: load the rows that its units need, run them, write what changed (R5.5).

Few statements, many rows: a statement costs far more than a row. Rows are locked in one order everywhere: turns, the
root first, then approvals, sessions, calls. On SQLite the transaction holds the one writer, which locks them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, Table, and_, bindparam, insert, or_, select, tuple_, update
from sqlalchemy.dialects.sqlite import insert as upsert

from runtime_service.domain.approvals import Approval
from runtime_service.domain.calls import Call
from runtime_service.domain.earlier import DelegateCall
from runtime_service.domain.hosts import CallId, Incarnation, Session
from runtime_service.domain.journal import Record, kind_of
from runtime_service.domain.ledger import Committed, Ledger, Needs, RequestKey, Rows, Unit
from runtime_service.domain.problems import PartUnavailable
from runtime_service.domain.turns import Conversation, ConversationKey, Turn, TurnId, TurnState
from runtime_service.store import tables
from service_kit.database import Database
from service_kit.errors import PartUnavailable as DatabaseAway
from service_kit.feeds import FeedEntry, append

V = TypeVar("V")
_Row = dict[str, Any]

NOT_ENDED = [state for state in TurnState if not state.ended]

_TURN = [field.name for field in fields(Turn)]
_APPROVAL = [field.name for field in fields(Approval)]
_CALL = [field.name for field in fields(Call)]
_SESSION = [field.name for field in fields(Session)]
_CONVERSATION = [field.name for field in fields(Conversation)]


class Transactions:
    """Runs units against the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self, units: Sequence[Unit[Any]]) -> Committed:
        """Run units in one transaction, each all or nothing. An answer that is an exception is a refusal.

        Raises `PartUnavailable` where the database is busy or away, and what else it raises; then nothing was written.
        """

        def transact(connection: Connection) -> Committed:
            ledger = _load(connection, [unit.needs for unit in units])
            answers = [_answer(ledger, unit) for unit in units]
            _write(connection, ledger)
            return Committed(answers, ledger)

        try:
            return await self._database.write(transact)
        except DatabaseAway as problem:
            raise PartUnavailable("database", problem.retry_after) from None


def _answer(ledger: Ledger, unit: Unit[Any]) -> Any:
    try:
        return ledger.run(unit)
    except Exception as refusal:
        return refusal


# Loading


def _load(connection: Connection, needs: Sequence[Needs]) -> Ledger:
    ledger = Ledger(now=datetime.now(UTC))
    loading = _Loading(connection, ledger)
    loading.calls({one for need in needs for one in need.calls})
    loading.open_calls_of({one for need in needs for one in need.calls_of})
    loading.approvals({one for need in needs for one in need.approvals})
    touched = {call.turn_id for call in ledger.calls.loaded.values()}
    touched |= {TurnId(approval.asking_turn_id) for approval in ledger.approvals.loaded.values()}
    loading.turns({one for need in needs for one in need.turns} | touched)
    with_conversation = {one for need in needs for one in need.conversations_of}
    conversations = {one for need in needs for one in need.conversations} | {
        turn.conversation_key
        for turn in ledger.turns.loaded.values()
        if turn.id in with_conversation and turn.conversation_id
    }
    loading.conversations(conversations)
    given_after = {one for need in needs for one in need.given_after}
    loading.given_after([turn for turn in ledger.turns.loaded.values() if turn.id in given_after])
    loading.words({one for need in needs for one in need.words_of} | touched)
    loading.sessions({one for need in needs for one in need.sessions})
    loading.requests([need.request for need in needs if need.request is not None])
    if any(need.leases for need in needs):
        loading.leases()
    return ledger


class _Loading:
    """Loads rows into a ledger, each statement's worth at once."""

    def __init__(self, connection: Connection, ledger: Ledger) -> None:
        self._connection = connection
        self._ledger = ledger

    def turns(self, ids: set[TurnId]) -> None:
        if ids:
            for row in self._rows(select(tables.turns).where(tables.turns.c.id.in_(ids))):
                self._ledger.turns.load(row["id"], turn_of(row))

    def conversations(self, keys: set[ConversationKey]) -> None:
        if not keys:
            return
        table, turns = tables.conversations, tables.turns
        wanted = select(table).where(tuple_(table.c.tenant, table.c.id).in_(keys))
        for row in self._rows(wanted):
            self._ledger.conversations.load(ConversationKey(row["tenant"], row["id"]), conversation_of(row))
        of_them = tuple_(turns.c.tenant, turns.c.conversation_id).in_(keys)
        for row in self._rows(select(turns).where(of_them, turns.c.state.in_(NOT_ENDED))):
            self._ledger.turns.load(row["id"], turn_of(row))

    def given_after(self, turns: Sequence[Turn]) -> None:
        table = tables.turns
        later = [
            and_(
                table.c.tenant == turn.tenant,
                table.c.conversation_id == turn.conversation_id,
                table.c.after_turn_id == turn.after_turn_id,
                table.c.number > turn.number,
            )
            for turn in turns
            if turn.conversation_id
        ]
        if later:
            for row in self._rows(select(table).where(or_(*later))):
                self._ledger.turns.load(row["id"], turn_of(row))

    def approvals(self, ids: set[str]) -> None:
        if ids:
            for row in self._rows(select(tables.approvals).where(tables.approvals.c.id.in_(ids))):
                self._ledger.approvals.load(row["id"], approval_of(row))

    def calls(self, ids: set[CallId]) -> None:
        if ids:
            for row in self._rows(select(tables.calls).where(tables.calls.c.id.in_(ids))):
                self._ledger.calls.load(row["id"], call_of(row))

    def open_calls_of(self, incarnations: set[Incarnation]) -> None:
        if incarnations:
            table = tables.calls
            of_them = select(table).where(table.c.incarnation.in_(incarnations), table.c.open.is_(True))
            for row in self._rows(of_them):
                self._ledger.calls.load(row["id"], call_of(row))

    def words(self, turn_ids: set[TurnId]) -> None:
        if not turn_ids:
            return
        asked, started = tables.approvals, tables.calls
        not_closed = select(asked).where(asked.c.asking_turn_id.in_(turn_ids), asked.c.closed.is_(False))
        for row in self._rows(not_closed):
            self._ledger.approvals.load(row["id"], approval_of(row))
        unsettled = select(started).where(
            started.c.turn_id.in_(turn_ids), or_(started.c.open.is_(True), started.c.to_copy.is_(True))
        )
        for row in self._rows(unsettled):
            self._ledger.calls.load(row["id"], call_of(row))

    def sessions(self, incarnations: set[Incarnation]) -> None:
        if incarnations:
            table = tables.sessions
            for row in self._rows(select(table).where(table.c.incarnation.in_(incarnations))):
                self._ledger.sessions.load(row["incarnation"], Session(**_picked(row, _SESSION)))

    def requests(self, keys: Sequence[RequestKey]) -> None:
        if not keys:
            return
        table = tables.requests
        columns = (table.c.tenant, table.c.account, table.c.rpc, table.c.request_id)
        same = tuple_(*columns).in_([(key.tenant, key.account, key.rpc, key.request_id) for key in keys])
        for row in self._rows(select(table).where(same)):
            key = RequestKey(row["tenant"], row["account"], row["rpc"], row["request_id"])
            self._ledger.requests.load(key, (row["digest"], row["response_key"]))

    def leases(self) -> None:
        table = tables.leases
        living = self._rows(select(table.c.process).where(table.c.until > self._ledger.now))
        self._ledger.living = frozenset(row["process"] for row in living)

    def _rows(self, statement: Any) -> Sequence[RowMapping]:
        return self._connection.execute(statement).mappings().all()


def _picked(row: RowMapping, names: Iterable[str]) -> _Row:
    return {name: row[name] for name in names}


def turn_of(row: RowMapping) -> Turn:
    """Return the turn that a row of `turns` is."""
    return Turn(**_picked(row, _TURN))


def conversation_of(row: RowMapping) -> Conversation:
    """Return the conversation that a row of `conversations` is."""
    return Conversation(**_picked(row, _CONVERSATION))


def approval_of(row: RowMapping) -> Approval:
    """Return the approval that a row of `approvals` is."""
    return Approval(**_picked(row, _APPROVAL))


def call_of(row: RowMapping) -> Call:
    """Return the call that a row of `calls` is."""
    return Call(**_picked(row, _CALL))


# Writing


# What changes of a row once it is written; the rest of it is never written again.
_CHANGING = {
    tables.turns: (
        "state", "update_time", "after_turn_id", "output", "cause", "ready_because", "needed_approval", "writer",
        "process", "line", "chain", "awaits_tools", "tries", "retry_time", "usage",
    ),
    tables.approvals: ("state", "answers", "outcome", "to_copy", "used", "closed"),
    tables.calls: (
        "session", "deadline", "unfinished", "result", "resolution", "late", "result_copied", "resolution_copied",
        "open", "to_copy",
    ),
    tables.conversations: ("approve", "turns", "newest_done"),
    tables.sessions: ("host", "number", "process", "start_time", "end_time"),
}  # fmt: skip


def _write(connection: Connection, ledger: Ledger) -> None:
    _put(connection, tables.turns, ("id",), ledger.turns, _turn_row)
    _insert(connection, tables.records, [_record_row(turn, one) for turn, one in ledger.records])
    _insert(connection, tables.delegate_calls, [_delegate_row(*one) for one in ledger.delegate_calls])
    _put(connection, tables.approvals, ("id",), ledger.approvals, _approval_row)
    asked = [row for one in _new(ledger.approvals) for row in _put_to_rows(one)]
    _insert(connection, tables.put_to, asked)
    _put(connection, tables.calls, ("id",), ledger.calls, _call_row)
    _put(connection, tables.conversations, ("tenant", "id"), ledger.conversations, _conversation_row)
    _put(connection, tables.sessions, ("incarnation",), ledger.sessions, _session_row)
    _insert(connection, tables.requests, _request_rows(ledger))
    _keep(connection, ledger)
    for feed, table in tables.FEEDS.items():
        entries = [
            FeedEntry(news.tenant, news.kind, news.subject, ledger.now, news.detail)
            for news in ledger.news
            if news.feed == feed
        ]
        append(connection, table, entries)


def _new(rows: Rows[Any, V]) -> list[V]:
    return [row for key, row in rows.changed.items() if key not in rows.loaded]


def _put(
    connection: Connection, table: Table, key: Sequence[str], rows: Rows[Any, V], as_row: Callable[[V], _Row]
) -> None:
    _insert(connection, table, [as_row(row) for row in _new(rows)])
    changed = [as_row(row) for at, row in rows.changed.items() if row is not rows.loaded.get(at, row)]
    if changed:
        statement = (
            update(table)
            .where(*(table.c[name] == bindparam(f"the_{name}") for name in key))
            .values({name: bindparam(name) for name in _CHANGING[table]})
        )
        where = [{f"the_{name}": row[name] for name in key} for row in changed]
        what = [{name: row[name] for name in _CHANGING[table]} for row in changed]
        connection.execute(statement, [one | other for one, other in zip(what, where, strict=True)])


def _insert(connection: Connection, table: Table, rows: Sequence[_Row]) -> None:
    if rows:
        connection.execute(insert(table), rows)


def _own_row(value: Any, names: Iterable[str]) -> _Row:
    return {name: getattr(value, name) for name in names}


def _turn_row(turn: Turn) -> _Row:
    row = _own_row(turn, _TURN)
    del row["made"]
    return row | {"work_for_id": turn.work_for.id, "given_by_id": turn.given_by.id}


def _conversation_row(conversation: Conversation) -> _Row:
    row = _own_row(conversation, _CONVERSATION)
    del row["made"]
    return row | {"opened_by_id": conversation.opened_by.id}


def _approval_row(approval: Approval) -> _Row:
    row = _own_row(approval, _APPROVAL)
    del row["seq"]
    return row


def _put_to_rows(approval: Approval) -> list[_Row]:
    return [
        {"tenant": approval.tenant, "who": who, "approval_id": approval.id, "turn_id": approval.turn_id}
        for who in approval.put_to
    ]


def _session_row(session: Session) -> _Row:
    return _own_row(session, _SESSION)


def _call_row(call: Call) -> _Row:
    return _own_row(call, _CALL) | {"open": call.open, "to_copy": call.to_copy}


def _record_row(turn: Turn, record: Record) -> _Row:
    return {
        "turn_id": turn.id,
        "line": record.line,
        "tenant": turn.tenant,
        "writer": record.writer,
        "time": record.time,
        "address": record.address,
        "kind": kind_of(record.what),
        "facts": record.facts,
        "words": record.words,
        "words_salt": record.words_salt,
        "words_digest": record.words_digest,
        "content_digest": record.content_digest,
        "chain": record.chain,
        "erase_time": record.erase_time,
    }


def _delegate_row(turn: Turn, call: DelegateCall) -> _Row:
    return {
        "turn_id": turn.id,
        "line": turn.line,
        "tenant": turn.tenant,
        "delegate": call.delegate,
        "input": call.said.input,
        "output": call.said.output,
    }


def _request_rows(ledger: Ledger) -> list[_Row]:
    return [
        {
            "tenant": key.tenant,
            "account": key.account,
            "rpc": key.rpc,
            "request_id": key.request_id,
            "digest": digest,
            "response_key": answer,
            "time": ledger.now,
        }
        for key, (digest, answer) in ledger.requests.changed.items()
    ]


def _keep(connection: Connection, ledger: Ledger) -> None:
    """Keep what is found by its hash: written once, whoever brings it."""
    if ledger.declared:
        rows = [
            {"tenant": tenant, "name": name, "hash": digest, "declaration": one, "declare_time": ledger.now}
            for (tenant, name, digest), one in ledger.declared.items()
        ]
        put = upsert(tables.declarations)
        newest = {"declaration": put.excluded.declaration, "declare_time": put.excluded.declare_time}
        keys = ["tenant", "name", "hash"]
        connection.execute(put.on_conflict_do_update(index_elements=keys, set_=newest), rows)
    if ledger.tool_lists:
        lists = [
            {"tenant": tenant, "hash": digest, "tools": tools} for (tenant, digest), tools in ledger.tool_lists.items()
        ]
        connection.execute(upsert(tables.tool_lists).on_conflict_do_nothing(), lists)
