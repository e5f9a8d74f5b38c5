"""What is said to SQLite in one way and to PostgreSQL in another, so that stores say it once."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite


def one_writes(connection: Connection) -> bool:
    """Whether no other transaction writes before this one has ended: SQLite, where this one writes."""
    return connection.dialect.name == "sqlite"


def clock(connection: Connection) -> datetime:
    """Return what time it is for everybody who serves this database: by its own clock where others serve it too."""
    if one_writes(connection):
        return datetime.now(UTC)
    now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
    return now.astimezone(UTC)


def upsert(connection: Connection, table: Table) -> Any:
    """Return an INSERT that can say what happens where the row is there already."""
    return sqlite.insert(table) if one_writes(connection) else postgresql.insert(table)


def alone(connection: Connection, *what: str, shared: bool = False) -> None:
    """Wait until no other transaction holds this name, and hold it to this one's end; `shared`, beside others that do.

    Before anything else is read: what was seen before may have changed meanwhile.
    """
    if not one_writes(connection):
        key = int.from_bytes(hashlib.sha256("\0".join(what).encode()).digest()[:8], signed=True)
        lock = func.pg_advisory_xact_lock_shared if shared else func.pg_advisory_xact_lock
        connection.execute(select(lock(key)))
