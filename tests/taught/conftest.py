"""Both services in this process, with real clients and real hosts, each test in a folder of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

import runtime_service
import service_kit
import teaching_service
from tests.services.book import Book
from tests.services.conftest import _allow, book, idle_service
from tests.services.service import Service
from tests.sound import sound
from tests.taught.both import Both
from tests.teaching.conftest import grpc_stays
from tests.teaching.service import Teaching

__all__ = ["book", "grpc_stays", "idle_service", "sound"]


@pytest.fixture(autouse=True)
def nothing_blocks(sound: None) -> Iterator[None]:
    """Fail whatever blocks the event loop from the services' own code."""
    with blockbuster_ctx([runtime_service, teaching_service, service_kit]) as blockbuster:
        _allow(blockbuster)
        yield


@pytest.fixture
async def idle(idle_service: Service, tmp_path: Path) -> AsyncIterator[Both]:
    """Both, of which teaching serves; the test starts the runtime."""
    async with AsyncExitStack() as cleanup:
        teaching = Teaching(tmp_path, cleanup)
        await teaching.start()
        idle_service.settings["teaching_address"] = teaching.address
        try:
            yield Both(idle_service, teaching)
        finally:
            await cleanup.aclose()
            await teaching.stop()


@pytest.fixture
async def both(idle: Both) -> Both:
    """Both, serving."""
    await idle.runtime.start()
    return idle


@pytest.fixture
async def host(both: Both, book: Book) -> AsyncIterator[None]:
    """A host that offers the book's tools."""
    async with both.runtime.host("notebook", *book.tools()):
        yield
