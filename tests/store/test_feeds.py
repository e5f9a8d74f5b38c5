"""Feeds lose nothing and show nothing twice, whoever writes beside whom."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, MetaData, bindparam, delete, select, text
from sqlalchemy.util import await_only

from service_kit.database import Database
from service_kit.feeds import (
    START,
    FeedEntry,
    FeedRow,
    Position,
    append,
    feed_table,
    horizon,
    read_after,
    read_subject,
    told_later,
)

NOW = datetime(2026, 5, 1, 12, 0, 0, 123456, UTC)
metadata = MetaData()
feed = feed_table(metadata, "approval_feed")


@pytest.fixture
async def db(database: Database) -> Database:
    await database.write(metadata.create_all)
    return database


async def add(db: Database, *entries: FeedEntry) -> None:
    await db.write(lambda connection: append(connection, feed, entries))


async def after(db: Database, position: Position, limit: int = 100) -> list[FeedRow]:
    return await db.follow(lambda connection: read_after(connection, feed, position, limit, "north"))


async def end(db: Database) -> Position:
    return await db.follow(lambda connection: horizon(connection, feed))


def entry(subject: str, tenant: str = "north") -> FeedEntry:
    return FeedEntry(tenant, "waiting", subject, NOW)


def subjects(rows: list[FeedRow]) -> list[str]:
    return [row.subject for row in rows]


async def test_a_feed_gives_a_tenants_changes_in_the_order_they_were_committed(db: Database) -> None:
    await add(db, entry("a1"), entry("b1", "south"), entry("a2"))
    await add(db)
    await add(db, FeedEntry("north", "decided", "a1", NOW, detail="seq:2"))
    first = await after(db, START, limit=2)
    rest = await after(db, first[-1].position, limit=2)

    assert subjects(first) == ["a1", "a2"]
    assert [(row.kind, row.subject, row.detail, row.time) for row in rest] == [("decided", "a1", "seq:2", NOW)]
    assert await after(db, rest[-1].position) == []
    assert await after(db, await end(db)) == []


async def test_a_position_is_never_given_twice(db: Database) -> None:
    """A cursor behind removed rows must not hide new ones."""
    await add(db, entry("a1"), entry("a2"))
    last = (await after(db, START))[-1].position
    await db.write(lambda connection: connection.execute(delete(feed)).close())
    await add(db, entry("a3"))

    assert subjects(await after(db, last)) == ["a3"]


async def test_a_change_that_was_undone_is_in_no_feed(db: Database) -> None:
    def half_done(connection: Connection) -> None:
        append(connection, feed, [entry("a1")])
        raise KeyError

    with pytest.raises(KeyError):
        await db.write(half_done)

    assert await after(db, START) == []


async def test_a_reader_beside_writers_that_stall_before_their_commit_loses_nothing(db: Database) -> None:
    """Eight of them, each for as long as it likes; what a writer wrote is seen once, and in its order."""
    chance = random.Random(11)

    async def write(writer: int) -> None:
        for n in range(25):

            def stall(connection: Connection, n: int = n) -> None:
                append(connection, feed, [entry(f"{writer}/{n}/{part}") for part in range(2)])
                if chance.random() < 0.3:
                    stalled(connection, chance.random() * 0.01)

            await db.write(stall)

    async def read(seen: list[str], page: int) -> None:
        position = START
        while len(seen) < 400:
            rows = await after(db, position, page)
            seen += subjects(rows)
            position = rows[-1].position if rows else position

    readers: list[list[str]] = [[], []]
    async with asyncio.TaskGroup() as group:
        for writer in range(8):
            group.create_task(write(writer))
        group.create_task(read(readers[0], 7))
        group.create_task(read(readers[1], 100))

    assert readers[0] == readers[1]
    assert len(set(readers[0])) == 400
    for writer in range(8):
        mine = [subject for subject in readers[0] if subject.startswith(f"{writer}/")]
        assert mine == [f"{writer}/{n}/{part}" for n in range(25) for part in range(2)]


def stalled(connection: Connection, seconds: float) -> None:
    if connection.dialect.name == "sqlite":
        time.sleep(seconds)
    else:
        connection.execute(text("SELECT pg_sleep(:seconds)"), {"seconds": seconds})


async def test_what_goes_on_from_a_snapshots_horizon_misses_nothing(db: Database) -> None:
    """R11: what began before the snapshot and was committed after it lies behind its horizon, whatever its number."""
    begun, taken = asyncio.Event(), asyncio.Event()

    def slow(connection: Connection) -> None:
        append(connection, feed, [entry("slow")])
        begun.set()
        await_only(taken.wait())

    await add(db, entry("early"))
    if db.is_a_file:
        await add(db, entry("slow"), entry("fast"))
        at = START
    else:
        writing = asyncio.ensure_future(db.write(slow))
        await begun.wait()
        await add(db, entry("fast"))
        at = await end(db)
        assert subjects(await after(db, START)) == ["early"]
        taken.set()
        await writing

    assert subjects(await after(db, at))[-2:] == ["slow", "fast"]


async def test_a_snapshot_says_which_changes_it_is_told_of_later(db: Database) -> None:
    """So a list and the feed behind its horizon show each change once."""
    await add(db, entry("a1"))
    at = await end(db)
    await add(db, entry("a2"))

    def later(connection: Connection, subject: str) -> bool:
        told = told_later(feed, at, "waiting", bindparam("subject", subject))
        return bool(connection.execute(select(told)).scalar_one())

    assert not await db.read(lambda connection: later(connection, "a1"))
    assert await db.read(lambda connection: later(connection, "a2"))


async def test_one_subjects_changes_are_read_by_themselves(db: Database) -> None:
    await add(db, entry("a1"), entry("a2"))
    await add(db, FeedEntry("north", "settled", "a1", NOW))

    def read(connection: Connection) -> list[FeedRow]:
        return read_subject(connection, feed, START, "a1")

    first, second = await db.follow(read)
    assert [first.kind, second.kind] == ["waiting", "settled"]
    assert await db.follow(lambda connection: read_subject(connection, feed, first.position, "a1")) == [second]
