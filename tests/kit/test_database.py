"""What a transaction promises, on real files."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import stat
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Executable,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError, OperationalError, StatementError

from service_kit.columns import UtcDateTime
from service_kit.database import Database
from service_kit.errors import PartUnavailable, SetupProblem

metadata = MetaData()
counter = Table("counter", metadata, Column("id", Integer, primary_key=True), Column("n", Integer))
pairs = Table("pairs", metadata, Column("id", Integer, primary_key=True), Column("half", Integer))
children = Table("children", metadata, Column("id", Integer, primary_key=True), Column("of", ForeignKey("counter.id")))
moments = Table("moments", metadata, Column("id", Integer, primary_key=True), Column("time", UtcDateTime))


@pytest.fixture
async def db(database: Database) -> Database:
    await database.write(metadata.create_all)
    await run(database, insert(counter), {"id": 1, "n": 0})
    return database


async def run(db: Database, statement: Executable, values: Any = None) -> None:
    await db.write(lambda connection: connection.execute(statement, values).close())


def incremented(connection: Connection) -> None:
    """Read, then write: what loses updates where transactions begin late."""
    n = connection.execute(select(counter.c.n)).scalar_one()
    connection.execute(update(counter).values(n=n + 1))


def counted(connection: Connection) -> int:
    return int(connection.execute(select(counter.c.n)).scalar_one())


async def increment(db: Database) -> None:
    await db.write(incremented)


async def count(db: Database) -> int:
    return await db.read(counted)


class Gate:
    """Stops a transaction on its way until the test lets it go on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = threading.Event()
        self.reached = asyncio.Event()

    def wait(self) -> None:
        """Wait in the transaction's thread."""
        self._loop.call_soon_threadsafe(self.reached.set)
        assert self._open.wait(30)

    def open(self) -> None:
        self._open.set()


async def test_four_hundred_increments_at_once_are_four_hundred(db: Database) -> None:
    await asyncio.gather(*(increment(db) for _ in range(400)))

    assert await count(db) == 400


async def test_writers_take_turns_in_the_order_they_came(db: Database) -> None:
    order: list[int] = []

    await asyncio.gather(*(db.write(lambda _, n=n: order.append(n)) for n in range(50)))  # type: ignore[misc]

    assert order == list(range(50))


async def test_a_problem_in_the_work_undoes_all_of_it(db: Database) -> None:
    def half_done(connection: Connection) -> None:
        connection.execute(update(counter).values(n=7))
        connection.execute(text("CREATE TABLE half (id INTEGER)"))
        raise KeyError

    with pytest.raises(KeyError):
        await db.write(half_done)

    assert await count(db) == 0
    assert "half" not in await db.read(lambda connection: inspect(connection).get_table_names())


async def test_a_statement_that_fails_undoes_the_ones_before_it(db: Database) -> None:
    def twice(connection: Connection) -> None:
        connection.execute(update(counter).values(n=7))
        connection.execute(insert(counter), {"id": 1, "n": 0})

    with pytest.raises(IntegrityError):
        await db.write(twice)

    await increment(db)
    assert await count(db) == 1


async def test_a_commit_that_fails_undoes_all_of_it(db: Database) -> None:
    """What is checked as it commits, like a foreign key that is deferred."""

    def orphan(connection: Connection) -> None:
        connection.execute(update(counter).values(n=7))
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        connection.execute(insert(children), {"id": 1, "of": 12})

    with pytest.raises(IntegrityError):
        await db.write(orphan)

    await increment(db)
    assert await count(db) == 1


async def write_pair(db: Database, number: int) -> None:
    def pair(connection: Connection) -> None:
        connection.execute(insert(pairs), {"id": 2 * number, "half": number})
        connection.execute(insert(pairs), {"id": 2 * number + 1, "half": number})

    await db.write(pair)


async def test_cancellations_at_any_time_leave_no_lock_and_no_half_a_transaction(db: Database) -> None:
    """Writers are cancelled before, within and after every statement, some of them twice over."""
    chance = random.Random(7)
    halved = select(pairs.c.half, func.count()).group_by(pairs.c.half).having(func.count() != 2)
    for storm in range(15):
        numbers = range(storm * 20, storm * 20 + 20)
        writers = [asyncio.ensure_future(write_pair(db, number)) for number in numbers]
        for writer in chance.sample(writers, 14):
            await asyncio.sleep(chance.random() * 0.002)
            writer.cancel()
            if chance.random() < 0.3:
                await asyncio.sleep(0)
                writer.cancel()
        ended = await asyncio.wait_for(asyncio.gather(*writers, return_exceptions=True), 30)
        assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ended)

        assert await db.read(lambda connection: connection.execute(halved).all()) == []
        kept = await db.read(lambda connection: set(connection.execute(select(pairs.c.half)).scalars()))
        done = {number for number, end in zip(numbers, ended, strict=True) if end is None}
        assert done <= kept

    await asyncio.wait_for(increment(db), 10)
    assert await count(db) == 1


@pytest.mark.parametrize("ends_well", [True, False])
async def test_a_cancellation_of_a_write_under_way_is_raised_after_its_end(db: Database, ends_well: bool) -> None:
    """Whoever is cancelled there cannot tell what was kept, but the database can: all of it, or nothing."""
    gate = Gate()

    def slow(connection: Connection) -> None:
        incremented(connection)
        gate.wait()
        if not ends_well:
            raise KeyError

    writer = asyncio.ensure_future(db.write(slow))
    await gate.reached.wait()
    for _ in range(3):
        writer.cancel()
        await asyncio.sleep(0)
    assert not writer.done()
    gate.open()

    with pytest.raises(asyncio.CancelledError):
        await writer
    assert await count(db) == ends_well


async def test_a_write_that_is_cancelled_before_its_turn_never_begins(db: Database) -> None:
    gate = Gate()
    before = asyncio.ensure_future(db.write(lambda _: gate.wait()))
    await gate.reached.wait()
    waiting = asyncio.ensure_future(increment(db))
    await asyncio.sleep(0)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not before.done()
    gate.open()
    await before
    assert await count(db) == 0


async def test_a_reader_sees_one_moment_and_holds_up_no_writer(db: Database) -> None:
    gate = Gate()

    def twice(connection: Connection) -> tuple[int, int]:
        before = counted(connection)
        gate.wait()
        return before, counted(connection)

    reader = asyncio.ensure_future(db.read(twice))
    await gate.reached.wait()
    await asyncio.wait_for(increment(db), 5)
    gate.open()

    assert (await reader, await count(db)) == ((0, 0), 1)


async def test_a_reader_does_not_wait_for_a_writer_and_sees_nothing_of_what_it_has_not_committed(
    db: Database,
) -> None:
    gate = Gate()

    def slow(connection: Connection) -> None:
        connection.execute(update(counter).values(n=7))
        gate.wait()

    writer = asyncio.ensure_future(db.write(slow))
    await gate.reached.wait()
    seen = await asyncio.wait_for(count(db), 5)
    gate.open()
    await writer

    assert (seen, await count(db)) == (0, 7)


async def test_closing_waits_for_what_is_under_way_and_leaves_no_thread_and_no_connection(tmp_path: Path) -> None:
    """SQLite takes its companion files away with the last connection."""
    threads = set(threading.enumerate())
    file, gate = tmp_path / "closed.db", Gate()

    def slow(connection: Connection) -> None:
        metadata.create_all(connection)
        gate.wait()

    closed = Database(f"sqlite:///{file}")
    await closed.read(lambda connection: connection.execute(text("SELECT 1")).close())
    writer = asyncio.ensure_future(closed.write(slow))
    await gate.reached.wait()
    closing = asyncio.ensure_future(closed.close())
    await asyncio.sleep(0)
    assert not closing.done()
    gate.open()
    await closing

    assert writer.done()
    left = {thread.name for thread in set(threading.enumerate()) - threads if thread.name.startswith("database")}
    assert (left, list(tmp_path.iterdir())) == (set(), [file])  # noqa: ASYNC240
    with contextlib.closing(sqlite3.connect(file)) as reopened:
        assert ("pairs",) in reopened.execute("SELECT name FROM sqlite_master").fetchall()
    with pytest.raises(RuntimeError):
        await increment(closed)


async def test_cancelled_readers_give_their_connections_back(db: Database) -> None:
    """More of them than there are connections, each cancelled in the middle of a statement."""

    long = text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000) SELECT count(*) FROM n")

    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def read_long(connection: Connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        connection.execute(long).close()

    for _ in range(4):
        begun.clear()
        readers = [asyncio.ensure_future(db.read(read_long)) for _ in range(5)]
        await begun.wait()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    assert await asyncio.wait_for(count(db), 10) == 0


async def test_a_reader_cannot_write(db: Database) -> None:
    with pytest.raises(OperationalError, match="readonly"):
        await db.read(incremented)


async def test_a_database_that_stays_busy_is_a_part_that_is_away(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's write transaction: nothing was done, and the call can be made again."""
    monkeypatch.setattr("service_kit.database.BUSY_SECONDS", 0.1)
    impatient = Database(f"sqlite:///{tmp_path}/kit.db")
    other = sqlite3.connect(tmp_path / "kit.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(PartUnavailable):
            await increment(impatient)
    finally:
        other.close()
    await increment(impatient)
    await impatient.close()

    assert await count(db) == 1


async def test_what_was_committed_is_on_disk_in_full_and_erased_for_good(db: Database) -> None:
    names = ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
    pragmas = await db.write(
        lambda connection: {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names}
    )

    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1}


async def test_the_files_are_their_owners_alone(db: Database, tmp_path: Path) -> None:
    await increment(db)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("kit.db*")}  # noqa: ASYNC240
    assert modes == {"kit.db": 0o600, "kit.db-wal": 0o600, "kit.db-shm": 0o600}


async def test_errors_do_not_tell_the_values_of_a_statement(db: Database) -> None:
    """Values are people's words, and errors are logged."""
    with pytest.raises(OperationalError) as caught:
        await run(db, text("SELECT :words FROM nowhere"), {"words": "the secret words"})

    assert "the secret words" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "mysql+aiomysql://user:hunter2@localhost/tutelage",
        "postgresql://user:hunter2@localhost",
        "sqlite+pysqlcipher:///file.db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite+aiosqlite:///:memory:",
        "sqlite:///file::memory:?cache=shared&uri=true",
        "sqlite:////no/such/folder/kit.db",
        "nonsense",
    ],
)
def test_a_database_of_another_kind_is_refused_as_it_is_set(url: str) -> None:
    with pytest.raises(SetupProblem) as caught:
        Database(url)

    assert "hunter2" not in str(caught.value)


async def test_a_url_that_names_the_driver_is_the_same_database(db: Database, tmp_path: Path) -> None:
    """Settings of the release before this one say so."""
    same = Database(f"sqlite+aiosqlite:///{tmp_path}/kit.db")
    await increment(same)
    await same.close()

    assert await count(db) == 1


async def test_moments_come_back_as_they_were_in_utc(db: Database) -> None:
    moment = datetime(2026, 3, 29, 1, 59, 59, 123456, timezone(timedelta(hours=2)))
    await run(db, insert(moments), [{"id": 1, "time": moment}, {"id": 2, "time": None}])
    wanted = select(moments.c.time).order_by(moments.c.id)
    kept = await db.read(lambda connection: connection.execute(wanted).scalars().all())

    assert kept == [moment, None]
    assert kept[0].tzinfo is UTC


async def test_a_moment_without_a_zone_is_no_moment(db: Database) -> None:
    with pytest.raises(StatementError, match="without a zone"):
        await run(db, insert(moments), {"time": datetime(2026, 1, 1)})  # noqa: DTZ001
