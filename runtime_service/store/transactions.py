"""One transaction of the committer: load the rows that its units need, run them, write what changed (R5.5).

Few statements, many rows: a statement costs far more than a row. What several replicas may write at once under a key
that callers chose is written in the order of its keys, so that they never wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, bindparam, insert, select, update

from runtime_service.domain.ledger import LATER, Committed, Ledger, Needs, Rows, Unit
from runtime_service.domain.problems import PartUnavailable
from runtime_service.domain.turns import TurnId
from runtime_service.store import tables
from runtime_service.store.loading import Loaded, load
from runtime_service.store.rows import (
    Row,
    approval_row,
    call_row,
    conversation_row,
    delegate_row,
    put_to_rows,
    record_row,
    session_row,
    turn_row,
)
from service_kit.database import Database
from service_kit.errors import PartUnavailable as DatabaseAway
from service_kit.feeds import FeedEntry, append
from service_kit.statements import upsert

V = TypeVar("V")


class Transactions:
    """Runs units against the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self, units: Sequence[Unit[Any]]) -> Committed:
        """Run units in one transaction, each all or nothing. An answer that is an exception is a refusal.

        Raises `PartUnavailable` where the database is busy or away, and what else it raises; then nothing was written.
        """
        needs = [unit.needs for unit in units]

        def transact(connection: Connection) -> Committed:
            loaded = load(connection, needs)
            answers = list(_answers(loaded, units, needs))
            _write(connection, loaded.ledger)
            return Committed(answers, loaded.ledger)

        try:
            return await self._database.write(transact, _kept)
        except DatabaseAway as problem:
            raise PartUnavailable("database", problem.retry_after) from None


def _answers(loaded: Loaded, units: Sequence[Unit[Any]], needs: Sequence[Needs]) -> Iterator[Any]:
    """Run units. One that waits for the next batch is overtaken by no other of the same turn."""
    waiting: set[TurnId] = set()
    for unit, need in zip(units, needs, strict=True):
        turns = loaded.turns_of(need)
        if loaded.lacks(need) or not waiting.isdisjoint(turns):
            waiting |= turns
            yield LATER
        else:
            yield _answer(loaded.ledger, unit)


def _answer(ledger: Ledger, unit: Unit[Any]) -> Any:
    try:
        return ledger.run(unit)
    except Exception as refusal:
        return refusal


def _kept(connection: Connection, done: Committed) -> bool | None:
    """Look whether a transaction whose answer was lost was kept (R5.5): chains are salted, none is made twice."""
    if not done.ledger.records:
        return None
    table, (turn, record) = tables.records, done.ledger.records[-1]
    wanted = select(table.c.chain).where(table.c.turn_id == turn.id, table.c.line == record.line)
    return connection.execute(wanted).scalar_one_or_none() == record.chain


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
    tables.sessions: ("host", "number", "process", "start_time", "end_time", "offers"),
}  # fmt: skip


def _write(connection: Connection, ledger: Ledger) -> None:
    _put(connection, tables.turns, ("id",), ledger.turns, turn_row)
    _insert(connection, tables.records, [record_row(turn, one) for turn, one in ledger.records])
    _insert(connection, tables.delegate_calls, [delegate_row(*one) for one in ledger.delegate_calls])
    _put(connection, tables.approvals, ("id",), ledger.approvals, approval_row)
    asked = [row for one in _new(ledger.approvals) for row in put_to_rows(one)]
    _insert(connection, tables.put_to, asked)
    _put(connection, tables.calls, ("id",), ledger.calls, call_row)
    _put(connection, tables.conversations, ("tenant", "id"), ledger.conversations, conversation_row, by_key=True)
    _put(connection, tables.sessions, ("incarnation",), ledger.sessions, session_row, by_key=True)
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
    connection: Connection,
    table: Table,
    key: Sequence[str],
    rows: Rows[Any, V],
    as_row: Callable[[V], Row],
    *,
    by_key: bool = False,
) -> None:
    new = [as_row(row) for row in _new(rows)]
    _insert(connection, table, sorted(new, key=lambda row: [row[name] for name in key]) if by_key else new)
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


def _insert(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    if rows:
        connection.execute(insert(table), rows)


def _request_rows(ledger: Ledger) -> list[Row]:
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
        for key, (digest, answer) in sorted(ledger.requests.changed.items(), key=lambda item: astuple(item[0]))
    ]


def _keep(connection: Connection, ledger: Ledger) -> None:
    """Keep what is found by its hash: written once, whoever brings it."""
    if ledger.declared:
        rows = [
            {"tenant": tenant, "name": name, "hash": digest, "declaration": one, "declare_time": ledger.now}
            for (tenant, name, digest), one in sorted(ledger.declared.items(), key=lambda item: item[0])
        ]
        put = upsert(connection, tables.declarations)
        newest = {"declaration": put.excluded.declaration, "declare_time": put.excluded.declare_time}
        keys = ["tenant", "name", "hash"]
        connection.execute(put.on_conflict_do_update(index_elements=keys, set_=newest), rows)
    if ledger.tool_lists:
        lists = [
            {"tenant": tenant, "hash": digest, "tools": tools}
            for (tenant, digest), tools in sorted(ledger.tool_lists.items(), key=lambda item: item[0])
        ]
        connection.execute(upsert(connection, tables.tool_lists).on_conflict_do_nothing(), lists)
