"""The database: one writer at a time, readers beside it, and transactions that a cancellation cannot break.

SQLite through aiosqlite. SQLAlchemy begins transactions late there and loses updates in silence, so both
engines take the driver out of it (`isolation_level=None`) and begin by a hook: the writer IMMEDIATE, on one
connection behind a fair lock, the readers deferred, which gives each a snapshot of its own (WAL).

Invariants: what `write` was left without a problem is on disk (`synchronous=FULL`); what it was left with
one is undone, whole; the lock is let go only after either has happened. No statement's values appear in
errors or logs. PostgreSQL would be two engines more, built in `_engine`; nothing outside would change.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy import event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from service_kit.errors import PartUnavailable, SetupProblem

BUSY_SECONDS = 5.0
READERS = 4

T = TypeVar("T")

_WRITERS_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "secure_delete = ON")
_READERS_PRAGMAS = ("journal_mode = WAL", "query_only = ON")


class Database:
    """A service's own database.

    Raises `SetupProblem` for a URL of a kind that this release does not keep data in.
    """

    def __init__(self, url: str) -> None:
        self.url = _checked(url)
        _make_private(self.url)
        self._writer = _engine(self.url, 1, "BEGIN IMMEDIATE", _WRITERS_PRAGMAS)
        self._readers = _engine(self.url, READERS, "BEGIN", _READERS_PRAGMAS)
        self._writing = asyncio.Lock()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Hold the one write transaction: committed as the block ends, undone if a problem ends it.

        Writers take turns, first come first served. A cancellation while it commits waits for the commit,
        and is raised after it. Raises `PartUnavailable`, with nothing done, where the database stays busy.
        """
        async with self._writing:
            try:
                connection = await _to_the_end(_begun(self._writer), undo=_put_back)
            except OperationalError:
                raise PartUnavailable("The database is busy. Try again.", retry_after=1) from None
            try:
                yield connection
                await _to_the_end(connection.commit())
            finally:
                await _to_the_end(_put_back(connection))

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Look at one snapshot of the database. Never waits for a writer, and no writer for it.

        Nothing may be awaited in the block that is not the database: an open snapshot stops checkpoints.
        """
        connection = await _to_the_end(_begun(self._readers), undo=_put_back)
        try:
            yield connection
        finally:
            await _to_the_end(_put_back(connection))

    async def close(self) -> None:
        """Let go of every connection, after the write that is under way."""
        async with self._writing:
            await _to_the_end(self._writer.dispose())
            await _to_the_end(self._readers.dispose())


async def _begun(engine: AsyncEngine) -> AsyncConnection:
    connection = await engine.connect()
    try:
        await connection.begin()
    except BaseException:
        await connection.close()
        raise
    return connection


async def _put_back(connection: AsyncConnection) -> None:
    """Undo what was not committed, and give the connection back."""
    try:
        await connection.rollback()
    finally:
        await connection.close()


async def _to_the_end(work: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, None]] | None = None) -> T:
    """Await work to its end even where the waiting task is cancelled, and raise that afterwards.

    `undo` is given what the work made, where nobody is left to take it.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancellation:
            cancelled = cancellation
    if cancelled is None:
        return task.result()
    if undo is not None and task.exception() is None:
        await _to_the_end(undo(task.result()))
    raise cancelled


def _checked(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise SetupProblem("The database URL cannot be read. It looks like sqlite+aiosqlite:///FILE.") from None
    if parsed.drivername != "sqlite+aiosqlite" or not parsed.database or parsed.query:
        shown = parsed.render_as_string(hide_password=True)
        raise SetupProblem(f"This release keeps its data in sqlite+aiosqlite:///FILE alone, not in {shown}.")
    if parsed.database == ":memory:" or parsed.database.startswith("file:"):
        raise SetupProblem("The database must be a file: in memory every connection would share one.")
    return parsed


def _make_private(url: URL) -> None:
    """Make the file for its owner alone; SQLite gives its companions the same mode."""
    try:
        os.close(os.open(url.database or "", os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as problem:
        raise SetupProblem(f"The database {url.database} cannot be opened: {problem.strerror}.") from None


def _engine(url: URL, connections: int, begin: str, pragmas: tuple[str, ...]) -> AsyncEngine:
    engine = create_async_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        # Every transaction is ended by who began it, shielded.
        pool_reset_on_return=None,
        # Values are people's words: they stay out of errors and logs.
        hide_parameters=True,
        connect_args={"isolation_level": None, "timeout": BUSY_SECONDS},
    )

    @event.listens_for(engine.sync_engine, "connect")
    def set_up(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin_transaction(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine
