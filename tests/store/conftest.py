"""The stores' suite: each test on SQLite and on PostgreSQL, in a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from service_kit.database import Database
from tests.conftest import MakeDatabase


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test here on both."""
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
async def database(make_database: MakeDatabase) -> AsyncIterator[Database]:
    """An empty database."""
    database = Database(await make_database(""))
    yield database
    await database.close()
