"""The database: writers one behind the other, readers beside them, and transactions that a cancellation cannot break.

A transaction is one function of a synchronous `Connection`, run whole (begin, work, commit or undo). It must touch
nothing that belongs to the event loop, and may be run again from its beginning where the database asks for that.

SQLite: each is run in a thread of the database's own. So it costs the event loop one hop, however many statements it
has, and what a read makes of its rows is made there too. SQLAlchemy begins transactions late there and loses updates in
silence, so the engines take the driver out of it (`isolation_level=None`) and begin by a hook: the writer IMMEDIATE, in
one thread, whose queue is first come first served; the readers deferred, which gives each a snapshot of its own (WAL).

PostgreSQL (`postgresql.py`), for more than one replica: writers run side by side, so they lock what they change.

Invariants: what `write` returned from is on disk (`synchronous=FULL`); what it raised from is undone, whole. No
statement's values appear in errors or logs. What must be said to the two in different ways, `statements.py` says.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, OperationalError

from service_kit.errors import PartUnavailable, SetupProblem

BUSY_SECONDS = 5.0
READERS = 4
# On PostgreSQL alone: SQLite has one writer, and streams share its readers.
WRITERS = 8
FOLLOWERS = 4
STATEMENT_SECONDS = 30.0

T = TypeVar("T")

_WRITERS_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "secure_delete = ON")
_READERS_PRAGMAS = ("journal_mode = WAL", "query_only = ON")
# The second names a driver that is not used any more: settings that say so stay good.
_SQLITE = ("sqlite", "sqlite+aiosqlite")
_POSTGRESQL = ("postgresql", "postgres", "postgresql+asyncpg")
_LOOKS = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME"


class _Connections(Protocol):
    """Runs transactions on connections of its own."""

    async def run(
        self, work: Callable[[Connection], T], kept: Callable[[Connection, T], bool | None] | None = None
    ) -> T: ...

    async def close(self) -> None: ...


class Database:
    """A service's own database.

    Raises `SetupProblem` for a URL of a kind that this release does not keep data in.
    """

    def __init__(self, url: str, statement_seconds: float = STATEMENT_SECONDS) -> None:
        self.url = _checked(url)
        # SQLite: one process serves it, alone. Anything else is served by as many replicas as there are.
        self.is_a_file = self.url.drivername == "sqlite"
        self._writers, self._readers, self._followers = (
            _sqlite(self.url) if self.is_a_file else _postgresql(self.url, statement_seconds)
        )

    async def write(
        self, work: Callable[[Connection], T], kept: Callable[[Connection, T], bool | None] | None = None
    ) -> T:
        """Run a write transaction: committed as `work` returns, undone where it raises.

        On SQLite writers take turns, first come first served. A cancellation is raised once the transaction is
        committed or undone; one that has not begun may never do. Where the answer to a commit was lost, `kept` looks
        whether what was written is there, if that shows. Raises `PartUnavailable`, with nothing done, where the
        database is busy or away.
        """
        return await self._writers.run(work, kept)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Look at one snapshot of the database. Never waits for a writer, and no writer for it."""
        return await self._readers.run(work)

    async def follow(self, work: Callable[[Connection], T]) -> T:
        """Look at one snapshot, for a stream: those who watch do not hold up those who ask."""
        return await self._followers.run(work)

    async def close(self) -> None:
        """Let go of every connection, after the transactions that are under way or wait."""
        await asyncio.gather(*(each.close() for each in {self._writers, self._readers, self._followers}))


def _sqlite(file: URL) -> tuple[_Connections, _Connections, _Connections]:
    _make_private(file)
    readers = _Sqlite(file, READERS, "BEGIN", _READERS_PRAGMAS)
    return _Sqlite(file, 1, "BEGIN IMMEDIATE", _WRITERS_PRAGMAS), readers, readers


def _postgresql(url: URL, statement_seconds: float) -> tuple[_Connections, _Connections, _Connections]:
    if find_spec("asyncpg") is None:
        raise SetupProblem("PostgreSQL needs another package: pip install 'tutelage[postgres]'.")
    # Who keeps data in SQLite has neither the driver nor what it needs.
    from service_kit.postgresql import Transactions

    return (
        Transactions(url, WRITERS, reads=False, statement_seconds=statement_seconds),
        Transactions(url, READERS, reads=True, statement_seconds=statement_seconds),
        Transactions(url, FOLLOWERS, reads=True, statement_seconds=statement_seconds),
    )


class _Sqlite:
    """So many connections to a file, and as many threads that run transactions on them."""

    def __init__(self, url: URL, connections: int, begin: str, pragmas: tuple[str, ...]) -> None:
        self._engine = _engine(url, connections, begin, pragmas)
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="database")

    async def run(self, work: Callable[[Connection], T], kept: object = None) -> T:
        # A commit in this process has an answer: nobody need look.
        return await _to_the_end(self._threads.submit(self._transact, work))

    async def close(self) -> None:
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._threads.shutdown()
        self._engine.dispose()

    def _transact(self, work: Callable[[Connection], T]) -> T:
        # A connection that is given back without a commit undoes what it did.
        with _begun(self._engine) as connection:
            done = work(connection)
            try:
                connection.commit()
            except BaseException:
                # SQLAlchemy takes a commit that fails for an end; SQLite is still in the transaction.
                connection.invalidate()
                raise
            return done


def _begun(engine: Engine) -> Connection:
    try:
        connection = engine.connect()
        try:
            connection.begin()
        except BaseException:
            connection.close()
            raise
    except OperationalError:
        raise PartUnavailable("The database is busy. Try again.", retry_after=1) from None
    return connection


async def _to_the_end(running: Future[T]) -> T:
    """Await what a thread does to its end even where the waiting task is cancelled, and raise that afterwards."""
    done = asyncio.wrap_future(running)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as cancellation:
            cancelled = cancellation
            running.cancel()
    if cancelled is None:
        return done.result()
    if not done.cancelled():
        # Whoever asked is gone, and what came of it is not an error that nobody looked at.
        done.exception()
    raise cancelled


def _checked(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise SetupProblem(f"The database URL cannot be read. It looks like {_LOOKS}.") from None
    if parsed.drivername in _POSTGRESQL and parsed.database:
        # Everybody else calls it `sslmode`.
        query = {("ssl" if name == "sslmode" else name): value for name, value in parsed.query.items()}
        return parsed.set(drivername="postgresql+asyncpg", query=query)
    if parsed.drivername not in _SQLITE or not parsed.database or parsed.query:
        shown = parsed.render_as_string(hide_password=True)
        raise SetupProblem(f"This release keeps its data in {_LOOKS}, not in {shown}.")
    if parsed.database == ":memory:" or parsed.database.startswith("file:"):
        raise SetupProblem("The database must be a file: in memory every connection would share one.")
    return parsed.set(drivername="sqlite")


def _make_private(url: URL) -> None:
    """Make the file for its owner alone; SQLite gives its companions the same mode."""
    try:
        os.close(os.open(url.database or "", os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as problem:
        raise SetupProblem(f"The database {url.database} cannot be opened: {problem.strerror}.") from None


def _engine(url: URL, connections: int, begin: str, pragmas: tuple[str, ...]) -> Engine:
    engine = create_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        # Every transaction is ended by who began it.
        pool_reset_on_return=None,
        # Values are people's words: they stay out of errors and logs.
        hide_parameters=True,
        connect_args={"isolation_level": None, "timeout": BUSY_SECONDS},
    )

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
