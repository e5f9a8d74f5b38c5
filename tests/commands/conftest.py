"""One service for the tests of a file, with a host of the notebook's tools, and a desk to run commands at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.commands.desk import Desk
from tests.services.book import Book
from tests.services.service import DEADLINE_SECONDS, Logged, Service

# How long a host that went is waited for here.
RECONNECT = 0.6


@pytest.fixture(scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    logged = Logged()
    with logged.kept():
        async with AsyncExitStack() as cleanup:
            service = Service(tmp_path_factory.mktemp("service"), cleanup, logged)
            await service.start(reconnect_seconds=RECONNECT)
            yield service
            async with asyncio.timeout(DEADLINE_SECONDS):
                await cleanup.aclose()
                await service.stop()


@pytest.fixture(scope="module")
async def host(service: Service, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[None]:
    """A host that offers the notebook's tools."""
    async with service.host("notebook", *Book(tmp_path_factory.mktemp("book") / "book.jsonl").tools()):
        yield


@pytest.fixture
def desk(service: Service, host: None, tmp_path: Path) -> Desk:
    return Desk(service, tmp_path)
