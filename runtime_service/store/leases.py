"""Processes' leases, and the sessions held under them (`runtime.md` R6.1, R6.6)."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement, Connection, bindparam, delete, insert, select, update

from runtime_service.store import tables
from service_kit.database import Database
from service_kit.statements import clock


class Leases:
    """The leases in the database, judged by its clock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def end_all(self) -> None:
        """End every lease and every session: one process holds a SQLite data folder, and it starts now (R6.1)."""

        def end(connection: Connection) -> None:
            connection.execute(delete(tables.leases))
            _end_sessions(connection, _running())

        await self._database.write(end)

    async def begin(self, process: str, seconds: float) -> None:
        """Write a process's lease."""

        def begin(connection: Connection) -> None:
            until = clock(connection) + timedelta(seconds=seconds)
            connection.execute(insert(tables.leases), {"process": process, "until": until})

        await self._database.write(begin)

    async def keep(self, process: str, seconds: float) -> bool:
        """Lengthen a lease that still runs; False where it has ended."""

        def keep(connection: Connection) -> bool:
            now, leases = clock(connection), tables.leases
            runs = (leases.c.process == process) & (leases.c.until > now)
            kept = connection.execute(update(leases).where(runs).values(until=now + timedelta(seconds=seconds)))
            return kept.rowcount == 1

        return await self._database.write(keep)

    async def end(self, process: str) -> None:
        """End a lease, and the sessions held under it."""

        def end(connection: Connection) -> None:
            connection.execute(delete(tables.leases).where(tables.leases.c.process == process))
            _end_sessions(connection, _running() & (tables.sessions.c.process == process))

        await self._database.write(end)


def _running() -> ColumnElement[bool]:
    return tables.sessions.c.end_time.is_(None)


def _end_sessions(connection: Connection, which: ColumnElement[bool]) -> None:
    # In the order in which everybody locks them.
    incarnation = tables.sessions.c.incarnation
    locked = select(incarnation).where(which).order_by(incarnation).with_for_update()
    ids = connection.execute(locked).scalars().all()
    ended = update(tables.sessions).where(incarnation == bindparam("ended")).values(end_time=clock(connection))
    if ids:
        connection.execute(ended, [{"ended": one} for one in ids])
