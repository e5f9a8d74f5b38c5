"""Feeds lose nothing, cursors hold where they were given, bells do not forget."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, MetaData, delete

from service_kit.database import Database
from service_kit.errors import CursorExpired, InvalidField
from service_kit.feeds import Bell, CursorCodec, FeedEntry, FeedRow, append, feed_table, horizon, read_after

NOW = datetime(2026, 5, 1, 12, 0, 0, 123456, UTC)
metadata = MetaData()
feed = feed_table(metadata, "approval_feed")


@pytest.fixture
async def db(database: Database) -> Database:
    await database.write(metadata.create_all)
    return database


async def add(db: Database, *entries: FeedEntry) -> None:
    await db.write(lambda connection: append(connection, feed, entries))


async def after(db: Database, position: int, limit: int = 10) -> list[FeedRow]:
    return await db.read(lambda connection: read_after(connection, feed, position, limit, "north"))


async def end(db: Database) -> int:
    return await db.read(lambda connection: horizon(connection, feed))


def entry(subject: str, tenant: str = "north") -> FeedEntry:
    return FeedEntry(tenant, "waiting", subject, NOW)


async def test_a_feed_gives_a_tenants_changes_in_the_order_they_were_committed(db: Database) -> None:
    await add(db, entry("a1"), entry("b1", "south"), entry("a2"))
    await add(db)
    await add(db, FeedEntry("north", "decided", "a1", NOW, detail="seq:2"))
    first = await after(db, 0, limit=2)
    rest = await after(db, first[-1].position, limit=2)

    assert [(row.position, row.subject) for row in first] == [(1, "a1"), (3, "a2")]
    assert [(row.position, row.kind, row.subject, row.detail, row.time) for row in rest] == [
        (4, "decided", "a1", "seq:2", NOW)
    ]
    assert await end(db) == 4


async def test_a_position_is_never_given_twice(db: Database) -> None:
    """A cursor behind removed rows must not hide new ones."""
    await add(db, entry("a1"), entry("a2"))
    await db.write(lambda connection: connection.execute(delete(feed)).close())
    await add(db, entry("a3"))

    assert [row.position for row in await after(db, 2)] == [3]


async def test_a_change_that_was_undone_is_in_no_feed(db: Database) -> None:
    def half_done(connection: Connection) -> None:
        append(connection, feed, [entry("a1")])
        raise KeyError

    with pytest.raises(KeyError):
        await db.write(half_done)

    assert (await end(db), await after(db, 0)) == (0, [])


async def test_a_reader_beside_many_writers_sees_every_change_once_and_in_order(db: Database) -> None:
    async def write(writer: int) -> None:
        for n in range(25):
            await add(db, *(entry(f"{writer}/{n}/{part}") for part in range(2)))

    writing = asyncio.gather(*(write(writer) for writer in range(8)))
    seen: list[str] = []
    position = 0
    while len(seen) < 400:
        rows = await after(db, position, limit=30)
        seen += [row.subject for row in rows]
        position = rows[-1].position if rows else position
    await writing

    assert len(set(seen)) == 400
    for writer in range(8):
        mine = [subject for subject in seen if subject.startswith(f"{writer}/")]
        assert mine == [f"{writer}/{n}/{part}" for n in range(25) for part in range(2)]


@given(st.integers(0, 2**63), st.text(), st.integers(0, 2**63), st.text())
def test_a_cursor_comes_back_as_it_was_given(position: int, filter_key: str, sub: int, generation: str) -> None:
    codec = CursorCodec(generation)

    assert codec.decode(codec.encode(position, filter_key, sub), filter_key) == (position, sub)


def test_a_cursor_of_another_filter_or_database_has_expired() -> None:
    """Settled 18."""
    cursor = CursorCodec("g1").encode(7, "tenant=north")

    with pytest.raises(CursorExpired):
        CursorCodec("g1").decode(cursor, "tenant=south")
    with pytest.raises(CursorExpired):
        CursorCodec("g2").decode(cursor, "tenant=north")


def test_a_cursor_of_another_version_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = CursorCodec("g1")
    with monkeypatch.context() as later:
        later.setattr(CursorCodec, "_VERSION", 2)
        cursor = codec.encode(7, "")

    with pytest.raises(CursorExpired):
        codec.decode(cursor, "")


@given(st.one_of(st.text(), st.binary().map(lambda raw: raw.hex())))
def test_what_is_no_cursor_is_an_invalid_field(text: str) -> None:
    with pytest.raises(InvalidField) as caught:
        CursorCodec("g1").decode(text, "")

    assert [path for path, _ in caught.value.fields] == ["cursor"]


@given(st.integers(0, 51), st.sampled_from("ABCxyz019-_"))
def test_a_cursor_with_another_letter_is_none_or_the_same(place: int, letter: str) -> None:
    codec = CursorCodec("g1")
    cursor = codec.encode(7, "", 3)
    changed = cursor[:place] + letter + cursor[place + 1 :]

    try:
        assert codec.decode(changed, "") == (7, 3)
    except InvalidField:
        assert changed != cursor


async def test_a_ring_between_a_look_and_the_wait_is_not_lost() -> None:
    bell = Bell()
    with bell.listen("north") as hints:
        bell.ring("north")
        assert await hints.wait(30)


async def test_many_rings_are_one_hint() -> None:
    bell = Bell()
    with bell.listen("north") as hints:
        for _ in range(1_000):
            bell.ring("south", "north")
        assert await hints.wait(30)
        assert not await hints.wait(0.01)


async def test_a_ring_wakes_everybody_who_listens_to_its_topic_and_nobody_else() -> None:
    bell = Bell()
    with bell.listen("north") as one, bell.listen("north") as two, bell.listen("south") as other:
        waiting = [asyncio.ensure_future(hints.wait(30)) for hints in (one, two)]
        await asyncio.sleep(0)
        bell.ring("north")
        assert await asyncio.gather(*waiting) == [True, True]
        assert not await other.wait(0.01)


async def test_who_stopped_listening_leaves_nothing_behind() -> None:
    bell = Bell()
    tasks = asyncio.all_tasks()
    with bell.listen("north") as hints:
        waiting = asyncio.ensure_future(hints.wait(30))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await hints.wait(0.01)
    bell.ring("north")

    assert not bell._listeners
    assert asyncio.all_tasks() == tasks
