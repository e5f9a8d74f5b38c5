"""Processes' leases, and the sessions held under them (`runtime.md` R6.1, R6.6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, delete, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from runtime_service.store import tables
from service_kit.database import Database


class Leases:
    """The leases in the database, judged by its clock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def end_all(self) -> None:
        """End every lease and every session: one process holds a SQLite data folder, and it starts now (R6.1)."""
        async with self._database.write() as connection:
            await connection.execute(delete(tables.leases))
            await _end_sessions(connection, _running())

    async def begin(self, process: str, seconds: float) -> None:
        """Write a process's lease."""
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        async with self._database.write() as connection:
            await connection.execute(insert(tables.leases), {"process": process, "until": until})

    async def keep(self, process: str, seconds: float) -> bool:
        """Lengthen a lease that still runs; False where it has ended."""
        now = datetime.now(UTC)
        leases = tables.leases
        runs = (leases.c.process == process) & (leases.c.until > now)
        async with self._database.write() as connection:
            until = now + timedelta(seconds=seconds)
            kept = await connection.execute(update(leases).where(runs).values(until=until))
            return kept.rowcount == 1

    async def end(self, process: str) -> None:
        """End a lease, and the sessions held under it."""
        async with self._database.write() as connection:
            await connection.execute(delete(tables.leases).where(tables.leases.c.process == process))
            await _end_sessions(connection, _running() & (tables.sessions.c.process == process))


def _running() -> ColumnElement[bool]:
    return tables.sessions.c.end_time.is_(None)


async def _end_sessions(connection: AsyncConnection, which: ColumnElement[bool]) -> None:
    ended = update(tables.sessions).where(which).values(end_time=datetime.now(UTC))
    await connection.execute(ended)
