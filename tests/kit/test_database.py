"""What a transaction promises, on real files."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import stat
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError, StatementError
from sqlalchemy.ext.asyncio import AsyncConnection

from service_kit.columns import UtcDateTime
from service_kit.database import Database
from service_kit.errors import PartUnavailable, SetupProblem

metadata = MetaData()
counter = Table("counter", metadata, Column("id", Integer, primary_key=True), Column("n", Integer))
pairs = Table("pairs", metadata, Column("id", Integer, primary_key=True), Column("half", Integer))
moments = Table("moments", metadata, Column("id", Integer, primary_key=True), Column("time", UtcDateTime))


@pytest.fixture
async def db(database: Database) -> Database:
    async with database.write() as connection:
        await connection.run_sync(metadata.create_all)
        await connection.execute(insert(counter), {"id": 1, "n": 0})
    return database


async def increment(db: Database) -> None:
    """Read, then write: what loses updates where transactions begin late."""
    async with db.write() as connection:
        n = (await connection.execute(select(counter.c.n))).scalar_one()
        await connection.execute(update(counter).values(n=n + 1))


async def count(db: Database) -> int:
    async with db.read() as connection:
        return int((await connection.execute(select(counter.c.n))).scalar_one())


async def test_four_hundred_increments_at_once_are_four_hundred(db: Database) -> None:
    await asyncio.gather(*(increment(db) for _ in range(400)))

    assert await count(db) == 400


async def test_writers_take_turns_in_the_order_they_came(db: Database) -> None:
    order: list[int] = []

    async def write(n: int) -> None:
        async with db.write():
            order.append(n)

    await asyncio.gather(*(write(n) for n in range(50)))

    assert order == list(range(50))


async def test_a_problem_in_the_block_undoes_all_of_it(db: Database) -> None:
    async def half_done() -> None:
        async with db.write() as connection:
            await connection.execute(update(counter).values(n=7))
            await connection.execute(text("CREATE TABLE half (id INTEGER)"))
            raise KeyError

    with pytest.raises(KeyError):
        await half_done()

    assert await count(db) == 0
    async with db.read() as connection:
        tables = await connection.run_sync(lambda sync: sync.dialect.get_table_names(sync))
    assert "half" not in tables


async def test_a_statement_that_fails_undoes_the_ones_before_it(db: Database) -> None:
    async def twice() -> None:
        async with db.write() as connection:
            await connection.execute(update(counter).values(n=7))
            await connection.execute(insert(counter), {"id": 1, "n": 0})

    with pytest.raises(IntegrityError):
        await twice()

    await increment(db)
    assert await count(db) == 1


async def write_pair(db: Database, number: int) -> None:
    async with db.write() as connection:
        await connection.execute(insert(pairs), {"id": 2 * number, "half": number})
        await asyncio.sleep(0)
        await connection.execute(insert(pairs), {"id": 2 * number + 1, "half": number})


async def test_cancellations_at_any_time_leave_no_lock_and_no_half_a_transaction(db: Database) -> None:
    """Writers are cancelled before, within and after every statement, some of them twice over."""
    chance = random.Random(7)
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

        async with db.read() as connection:
            halves = await connection.execute(
                select(pairs.c.half, func.count()).group_by(pairs.c.half).having(func.count() != 2)
            )
            assert halves.all() == []
            kept = set((await connection.execute(select(pairs.c.half))).scalars())
        done = {number for number, end in zip(numbers, ended, strict=True) if end is None}
        assert done <= kept

    await asyncio.wait_for(increment(db), 10)
    assert await count(db) == 1


async def test_a_cancellation_while_it_commits_is_raised_after_the_commit(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is cancelled there cannot tell what was kept, but the database can: all of it."""
    committing, commit = asyncio.Event(), AsyncConnection.commit

    async def slow_commit(connection: AsyncConnection) -> None:
        committing.set()
        await asyncio.sleep(0.05)
        await commit(connection)

    monkeypatch.setattr(AsyncConnection, "commit", slow_commit)
    writer = asyncio.ensure_future(increment(db))
    await committing.wait()
    for _ in range(3):
        writer.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await writer
    assert await count(db) == 1


async def test_a_reader_sees_one_moment_and_holds_up_no_writer(db: Database) -> None:
    async with db.read() as reader:
        before = (await reader.execute(select(counter.c.n))).scalar_one()
        await asyncio.wait_for(increment(db), 5)
        still = (await reader.execute(select(counter.c.n))).scalar_one()

    assert (before, still, await count(db)) == (0, 0, 1)


async def test_a_reader_does_not_wait_for_a_writer_and_sees_nothing_of_what_it_has_not_committed(
    db: Database,
) -> None:
    async with db.write() as writer:
        await writer.execute(update(counter).values(n=7))
        seen = await asyncio.wait_for(count(db), 5)

    assert (seen, await count(db)) == (0, 7)


async def test_cancelled_readers_give_their_connections_back(db: Database) -> None:
    """More of them than there are connections, each cancelled in the middle of a statement."""

    async def read_long() -> None:
        async with db.read() as connection:
            await connection.execute(
                text(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000) "
                    "SELECT count(*) FROM n"
                )
            )

    for _ in range(4):
        readers = [asyncio.ensure_future(read_long()) for _ in range(5)]
        await asyncio.sleep(0.01)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    assert await asyncio.wait_for(count(db), 10) == 0


async def test_a_reader_cannot_write(db: Database) -> None:
    async with db.read() as connection:
        with pytest.raises(OperationalError, match="readonly"):
            await connection.execute(update(counter).values(n=7))


async def test_a_database_that_stays_busy_is_a_part_that_is_away(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's write transaction: nothing was done, and the call can be made again."""
    monkeypatch.setattr("service_kit.database.BUSY_SECONDS", 0.1)
    impatient = Database(f"sqlite+aiosqlite:///{tmp_path}/kit.db")
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
    async with db.write() as connection:
        pragmas = {
            name: (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
        }

    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1}


async def test_the_files_are_their_owners_alone(db: Database, tmp_path: Path) -> None:
    await increment(db)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("kit.db*")}  # noqa: ASYNC240
    assert modes == {"kit.db": 0o600, "kit.db-wal": 0o600, "kit.db-shm": 0o600}


async def test_errors_do_not_tell_the_values_of_a_statement(db: Database) -> None:
    """Values are people's words, and errors are logged."""
    async with db.read() as connection:
        with pytest.raises(OperationalError) as caught:
            await connection.execute(text("SELECT :words FROM nowhere"), {"words": "the secret words"})

    assert "the secret words" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://user:hunter2@localhost/tutelage",
        "sqlite:///file.db",
        "sqlite+aiosqlite://",
        "sqlite+aiosqlite:///:memory:",
        "sqlite+aiosqlite:///file::memory:?cache=shared&uri=true",
        "sqlite+aiosqlite:////no/such/folder/kit.db",
        "nonsense",
    ],
)
def test_a_database_of_another_kind_is_refused_as_it_is_set(url: str) -> None:
    with pytest.raises(SetupProblem) as caught:
        Database(url)

    assert "hunter2" not in str(caught.value)


async def test_moments_come_back_as_they_were_in_utc(db: Database) -> None:
    moment = datetime(2026, 3, 29, 1, 59, 59, 123456, timezone(timedelta(hours=2)))
    async with db.write() as connection:
        await connection.execute(insert(moments), [{"id": 1, "time": moment}, {"id": 2, "time": None}])
    async with db.read() as connection:
        kept = (await connection.execute(select(moments.c.time).order_by(moments.c.id))).scalars().all()

    assert kept == [moment, None]
    assert kept[0].tzinfo is UTC


async def test_a_moment_without_a_zone_is_no_moment(db: Database) -> None:
    async with db.write() as connection:
        with pytest.raises(StatementError, match="without a zone"):
            await connection.execute(insert(moments), {"time": datetime(2026, 1, 1)})  # noqa: DTZ001
