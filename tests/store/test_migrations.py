"""What a migration makes is what the code expects, whichever database it is made in."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, MetaData, text, update

import runtime_service.store.tables
import teaching_service.store.tables
from runtime_service.store.reading import Reading
from service_kit.database import Database
from service_kit.errors import SetupProblem
from service_kit.feeds import START, FeedEntry, append
from tests.conftest import MIGRATE, MakeDatabase

METADATA = {"runtime": runtime_service.store.tables.metadata, "teaching": teaching_service.store.tables.metadata}


@pytest.mark.parametrize("service", ["runtime", "teaching"])
async def test_a_migrated_database_is_what_the_code_expects(service: str, make_database: MakeDatabase) -> None:
    """Alembic finds nothing to change; migrating again changes nothing."""
    url = await make_database(service)
    await asyncio.to_thread(MIGRATE[service], url)
    database = Database(url)
    try:
        assert await database.read(lambda connection: differences(connection, METADATA[service])) == []
    finally:
        await database.close()


def differences(connection: Connection, metadata: MetaData) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return list(compare_metadata(context, metadata))


def stand_at(connection: Connection, version: str) -> None:
    connection.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})


async def test_replicas_that_migrate_at_once_migrate_once(make_database: MakeDatabase, kind: str) -> None:
    url = await make_database("")
    times = 1 if kind == "sqlite" else 3
    await asyncio.gather(*(asyncio.to_thread(MIGRATE["runtime"], url) for _ in range(times)))
    database = Database(url)
    try:
        assert await database.read(lambda connection: differences(connection, METADATA["runtime"])) == []
    finally:
        await database.close()


async def test_a_start_changes_no_database_that_others_may_be_serving(make_database: MakeDatabase, kind: str) -> None:
    """A file is brought up to date as its service starts; any other by `migrate` alone. A later one is served too."""
    url = await make_database("")

    async def starts() -> bool:
        try:
            await asyncio.to_thread(MIGRATE["runtime"], url, at_start=True)
        except SetupProblem as problem:
            return "python -m runtime_service migrate" not in str(problem)
        return True

    assert await starts() is (kind == "sqlite")
    await asyncio.to_thread(MIGRATE["runtime"], url)
    assert await starts()
    if kind == "postgresql":
        database = Database(url)
        for version, served in (("0001", False), ("9999", True)):
            await database.write(partial(stand_at, version=version))
            assert await starts() is served
        await database.close()


async def test_a_dump_from_another_server_is_told_from_there_on_and_its_cursors_have_expired(
    make_database: MakeDatabase, kind: str
) -> None:
    """There transactions had gone further: what they wrote would be shown once those here have caught up."""
    url = await make_database("runtime")
    database = Database(url)
    feed = runtime_service.store.tables.approval_feed
    written = FeedEntry("default", "waiting", "a1", datetime(2026, 3, 1, tzinfo=UTC))
    await database.write(lambda connection: append(connection, feed, [written]))
    if kind == "postgresql":
        far = update(feed).values(transaction_id=2**40)
        await database.write(lambda connection: connection.execute(far).close())
    reading = Reading(database)
    before = await reading.generation()
    await asyncio.to_thread(MIGRATE["runtime"], url)

    assert [row.subject for row in await reading.approval_news("default", START, 10)] == ["a1"]
    assert (await reading.generation() == before) is (kind == "sqlite")
    await database.close()
