"""What replicas tell each other through rows: one look at all that the others did, and reads on their way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import timedelta

from sqlalchemy import ColumnElement, Connection, RowMapping, delete, exists, insert, or_, select, tuple_, update

from runtime_service.domain.approvals import Approval
from runtime_service.domain.calls import Call, Result
from runtime_service.domain.effects import Declaration
from runtime_service.domain.hosts import CallId, Incarnation, Session
from runtime_service.domain.replicas import Held, Read, Seen, SessionElsewhere
from runtime_service.domain.turns import TurnId, TurnState
from runtime_service.store import tables
from runtime_service.store.loading import NOT_ENDED
from runtime_service.store.rows import approval_of, call_of, session_of
from service_kit.database import Database
from service_kit.statements import clock

# Reads whose asker died are removed once nobody can wait for them any more.
LONGEST_READ = timedelta(days=1)

_READ = [field.name for field in fields(Read)]


class Replicas:
    """The rows by which replicas tell each other."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Declarations never change: a hash is of what was declared.
        self._declarations: dict[tuple[str, str, str], Declaration] = {}

    async def look(self, held: Held) -> Seen:
        """Look at what others did, in one snapshot."""
        return await self._database.follow(lambda connection: self._look(connection, held))

    async def ask(self, read: Read) -> None:
        """Write a read for the replica that holds its host's session."""
        row = asdict(read) | {"result": read.result}
        await self._database.write(
            lambda connection: connection.execute(insert(tables.reads), row | {"ask_time": clock(connection)}).close()
        )

    async def answer(self, incarnation: Incarnation, results: Mapping[CallId, Result]) -> None:
        """Write what a host said of reads: whoever asked finds it. Those that nobody asks any more are passed over."""
        table = tables.reads

        def write(connection: Connection) -> None:
            for call_id, result in sorted(results.items()):
                asked = (table.c.id == call_id, table.c.incarnation == incarnation, table.c.result.is_(None))
                connection.execute(update(table).where(*asked).values(result=result))

        await self._database.write(write)

    async def forget(self, call_ids: Collection[CallId]) -> None:
        """Remove reads that nobody waits for any more."""
        table = tables.reads

        def remove(connection: Connection) -> None:
            old = table.c.ask_time < clock(connection) - LONGEST_READ
            connection.execute(delete(table).where(or_(table.c.id.in_(call_ids), old)))

        await self._database.write(remove)

    def _look(self, connection: Connection, held: Held) -> Seen:
        reads = self._reads(connection, held)
        calls = _calls(connection, held)
        of_others = _sent(connection, held.sent)
        wanted = {read.id for read in reads} | {call.id for call in of_others if _is_waited_for(call)}
        return Seen(
            sessions=self._sessions(connection, held.process),
            calls=calls,
            reads=[read for read in reads if read.result is None],
            given_up=[one for one in held.sent if one not in wanted],
            settled=[call.id for call in of_others if call.result is not None],
            results={read.id: read.result for read in self._own_reads(connection, held) if read.result is not None},
            approvals=_approvals(connection, held.process),
            words=_words(connection, held.process),
            lost=_lost(connection, held.turns),
        )

    def _sessions(self, connection: Connection, process: str) -> Sequence[SessionElsewhere]:
        table, leases = tables.sessions, tables.leases
        lives = exists().where(leases.c.process == table.c.process, leases.c.until > clock(connection))
        wanted = select(table).where(table.c.end_time.is_(None), table.c.process != process, lives)
        sessions = [session_of(row) for row in connection.execute(wanted).mappings()]
        self._learn(connection, sessions)
        return [
            SessionElsewhere(
                tenant=one.tenant,
                host=one.host,
                incarnation=one.incarnation,
                number=one.number,
                offers={
                    offer.name: self._declarations[one.tenant, offer.name, offer.hash]
                    for offer in one.offers
                    if (one.tenant, offer.name, offer.hash) in self._declarations
                },
            )
            for one in sessions
        ]

    def _learn(self, connection: Connection, sessions: Sequence[Session]) -> None:
        """Look up what is offered and was never seen here."""
        offered = {(one.tenant, offer.name, offer.hash) for one in sessions for offer in one.offers}
        unknown = list(offered - self._declarations.keys())
        table = tables.declarations
        for start in range(0, len(unknown), 1_000):
            of_these = tuple_(table.c.tenant, table.c.name, table.c.hash).in_(unknown[start : start + 1_000])
            for row in connection.execute(select(table).where(of_these)).mappings():
                self._declarations[row["tenant"], row["name"], row["hash"]] = row["declaration"]

    def _reads(self, connection: Connection, held: Held) -> Sequence[Read]:
        """Return the reads for hosts that are connected here, while whoever asked lives."""
        if not held.sessions:
            return []
        table, leases = tables.reads, tables.leases
        lives = exists().where(leases.c.process == table.c.process, leases.c.until > clock(connection))
        wanted = select(table).where(table.c.incarnation.in_(held.sessions), lives).order_by(table.c.ask_time)
        return [_read_of(row) for row in connection.execute(wanted).mappings()]

    def _own_reads(self, connection: Connection, held: Held) -> Sequence[Read]:
        if not held.reads:
            return []
        rows = connection.execute(select(tables.reads).where(tables.reads.c.id.in_(held.reads)))
        return [_read_of(row) for row in rows.mappings()]


def _read_of(row: RowMapping) -> Read:
    return Read(**{name: row[name] for name in _READ})


def _is_waited_for(call: Call) -> bool:
    return call.open and not call.unfinished


def _calls(connection: Connection, held: Held) -> Sequence[Call]:
    """Return the calls of hosts that are connected here, but for those that nobody waits for."""
    if not held.sessions:
        return []
    table, turns = tables.calls, tables.turns
    lives = exists().where(turns.c.id == table.c.turn_id, turns.c.state.in_(NOT_ENDED))
    waits = (table.c.open.is_(True), table.c.unfinished.is_(False), lives)
    wanted = select(table).where(table.c.incarnation.in_(held.sessions), *waits).order_by(table.c.start_time)
    return [call_of(row) for row in connection.execute(wanted).mappings()]


def _sent(connection: Connection, call_ids: Sequence[CallId]) -> Sequence[Call]:
    if not call_ids:
        return []
    rows = connection.execute(select(tables.calls).where(tables.calls.c.id.in_(call_ids)))
    return [call_of(row) for row in rows.mappings()]


def _approvals(connection: Connection, process: str) -> Sequence[Approval]:
    table, turns = tables.approvals, tables.turns
    said = (table.c.to_copy.is_(True), table.c.closed.is_(False))
    wanted = select(table).join(turns, turns.c.id == table.c.asking_turn_id).where(*said, *_held_by(process))
    return [approval_of(row) for row in connection.execute(wanted.order_by(table.c.seq)).mappings()]


def _words(connection: Connection, process: str) -> Sequence[Call]:
    table, turns = tables.calls, tables.turns
    said = table.c.to_copy.is_(True)
    wanted = select(table).join(turns, turns.c.id == table.c.turn_id).where(said, *_held_by(process))
    return [call_of(row) for row in connection.execute(wanted.order_by(table.c.id)).mappings()]


def _held_by(process: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return tables.turns.c.state == TurnState.RUNNING, tables.turns.c.process == process


def _lost(connection: Connection, held: Mapping[TurnId, int]) -> Sequence[TurnId]:
    """Return the turns that another writer took meanwhile."""
    if not held:
        return []
    table = tables.turns
    rows = connection.execute(select(table.c.id, table.c.writer).where(table.c.id.in_(held)))
    return [row.id for row in rows if row.writer > held[row.id]]
