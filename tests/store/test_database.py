"""What a transaction promises, whichever database it is made in."""

from __future__ import annotations

import asyncio
import traceback
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import pytest
from sqlalchemy import Column, Connection, MetaData, Table, insert, select, text, update
from sqlalchemy.exc import IntegrityError, StatementError

from service_kit.columns import NUMBER, TEXT, WORDS, UtcDateTime
from service_kit.database import Database
from service_kit.statements import alone, clock, upsert

metadata = MetaData()
counter = Table("counter", metadata, Column("id", NUMBER, primary_key=True), Column("n", NUMBER))
things = Table(
    "things",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("words", WORDS),
    Column("number", NUMBER),
    Column("time", UtcDateTime),
)


@pytest.fixture
async def db(database: Database) -> Database:
    def make(connection: Connection) -> None:
        metadata.create_all(connection)
        connection.execute(insert(counter), {"id": 1, "n": 0})

    await database.write(make)
    return database


async def count(db: Database) -> int:
    return await db.read(lambda connection: int(connection.execute(select(counter.c.n)).scalar_one()))


def add_one(connection: Connection) -> None:
    """Read, then write: what loses updates where nothing is locked."""
    alone(connection, "counter")
    n = connection.execute(select(counter.c.n)).scalar_one()
    connection.execute(update(counter).values(n=n + 1))


async def test_a_hundred_increments_at_once_are_a_hundred(db: Database) -> None:
    await asyncio.gather(*(db.write(add_one) for _ in range(100)))

    assert await count(db) == 100


async def test_a_problem_undoes_all_of_it(db: Database) -> None:
    def half_done(connection: Connection) -> None:
        add_one(connection)
        connection.execute(text("CREATE TABLE half (id INTEGER)"))
        raise KeyError

    with pytest.raises(KeyError):
        await db.write(half_done)

    assert await count(db) == 0
    assert "half" not in await db.read(lambda connection: connection.dialect.get_table_names(connection))


async def test_a_statement_that_fails_undoes_the_ones_before_it(db: Database) -> None:
    def twice(connection: Connection) -> None:
        add_one(connection)
        connection.execute(insert(counter), {"id": 1, "n": 0})

    with pytest.raises(IntegrityError):
        await db.write(twice)

    await db.write(add_one)
    assert await count(db) == 1


@pytest.mark.parametrize("look", ["read", "follow"])
async def test_a_snapshot_can_write_nothing(db: Database, look: str) -> None:
    with pytest.raises(Exception, match=r"readonly|read-only"):
        await getattr(db, look)(lambda connection: connection.execute(update(counter).values(n=7)))

    assert await count(db) == 0


async def test_errors_do_not_tell_the_values_of_a_statement(db: Database) -> None:
    """Values are people's words, and errors are logged."""

    def add(connection: Connection) -> None:
        connection.execute(insert(things), {"id": "secret key", "words": "secret words"})

    await db.write(add)
    with pytest.raises(IntegrityError) as caught:
        await db.write(add)

    assert "secret" not in "".join(traceback.format_exception(caught.value)).replace('"secret', "")


async def test_whatever_is_kept_comes_back_as_it_was(db: Database) -> None:
    """Any letter, NUL too, which PostgreSQL does not keep; numbers of 64 bits; moments to the microsecond, in UTC."""
    moment = datetime(2026, 3, 29, 1, 59, 59, 123456, timezone(timedelta(hours=2)))
    kept = [
        {"id": "plain", "words": "🌷 ü", "number": 2**63 - 1, "time": moment},
        {"id": "nul\0", "words": "a\0b\x1ac\x1a0\x1a\x1a\0", "number": -(2**63), "time": None},
        {"id": "nul\x1a0", "words": "", "number": 0, "time": None},
    ]
    await db.write(lambda connection: connection.execute(insert(things), kept).close())

    def found(connection: Connection, one: str) -> dict[str, object]:
        return dict(connection.execute(select(things).where(things.c.id == one)).mappings().one())

    assert [await db.read(partial(found, one=str(one["id"]))) for one in kept] == kept
    time = (await db.read(lambda connection: found(connection, "plain")))["time"]
    assert isinstance(time, datetime)
    assert time.tzinfo is UTC


async def test_a_moment_without_a_zone_is_no_moment(db: Database) -> None:
    row = {"id": "1", "time": datetime(2026, 1, 1)}  # noqa: DTZ001
    with pytest.raises(StatementError, match="without a zone"):
        await db.write(lambda connection: connection.execute(insert(things), row))


async def test_what_is_there_already_is_changed_or_left(db: Database) -> None:
    def put(connection: Connection, words: str) -> None:
        new = upsert(connection, things)
        changed = new.on_conflict_do_update(index_elements=["id"], set_={"words": new.excluded.words})
        connection.execute(changed, [{"id": "1", "words": words}])
        connection.execute(new.on_conflict_do_nothing(), [{"id": "1", "words": "never"}])

    for words in ("first", "second"):
        await db.write(partial(put, words=words))

    assert await db.read(lambda connection: connection.execute(select(things.c.words)).scalars().all()) == ["second"]


async def test_the_clock_is_everybodys(db: Database) -> None:
    """In UTC, and later each time."""
    first, second = await db.write(clock), await db.read(clock)

    assert first.tzinfo is UTC
    assert first <= second
    assert abs(first - datetime.now(UTC)) < timedelta(minutes=1)
