"""Reads everything that is kept, turn by turn, and says what of it does not hold: `check` (docs/running.md).

Each turn, and each conversation, is read in one snapshot, so that a database in use never looks wrong; and in pages, so
that none is held in memory whole. The rules are `domain/soundness`; that what a row names is there is asked here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, FromClause, RowMapping, Table, exists, func, select

from runtime_service.domain.addresses import Address
from runtime_service.domain.earlier import DelegateCall, Said
from runtime_service.domain.journal import Record, rebuilt
from runtime_service.domain.soundness import Kept, Place, Wrong, wrong_of_conversation, wrong_of_turn
from runtime_service.domain.turns import Turn
from runtime_service.store import tables
from runtime_service.store.migrations import SCRIPTS
from runtime_service.store.rows import approval_of, call_of, conversation_of, turn_of
from service_kit.checking import kept

RECORDS_AT_ONCE = 64
# What reading a row raises whose columns are not what the service writes.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, LookupError)


async def check(url: str) -> AsyncIterator[Wrong]:
    """Say what does not hold of a database, as it is found. Raises `SetupProblem` where it is not there."""
    async with kept(url, SCRIPTS) as database:
        for table, look in ((tables.turns, _of_turn), (tables.conversations, _of_conversation)):
            made: int | None = 0
            while made is not None:
                made, found = await database.read(partial(_next, table=table, after=made, look=look))
                for wrong in found:
                    yield wrong
        for orphans in ORPHANS:
            for wrong in await database.read(orphans):
                yield wrong


def _next(
    connection: Connection, table: Table, after: int, look: Callable[[Connection, RowMapping], Iterator[Wrong]]
) -> tuple[int | None, list[Wrong]]:
    """Look at the next row that was made; return its number, None behind the last."""
    wanted = select(table.c.made, table.c.id).where(table.c.made > after).order_by(table.c.made).limit(1)
    row = connection.execute(wanted).mappings().first()
    if row is None:
        return None, []
    try:
        return row["made"], list(look(connection, row))
    except UNREADABLE:
        return row["made"], [Wrong(f"{table.name.removesuffix('s')} {row['id']}", "a row of it cannot be read", "R5.1")]


# Turns


def _of_turn(connection: Connection, key: RowMapping) -> Iterator[Wrong]:
    table, asked, calls = tables.turns, tables.approvals, tables.calls
    row = connection.execute(select(table).where(table.c.made == key["made"])).mappings().one()
    turn = turn_of(row)
    if (row["work_for_id"], row["given_by_id"]) != (turn.work_for.id, turn.given_by.id):
        yield Wrong(f"turn {turn.id}", "the columns that lists go by do not say whose it is", "R10")
    approvals = [
        approval_of(one)
        for one in _rows(connection, select(asked).where(asked.c.asking_turn_id == turn.id).order_by(asked.c.seq))
    ]
    made = _rows(connection, select(calls).where(calls.c.turn_id == turn.id))
    for one in made:
        call = call_of(one)
        if (one["open"], one["to_copy"]) != (call.open, call.to_copy):
            yield Wrong(f"call {call.id}", "its row says otherwise than its words whether it is open", "R5.1")
    ids = [approval.id for approval in approvals]
    yield from wrong_of_turn(
        Kept(
            turn=turn,
            records=_records(connection, turn),
            approvals=approvals,
            calls=[call_of(one) for one in made],
            put_to=_put_to(connection, ids),
            told=_told(connection, tables.approval_feed, ids) | _told(connection, tables.turn_feed, [turn.id]),
            sessions=_sessions(connection, {one["incarnation"] for one in made}),
            remembered=_remembered(connection, turn),
            has_agent=partial(_has_agent, connection, turn.tenant),
            has_tools=partial(_has_tools, connection, turn.tenant),
        )
    )


def _records(connection: Connection, turn: Turn) -> Iterator[tuple[int, Record | None]]:
    table, line = tables.records, 0
    while True:
        wanted = select(table).where(table.c.turn_id == turn.id, table.c.line > line).order_by(table.c.line)
        rows = _rows(connection, wanted.limit(RECORDS_AT_ONCE))
        for row in rows:
            line = row["line"]
            yield line, _record(row)
        if len(rows) < RECORDS_AT_ONCE:
            return


def _record(row: RowMapping) -> Record | None:
    try:
        what = rebuilt(row["kind"], row["facts"], row["words"] if row["erase_time"] is None else None)
    except UNREADABLE:
        return None
    same = ("line", "writer", "time", "facts", "words", "words_salt", "words_digest", "content_digest", "chain")
    return Record(
        what=what, address=Address(row["address"]), erase_time=row["erase_time"], **{name: row[name] for name in same}
    )


def _put_to(connection: Connection, ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
    table = tables.put_to
    found: dict[str, frozenset[str]] = {}
    for row in _rows(connection, select(table).where(table.c.approval_id.in_(ids))) if ids else ():
        found[row["approval_id"]] = found.get(row["approval_id"], frozenset()) | {row["who"]}
    return found


def _told(connection: Connection, feed: Table, subjects: Sequence[str]) -> frozenset[tuple[str, str, str]]:
    wanted = select(feed.c.kind, feed.c.subject, feed.c.detail).where(feed.c.subject.in_(subjects)).distinct()
    return frozenset((row["kind"], row["subject"], row["detail"]) for row in _rows(connection, wanted))


def _sessions(connection: Connection, incarnations: set[str]) -> Mapping[str, int]:
    table = tables.sessions
    wanted = select(table.c.incarnation, table.c.number).where(table.c.incarnation.in_(incarnations))
    return {row["incarnation"]: row["number"] for row in _rows(connection, wanted)}


def _remembered(connection: Connection, turn: Turn) -> Mapping[int, DelegateCall]:
    table = tables.delegate_calls
    rows = _rows(connection, select(table).where(table.c.turn_id == turn.id, table.c.tenant == turn.tenant))
    return {row["line"]: DelegateCall(row["delegate"], Said(row["input"], row["output"])) for row in rows}


def _has_agent(connection: Connection, tenant: str, name: str, version: str) -> bool:
    table = tables.agents
    wanted = exists().where(table.c.tenant == tenant, table.c.name == name, table.c.version == version)
    return bool(connection.execute(select(wanted)).scalar_one())


def _has_tools(connection: Connection, tenant: str, tools_hash: str) -> bool:
    table = tables.tool_lists
    return bool(
        connection.execute(select(exists().where(table.c.tenant == tenant, table.c.hash == tools_hash))).scalar_one()
    )


# Conversations


def _of_conversation(connection: Connection, key: RowMapping) -> Iterator[Wrong]:
    table, turns, records = tables.conversations, tables.turns, tables.records
    row = connection.execute(select(table).where(table.c.made == key["made"])).mappings().one()
    conversation = conversation_of(row)
    ended = (
        select(func.max(records.c.time))
        .where(records.c.turn_id == turns.c.id, records.c.kind == "turn_ended")
        .scalar_subquery()
    )
    wanted = select(turns.c.id, turns.c.number, turns.c.state, turns.c.after_turn_id, ended.label("end_time")).where(
        turns.c.tenant == conversation.tenant, turns.c.conversation_id == conversation.id
    )
    yield from wrong_of_conversation(conversation, [Place(**one) for one in _rows(connection, wanted)])


# What names something that is not there


def _orphans(
    table: Table,
    where: Callable[[RowMapping], str],
    what: str,
    there: ColumnElement[bool],
    rule: str,
    only: ColumnElement[bool] | None = None,
) -> Callable[[Connection], list[Wrong]]:
    """Return what looks for rows of which what they name is not there."""
    columns = list(table.primary_key) + [table.c[name] for name in _NAMED if name in table.c]
    wanted = select(*dict.fromkeys(columns)).where(~there)
    if only is not None:
        wanted = wanted.where(only)

    def look(connection: Connection) -> list[Wrong]:
        return [Wrong(one, what, rule) for one in dict.fromkeys(where(row) for row in _rows(connection, wanted))]

    return look


_NAMED = ("id", "turn_id", "approval_id", "subject", "rpc", "request_id", "response_key")


def _is(table: FromClause, **equal: Column[Any]) -> ColumnElement[bool]:
    return exists().where(*(table.c[name] == column for name, column in equal.items()))


_turns, _records_of, _approvals, _calls = tables.turns, tables.records, tables.approvals, tables.calls
_put, _requests, _asked, _stops = tables.put_to, tables.requests, tables.approval_feed, tables.turn_feed
_remembered_of = tables.delegate_calls


def _request(row: RowMapping) -> str:
    return f"request {row['request_id']} of {row['rpc']}"


ORPHANS: Sequence[Callable[[Connection], list[Wrong]]] = (
    _orphans(
        _records_of, lambda row: f"turn {row['turn_id']}", "there are records of it, and no turn",
        _is(_turns, id=_records_of.c.turn_id, tenant=_records_of.c.tenant), "R5.1",
    ),
    _orphans(
        _approvals, lambda row: f"approval {row['id']}", "its turn is not there",
        _is(_turns, id=_approvals.c.asking_turn_id, root_id=_approvals.c.turn_id, tenant=_approvals.c.tenant), "R3.1",
    ),
    _orphans(
        _calls, lambda row: f"call {row['id']}", "its turn is not there",
        _is(_turns, id=_calls.c.turn_id, tenant=_calls.c.tenant), "R5.1",
    ),
    _orphans(
        _remembered_of, lambda row: f"turn {row['turn_id']}", "what a delegate remembers of it is there, and no turn",
        _is(_turns, id=_remembered_of.c.turn_id, tenant=_remembered_of.c.tenant), "R9",
    ),
    _orphans(
        tables.reads, lambda row: f"turn {row['turn_id']}", "a read of it is on its way, and no turn is there",
        _is(_turns, id=tables.reads.c.turn_id, tenant=tables.reads.c.tenant), "R5.1",
    ),
    _orphans(
        _put, lambda row: f"approval {row['approval_id']}", "it is put to somebody, and is not there",
        _is(_approvals, id=_put.c.approval_id, turn_id=_put.c.turn_id, tenant=_put.c.tenant), "R10",
    ),
    _orphans(
        _asked, lambda row: f"approval {row['subject']}", "its feed tells of it, and it is not there",
        _is(_approvals, id=_asked.c.subject, turn_id=_asked.c.detail, tenant=_asked.c.tenant), "R11",
    ),
    _orphans(
        _stops, lambda row: f"turn {row['subject']}", "its feed tells of it, and it is not there",
        _is(_turns, id=_stops.c.subject, tenant=_stops.c.tenant), "R11",
    ),
    _orphans(
        _turns, lambda row: f"turn {row['id']}", "its conversation is not there",
        _is(tables.conversations, id=_turns.c.conversation_id, tenant=_turns.c.tenant), "R9",
        _turns.c.conversation_id != "",
    ),
    _orphans(
        _turns, lambda row: f"turn {row['id']}", "its agent's version is not there",
        _is(tables.agents, name=_turns.c.agent, version=_turns.c.agent_version, tenant=_turns.c.tenant), "R6.2",
    ),
    _orphans(
        _turns, lambda row: f"turn {row['id']}", "the turn that it is part of is not there",
        _is(_turns.alias(), id=_turns.c.root_id), "R7",
    ),
    _orphans(
        _requests, _request, "the turn that it came to is not there",
        _is(_turns, id=_requests.c.response_key, tenant=_requests.c.tenant), "R9",
        _requests.c.rpc.in_(["StartTurn", "CallAgent", "ResumeTurn", "AbandonTurn"]),
    ),
    _orphans(
        _requests, _request, "the approval that it answered is not there",
        _is(_approvals, id=_requests.c.response_key, tenant=_requests.c.tenant), "R9",
        _requests.c.rpc == "DecideApproval",
    ),
)  # fmt: skip


def _rows(connection: Connection, wanted: Any) -> Sequence[RowMapping]:
    return connection.execute(wanted).mappings().all()
