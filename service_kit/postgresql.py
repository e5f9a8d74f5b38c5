"""PostgreSQL through asyncpg: transactions on connections that wait for nothing forever.

A transaction is one function of a synchronous `Connection`, as on SQLite; here it runs on the event loop, and gives way
to others at each statement. It may be run again from its beginning: where the database asks for that (a deadlock, two
replicas that write the same key), and where the connection went before anything was kept.

Invariants:
- What `run` returned from is kept, and what it raised from is not, but for `Doubtful`, which says that nobody knows.
- Where the answer to a commit was lost, the database is asked what became of it, once that can no longer change.
- No statement's values appear in errors or logs.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from service_kit.errors import PartUnavailable, SetupProblem

log = structlog.get_logger()
T = TypeVar("T")
# Looks whether what a transaction wrote is there; None: that does not show.
Kept = Callable[[Connection, T], bool | None]

CONNECT_SECONDS = 10.0
# How long a transaction waits for what another holds; when one that its process left lying is ended.
LOCK_SECONDS = 5.0
IDLE_SECONDS = 15.0
MOST_TRIES = 4
# How long the database is asked what became of a commit, before nobody can tell.
DOUBT_SECONDS = 60.0

_CLASH = "23505"
# A deadlock, a snapshot that is too old, a key that another replica wrote first, tables that were migrated meanwhile.
_RUN_AGAIN = ("40P01", "40001", _CLASH, "0A000")
# The connection went, or the server does not take it.
_GONE = ("08", "57P")
# Something was waited for too long; there is no room.
_BUSY = ("55P03", "57014", "53")
_NOBODY_IN = ("28", "3D")

_OWN_ID = text("SELECT pg_current_xact_id_if_assigned()::text")
_BECAME = text("SELECT pg_xact_status(CAST(:own AS text)::xid8)")
_END_IT = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE backend_xid::text::bigint = CAST(CAST(:own AS text) AS bigint) % 4294967296"
)


class Doubtful(PartUnavailable):
    """A commit whose answer was lost, where nobody could be asked what became of it."""

    sentence = "The database went away while this was written. Look whether it was before you try again."


class _Undone(Exception):
    """The connection went, and nothing was kept."""


class Transactions:
    """Runs transactions, each on one of a few connections."""

    def __init__(self, url: URL, connections: int, *, reads: bool, statement_seconds: float = 30.0) -> None:
        self._engine = _engine(url, connections, reads=reads, statement_seconds=statement_seconds)
        self._reads = reads

    async def run(self, work: Callable[[Connection], T], kept: Kept[T] | None = None) -> T:
        """Run a transaction to its end even where the waiting task is cancelled, and raise that afterwards.

        Where the answer to its commit was lost, `kept` looks at what was written; without it the database's own log of
        transactions tells. Raises `PartUnavailable`, with nothing done, where the database is busy or away.
        """
        return await _to_the_end(self._until_kept(work, kept))

    async def close(self) -> None:
        """Let go of every connection."""
        await self._engine.dispose()

    async def _until_kept(self, work: Callable[[Connection], T], kept: Kept[T] | None) -> T:
        for again in range(1, MOST_TRIES):
            try:
                return await self._once(work, kept)
            except (_Undone, DBAPIError) as problem:
                if not isinstance(problem, _Undone) and _state(problem) not in _RUN_AGAIN:
                    raise _told(problem) from None
                log.info("database.again", sqlstate=_state(problem), tries=again)
            await asyncio.sleep(random.uniform(0, 0.02 * again))  # noqa: S311
        try:
            return await self._once(work, kept)
        except (_Undone, DBAPIError) as problem:
            raise _told(problem) from None

    async def _once(self, work: Callable[[Connection], T], kept: Kept[T] | None) -> T:
        connection, own = await self._connected(), None
        try:
            done = await connection.run_sync(work)
            if self._reads:
                return done
            own = await connection.scalar(_OWN_ID)
            await connection.commit()
        except Exception as problem:
            if not _gone(problem):
                raise
            await connection.invalidate()
            if own is None or not await self._was_kept(own, done, kept):
                raise _Undone from None
        finally:
            await connection.close()
        return done

    async def _connected(self) -> AsyncConnection:
        try:
            return await self._engine.connect()
        except Exception as problem:
            state = _state(problem)
            if state.startswith(_NOBODY_IN):
                raise SetupProblem(f"The database does not let this service in: {problem}") from None
            if not isinstance(problem, SQLAlchemyError | OSError | TimeoutError) and not state:
                raise
            log.warning("database.away", sqlstate=state, problem=type(problem).__name__)
            raise _away() from None

    async def _was_kept(self, own: str, done: T, kept: Kept[T] | None) -> bool:
        """Find out what became of a commit whose answer was lost."""
        until = time.monotonic() + DOUBT_SECONDS
        while time.monotonic() < until:
            try:
                async with self._engine.connect() as connection:
                    became = await connection.scalar(_BECAME, {"own": own})
                    if became == "in progress":
                        # It may come to either end until its connection's has come.
                        await connection.execute(_END_IT, {"own": own})
                    elif became is not None:
                        seen = None if kept is None else await connection.run_sync(kept, done)
                        told = became == "committed" if seen is None else seen
                        log.warning("database.commit_answer_lost", kept=told)
                        return told
            except Exception as problem:
                log.warning("database.away", sqlstate=_state(problem), problem=type(problem).__name__)
            await asyncio.sleep(0.05)
        raise Doubtful


def _engine(url: URL, connections: int, *, reads: bool, statement_seconds: float) -> AsyncEngine:
    milliseconds = {
        "lock_timeout": LOCK_SECONDS,
        "statement_timeout": statement_seconds,
        "idle_in_transaction_session_timeout": IDLE_SECONDS,
    }
    settings = {name: str(int(seconds * 1000)) for name, seconds in milliseconds.items()}
    return create_async_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=CONNECT_SECONDS,
        # A read is of one snapshot. A write sees what others committed before it got their rows.
        isolation_level="REPEATABLE READ" if reads else "READ COMMITTED",
        execution_options={"postgresql_readonly": reads},
        # Values are people's words: they stay out of errors and logs.
        hide_parameters=True,
        connect_args={
            "timeout": CONNECT_SECONDS,
            # Where a server goes in silence, nothing else would end the wait for it.
            "command_timeout": statement_seconds + LOCK_SECONDS,
            "server_settings": settings | {"application_name": "tutelage"},
        },
    )


def _state(problem: Exception) -> str:
    """Return the SQLSTATE of a problem; empty where the server said nothing."""
    cause = problem.orig if isinstance(problem, DBAPIError) else problem
    return getattr(cause, "sqlstate", None) or ""


def _gone(problem: Exception) -> bool:
    if isinstance(problem, DBAPIError):
        return problem.connection_invalidated or _state(problem).startswith(_GONE)
    return isinstance(problem, OSError | TimeoutError)


def _told(problem: Exception) -> Exception:
    """Return what a problem is told as that did not go away by trying again."""
    state = _state(problem)
    if isinstance(problem, _Undone) or (state in _RUN_AGAIN and state != _CLASH) or state.startswith(_BUSY):
        log.warning("database.away", sqlstate=state)
        return _away()
    if isinstance(problem, DBAPIError) and problem.orig is not None:
        # The driver's own has the values of keys, and of rows that a constraint refused.
        problem.orig.__cause__ = problem.orig.__context__ = None
    return problem


def _away() -> PartUnavailable:
    return PartUnavailable("The database is busy or away. Try again.", retry_after=1)


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancellation:
            cancelled = cancellation
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        # Whoever asked is gone, and what came of it is not an error that nobody looked at.
        task.exception()
    raise cancelled
