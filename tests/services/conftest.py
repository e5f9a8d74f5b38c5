"""The real service in this process, with real clients and a real host, each test in a folder of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

import runtime_service
import service_kit
from tests.services.book import Book
from tests.services.service import DEADLINE_SECONDS, Logged, Service
from tests.sound import sound

__all__ = ["sound"]


@pytest.fixture(autouse=True)
def nothing_blocks(sound: None) -> Iterator[None]:
    """Fail whatever blocks the event loop from the service's own code."""
    with blockbuster_ctx([runtime_service, service_kit]) as blockbuster:
        _allow(blockbuster)
        yield


def _allow(blockbuster: BlockBuster) -> None:
    """Allow what holds up nobody: the data folder and the database are opened before anything is served."""
    for function in blockbuster.functions.values():
        function.can_block_in("service_kit/migrations.py", {"_upgrade", "require_newest", "_revisions"})
        function.can_block_in("service_kit/database.py", {"__init__"})
        # A password file is looked for once for each connection.
        function.can_block_in("asyncpg/connect_utils.py", {"_parse_connect_dsn_and_args"})
        function.can_block_in("service_kit/data_folder.py", {"__init__", "lock", "signing_key"})


@pytest.fixture
async def idle_service(tmp_path: Path, runtime_database: str) -> AsyncIterator[Service]:
    """A service that the test starts itself, with settings of its own."""
    logged = Logged()
    with logged.kept():
        async with AsyncExitStack() as cleanup:
            service = Service(tmp_path, cleanup, logged)
            service.settings["database_url"] = runtime_database
            try:
                yield service
            finally:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await cleanup.aclose()
                    await service.stop()
    defects = [event for event in logged.events if event["event"] in ("rpc.defect", "turn.defect", "commit.failed")]
    assert not defects


@pytest.fixture
async def service(idle_service: Service) -> Service:
    """A service that serves."""
    await idle_service.start()
    return idle_service


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "book.jsonl")


@pytest.fixture
async def host(service: Service, book: Book) -> AsyncIterator[None]:
    """A host that offers the book's tools."""
    async with service.host("notebook", *book.tools()):
        yield
