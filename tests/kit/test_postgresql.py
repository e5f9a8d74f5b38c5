"""What a transaction promises on PostgreSQL where the connection goes, the server is busy, or others want the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, func, insert, select, text, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.util import await_only

from service_kit import postgresql
from service_kit.errors import PartUnavailable, SetupProblem
from service_kit.postgresql import Doubtful, Transactions
from tests.cut import Cut, Proxy
from tests.postgres import Postgres

metadata = MetaData()
counter = Table("counter", metadata, Column("id", Integer, primary_key=True), Column("n", Integer))


@pytest.fixture
async def url(postgres: Postgres) -> AsyncIterator[URL]:
    """A database with a counter at 0."""
    made = await postgres.create()
    transactions = Transactions(make_url(made), 1, reads=False)

    def make(connection: Connection) -> None:
        metadata.create_all(connection)
        connection.execute(insert(counter), {"id": 1, "n": 0})

    await transactions.run(make)
    await transactions.close()
    yield make_url(made)
    await postgres.drop(made)


@contextlib.asynccontextmanager
async def opened(url: URL, connections: int = 4) -> AsyncIterator[Transactions]:
    transactions = Transactions(url, connections, reads=False)
    try:
        yield transactions
    finally:
        await transactions.close()


def add_one(connection: Connection) -> int:
    n = connection.execute(update(counter).values(n=counter.c.n + 1).returning(counter.c.n)).scalar_one()
    return int(n)


def count(connection: Connection) -> int:
    return int(connection.execute(select(counter.c.n)).scalar_one())


@pytest.mark.parametrize("cut", Cut)
async def test_a_commit_whose_answer_was_lost_is_done_once(url: URL, cut: Cut) -> None:
    """R5.5: found kept it is not done again, found undone it is."""
    proxy = Proxy(url)
    async with proxy.listening() as through, opened(through) as transactions:
        for times in (1, 2, 3):
            proxy.cut = cut
            assert await transactions.run(add_one) == times
        assert await transactions.run(count) == 3
    assert proxy.cuts == 3


@pytest.mark.parametrize("cut", Cut)
async def test_whoever_knows_what_it_wrote_is_asked_whether_it_was_kept(url: URL, cut: Cut) -> None:
    """R5.5: as the last chain of a turn tells it."""
    proxy, asked = Proxy(url), []

    def kept(connection: Connection, done: int) -> bool:
        asked.append(done)
        return count(connection) == done

    async with proxy.listening() as through, opened(through) as transactions:
        proxy.cut = cut
        assert await transactions.run(add_one, kept) == 1
        assert await transactions.run(count) == 1
    assert asked == [1]


async def test_where_nobody_can_be_asked_it_is_said_that_nobody_knows(
    url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "DOUBT_SECONDS", 0.3)
    proxy = Proxy(url)
    async with contextlib.AsyncExitStack() as listening, opened(url) as direct:
        through = await listening.enter_async_context(proxy.listening())
        async with opened(through) as transactions:
            await transactions.run(count)

            def go_away(connection: Connection) -> None:
                add_one(connection)
                proxy.cut = Cut.AFTER
                # Nobody is let in any more.
                proxy.server = proxy.server.set(query={"host": "/nowhere"})

            with pytest.raises(Doubtful):
                await transactions.run(go_away)
        assert await direct.run(count) == 1


async def test_a_connection_that_was_lost_before_the_commit_is_made_again(url: URL) -> None:
    """All of them, as where the server was started again: nothing was kept, so all of it is done again."""
    async with opened(url) as transactions, opened(url, 1) as other:
        await asyncio.gather(*(transactions.run(count) for _ in range(4)))
        tries = 0

        def killed_once(connection: Connection) -> int:
            nonlocal tries
            tries += 1
            own = connection.execute(select(func.pg_backend_pid())).scalar_one()
            if tries == 1:
                add_one(connection)
                connection.execute(select(func.pg_terminate_backend(own)))
            return add_one(connection)

        end = text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        await other.run(lambda connection: connection.execute(end).all())
        assert await transactions.run(killed_once) == 1
    assert tries == 2


async def test_a_deadlock_is_tried_again(url: URL) -> None:
    """Two that lock the same rows the other way round both get what they want."""
    async with opened(url) as transactions:
        await transactions.run(lambda connection: connection.execute(insert(counter), {"id": 2, "n": 0}))

        def locks(*ids: int) -> Callable[[Connection], None]:
            def work(connection: Connection) -> None:
                for row in ids:
                    connection.execute(update(counter).where(counter.c.id == row).values(n=counter.c.n + 1))
                    connection.execute(text("SELECT pg_sleep(0.05)"))

            return work

        await asyncio.gather(transactions.run(locks(1, 2)), transactions.run(locks(2, 1)))
        assert await transactions.run(lambda c: c.execute(select(counter.c.n)).scalars().all()) == [2, 2]


async def test_of_two_that_write_the_same_key_the_second_finds_the_first(url: URL) -> None:
    """So a request that is made on two replicas at once is done once, and is no error."""
    begun = 0

    def once(connection: Connection) -> str:
        nonlocal begun
        begun += 1
        if connection.execute(select(counter.c.id).where(counter.c.id == 7)).first() is not None:
            return "repeated"
        connection.execute(text("SELECT pg_sleep(0.05)"))
        connection.execute(insert(counter), {"id": 7, "n": 0})
        return "done"

    async with opened(url) as transactions:
        assert sorted(await asyncio.gather(*(transactions.run(once) for _ in range(3)))) == [
            "done", "repeated", "repeated",
        ]  # fmt: skip
    assert begun == 5


async def test_a_key_that_is_there_already_stays_an_error(url: URL) -> None:
    async with opened(url) as transactions:
        with pytest.raises(IntegrityError):
            await transactions.run(lambda connection: connection.execute(insert(counter), {"id": 1, "n": 0}))
        assert await transactions.run(add_one) == 1


async def test_what_is_locked_for_too_long_is_a_part_that_is_away(url: URL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "LOCK_SECONDS", 0.1)
    async with opened(url) as impatient, opened(url) as other:
        holding, let_go = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with other._engine.begin() as connection:
                await connection.execute(update(counter).values(n=0))
                holding.set()
                await let_go.wait()

        held = asyncio.ensure_future(hold())
        await holding.wait()
        with pytest.raises(PartUnavailable):
            await impatient.run(add_one)
        let_go.set()
        await held
        assert await impatient.run(add_one) == 1


async def test_a_cancellation_is_raised_once_the_transaction_has_come_to_its_end(url: URL) -> None:
    async with opened(url) as transactions:
        begun = asyncio.Event()

        def slow(connection: Connection) -> int:
            begun.set()
            connection.execute(text("SELECT pg_sleep(0.05)"))
            return add_one(connection)

        writer = asyncio.ensure_future(transactions.run(slow))
        await begun.wait()
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer
        assert await transactions.run(count) == 1


async def test_every_connection_is_bounded_in_what_it_waits_for(url: URL) -> None:
    async with opened(url) as transactions:
        names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
        shown = await transactions.run(lambda c: [c.execute(text(f"SHOW {name}")).scalar_one() for name in names])
    assert shown == ["5s", "30s", "15s"]


async def test_a_reader_sees_one_snapshot_and_cannot_write(url: URL) -> None:
    reader = Transactions(url, 1, reads=True)
    async with opened(url, 1) as other:
        seen: list[int] = []

        def look(connection: Connection) -> None:
            seen.append(count(connection))
            await_only(other.run(add_one))
            seen.append(count(connection))

        await reader.run(look)
        assert seen == [0, 0]
        with pytest.raises(DBAPIError, match="read-only"):
            await reader.run(add_one)
    await reader.close()


async def test_a_database_that_lets_nobody_in_says_so_without_the_password(url: URL) -> None:
    async with opened(url.set(database="no_such_database", password="hunter2")) as transactions:
        with pytest.raises(SetupProblem, match="no_such_database") as caught:
            await transactions.run(count)
    assert "hunter2" not in str(caught.value)
    async with opened(url.set(host="127.0.0.1", port=1, query={})) as transactions:
        with pytest.raises(PartUnavailable):
            await transactions.run(count)
