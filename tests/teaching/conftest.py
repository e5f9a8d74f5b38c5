"""The real service in this process, with real clients, each test in a folder of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog
from blockbuster import BlockBuster, blockbuster_ctx
from grpc import aio
from hypothesis import settings

import service_kit
import teaching_service
from tests.teaching.service import Teaching

# Properties are tried on machines of any speed: no deadline for one example.
settings.register_profile("teaching", deadline=None)
settings.load_profile("teaching")


@pytest.fixture(scope="session", autouse=True)
async def grpc_stays() -> AsyncIterator[None]:
    """Keep gRPC's own thread between tests: it is joined, which blocks, when the last channel is collected."""
    aio.init_grpc_aio()
    yield
    aio.shutdown_grpc_aio()


@pytest.fixture(autouse=True)
def nothing_blocks() -> Iterator[None]:
    """Fail whatever blocks the event loop from the service's own code."""
    with blockbuster_ctx([teaching_service, service_kit]) as blockbuster:
        _allow(blockbuster)
        yield


def _allow(blockbuster: BlockBuster) -> None:
    """Allow what holds up nobody.

    The data folder and the database are opened before anything is served; migrations have a thread of their own.
    """
    for function in blockbuster.functions.values():
        function.can_block_in("service_kit/migrations.py", {"_upgrade", "require_newest", "_revisions"})
        function.can_block_in("service_kit/database.py", {"__init__"})
        # A password file is looked for once for each connection.
        function.can_block_in("asyncpg/connect_utils.py", {"_parse_connect_dsn_and_args"})
        function.can_block_in("service_kit/data_folder.py", {"__init__", "lock", "signing_key"})


@pytest.fixture
async def idle(tmp_path: Path, teaching_database: str) -> AsyncIterator[Teaching]:
    """A service that the test starts itself, with settings of its own. Fails the test for any defect."""
    events: list[dict[str, Any]] = []
    before = structlog.get_config()

    def keep(_logger: Any, _method: str, event: Any) -> str:
        events.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[keep], cache_logger_on_first_use=False)
    try:
        async with AsyncExitStack() as cleanup:
            service = Teaching(tmp_path, cleanup)
            service.settings["database_url"] = teaching_database
            try:
                yield service
            finally:
                await cleanup.aclose()
                await service.stop()
    finally:
        structlog.configure(**before)
    assert [event for event in events if event["event"] == "rpc.defect"] == []


@pytest.fixture
async def teaching(idle: Teaching) -> Teaching:
    """A service that serves."""
    await idle.start()
    return idle
