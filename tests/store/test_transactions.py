"""The committer's transactions (`runtime.md` R5.5), with two replicas that take each other's turns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, select, text, update
from sqlalchemy.util import await_only

from runtime_service.domain.journal import TurnEnd, WriterStarted
from runtime_service.domain.ledger import Hold
from runtime_service.domain.problems import WriterSuperseded
from runtime_service.domain.turns import Conversation, IfBusy, Turn, TurnId
from runtime_service.engine.units.turns import EndTurn, TakeTurn
from runtime_service.store import tables
from runtime_service.store.leases import Leases
from runtime_service.store.reading import Reading
from tests.conftest import MakeDatabase
from tests.domain.made import NOON
from tests.store.made import Replica, append, assert_sound, give, opened, replicas


@pytest.fixture
async def url(make_database: MakeDatabase) -> str:
    return await make_database("runtime")


@pytest.fixture
async def one(url: str) -> AsyncIterator[Replica]:
    async with replicas(url, 1) as [only]:
        yield only


async def test_a_stale_writers_units_are_dropped_alone(one: Replica) -> None:
    """R5.5: and every later one of that turn from this process; those of other turns are kept."""
    await one.commit(opened(), give("a"), give("b"))
    await one.commit(TakeTurn(TurnId("a"), one.process), TakeTurn(TurnId("b"), one.process))
    stale, good = Hold(TurnId("a"), 1, 1), one.hold(TurnId("b"))
    answers = await one.commit(append(stale, "1"), append(good, "1"), append(stale, "2"), append(good, "2", "3"))

    assert [type(answer) for answer in answers] == [WriterSuperseded, Turn, WriterSuperseded, Turn]
    assert one.turns[TurnId("b")].line == 5
    await assert_sound(one.database)


async def test_of_two_that_take_a_turn_one_has_it(url: str) -> None:
    """R6.1: one at a time, whoever asks."""
    async with replicas(url, 2) as both:
        for replica in both:
            await Leases(replica.database).begin(replica.process, 60)
        await both[0].commit(opened(), *(give(f"t{n}") for n in range(20)))
        taken: list[list[Any]] = await asyncio.gather(
            *(replica.commit(*(TakeTurn(TurnId(f"t{n}"), replica.process) for n in range(20))) for replica in both)
        )
        won = [[turn is not None for turn in answers] for answers in taken]
        assert all(sum(pair) == 1 for pair in zip(*won, strict=True))
        await assert_sound(both[0].database)


async def test_replicas_that_steal_each_others_turns_leave_no_gap_and_no_deadlock(url: str, kind: str) -> None:
    """R5.5, C7: every append was kept whole or refused as superseded; nobody waited in a circle."""
    chance = random.Random(5)
    ids = [TurnId(f"t{n}") for n in range(12)]

    async def steal(replica: Replica) -> tuple[int, int]:
        kept = refused = 0
        for _ in range(25):
            # Whose lease never ran may have any turn taken from it.
            await replica.commit(*(TakeTurn(one, replica.process) for one in chance.sample(ids, 6)))
            mine = chance.sample([one for one in ids if one in replica.turns], 5)
            answers = await replica.commit(*(append(replica.hold(one), "x", "y") for one in mine))
            kept += sum(isinstance(answer, Turn) for answer in answers)
            refused += sum(isinstance(answer, WriterSuperseded) for answer in answers)
            assert kept + refused >= len(answers)
            assert not [one for one in answers if not isinstance(one, Turn | WriterSuperseded)]
        return kept, refused

    async with replicas(url, 3) as all_three:
        await all_three[0].commit(opened(), *(give(one) for one in ids))
        for replica in all_three:
            await replica.commit(*(TakeTurn(one, replica.process) for one in ids))
        outcomes = await asyncio.gather(*(steal(replica) for replica in all_three))
        database = all_three[0].database
        await assert_sound(database)
        begun = select(tables.turns.c.writer, tables.turns.c.line)
        rows = await database.read(lambda connection: connection.execute(begun).all())
        # Line 1 is what was given; each writer began with a record; each append has two.
        kept = sum(kept for kept, _ in outcomes)
        assert sum(row.line for row in rows) == len(ids) + sum(row.writer for row in rows) + 2 * kept
        if kind == "postgresql":
            deadlocks = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
            assert await database.read(lambda connection: connection.execute(deadlocks).scalar_one()) == 0


async def test_the_same_request_at_both_replicas_is_done_once(url: str) -> None:
    """R9: unique keys decide who was first; the other repeats what that came to."""
    async with replicas(url, 2) as both:
        await both[0].commit(opened())
        for n in range(15):
            given = await asyncio.gather(
                *(replica.commit(give(f"{replica.process}-{n}", request_id=f"r{n}")) for replica in both)
            )
            assert given[0] == given[1]
        first, second = await asyncio.gather(*(replica.commit(opened("c2")) for replica in both))
        assert [type(one) for one in [*first, *second]] == [Conversation, Conversation]
        listed = await both[0].database.read(lambda connection: connection.execute(select(tables.turns.c.number)).all())
    assert sorted(row.number for row in listed) == list(range(1, 16))


async def test_units_of_a_turn_wait_together_while_another_replica_has_it(url: str, kind: str) -> None:
    """R5.5: in their order, while those of other turns go on."""
    async with replicas(url, 2) as (one, other):
        await one.commit(opened("c1"), opened("c2"), give("a", "c1"), give("b", "c2"))
        await one.commit(TakeTurn(TurnId("a"), one.process), TakeTurn(TurnId("b"), one.process))
        hold = one.hold(TurnId("a"))
        locked, let_go = asyncio.Event(), asyncio.Event()

        def lock(connection: Connection) -> None:
            table = tables.turns
            connection.execute(select(table.c.id).where(table.c.id == "a").with_for_update()).all()
            locked.set()
            await_only(let_go.wait())

        # On SQLite nobody else can hold anything.
        locking = asyncio.ensure_future(other.database.write(lock)) if kind == "postgresql" else None
        if locking is not None:
            await locked.wait()
        behind = asyncio.ensure_future(one.commit(append(hold, "first"), append(hold, "second")))
        [beside] = await one.commit(append(one.hold(TurnId("b")), "beside"))
        assert isinstance(beside, Turn)
        assert locking is None or not behind.done()
        let_go.set()
        assert [type(answer) for answer in await behind] == [Turn, Turn]
        if locking is not None:
            await locking
        records = await Reading(one.database).records(TurnId("a"))
        whys = [record.what.why for record in records if isinstance(record.what, WriterStarted)]
        assert whys == ["given", "first", "second"]
        await assert_sound(one.database)


async def test_a_lease_is_judged_by_the_databases_clock(url: str) -> None:
    """R6.1: whatever the clocks of its replicas say; one that has ended is never kept again."""
    async with replicas(url, 1) as [one]:
        leases = Leases(one.database)
        await leases.begin("mine", 60)
        assert await leases.keep("mine", 60)
        past = update(tables.leases).values(until=NOON - timedelta(days=1))
        await one.database.write(lambda connection: connection.execute(past).close())
        assert not await leases.keep("mine", 60)
        await one.commit(opened(), give("a"))
        await one.commit(TakeTurn(TurnId("a"), "mine"))
        assert await Reading(one.database).free_turns(10, ()) == ["a"]
        [taken] = await one.commit(TakeTurn(TurnId("a"), "other"))
        assert (taken.process, taken.writer) == ("other", 2)


async def test_turns_end_and_the_next_begin_one_behind_the_other(url: str) -> None:
    """R9: at whichever replica they end."""
    async with replicas(url, 2) as both:
        queue = [replace(give(f"t{n}"), if_busy=IfBusy.QUEUE) for n in range(10)]
        await both[0].commit(opened(), *queue)
        for n in range(10):
            replica = both[n % 2]
            [taken] = await replica.commit(TakeTurn(TurnId(f"t{n}"), replica.process))
            assert taken is not None, n
            await replica.commit(EndTurn(replica.hold(taken.id), TurnEnd.DONE, output=str(n)))
        after = select(tables.turns.c.id, tables.turns.c.after_turn_id).order_by(tables.turns.c.number)
        rows = await both[0].database.read(lambda connection: connection.execute(after).all())
    assert [row.after_turn_id for row in rows] == ["", *(f"t{n}" for n in range(9))]
