"""What every test may have: databases of both kinds. The PostgreSQL server starts for the first that asks for it.

A test that is marked `both_databases` runs on each; any other has SQLite files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import runtime_service.store.migrations
import teaching_service.store.migrations
from tests.postgres import Postgres, postgres

MIGRATE = {
    "runtime": runtime_service.store.migrations.migrate,
    "teaching": teaching_service.store.migrations.migrate,
}

MakeDatabase = Callable[[str], Awaitable[str]]


@pytest.fixture(scope="session", name="postgres")
def one_postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for all tests. Each makes databases of its own on it."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def templates() -> dict[str, str]:
    """The migrated PostgreSQL databases that others are copied from, by their service."""
    return {}


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """Which database the test has: `sqlite`, but where it is marked."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
async def runtime_database(kind: str, make_database: MakeDatabase) -> str:
    """The URL of a runtime's database, to be set; empty: a file in its data folder."""
    return "" if kind == "sqlite" else await make_database("runtime")


@pytest.fixture
async def teaching_database(kind: str, make_database: MakeDatabase) -> str:
    """The URL of a teaching service's database, to be set; empty: a file in its data folder."""
    return "" if kind == "sqlite" else await make_database("teaching")


@pytest.fixture
async def make_database(
    kind: str, tmp_path: Path, templates: dict[str, str], request: pytest.FixtureRequest
) -> AsyncIterator[MakeDatabase]:
    """Make a database of the test's own and return its URL: migrated for a service, or empty where none is named."""
    if kind == "sqlite":

        async def in_a_file(service: str = "") -> str:
            url = f"sqlite:///{tmp_path}/{service or 'empty'}.db"
            if service:
                await asyncio.to_thread(MIGRATE[service], url)
            return url

        yield in_a_file
        return
    server: Postgres = request.getfixturevalue("postgres")
    async with AsyncExitStack() as stack:

        async def on_the_server(service: str = "") -> str:
            if service and service not in templates:
                templates[service] = await server.create()
                await asyncio.to_thread(MIGRATE[service], templates[service])
            url = await server.create(templates.get(service, ""))
            stack.push_async_callback(server.drop, url)
            return url

        yield on_the_server
