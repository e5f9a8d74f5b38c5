"""What the tests of recovery share: a service in this process, and hosts by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tutelage.runtime.v1.tools_pb2 import Tool

from tests.recovery.forks import Forks
from tests.recovery.hand_host import HandHost
from tests.recovery.house import House, house
from tests.sound import sound

__all__ = ["sound"]

HostMaker = Callable[..., Awaitable[HandHost]]


@pytest.fixture(scope="session")
async def forks() -> AsyncIterator[Forks]:
    """What forks the services and hosts that are processes of their own."""
    started = await Forks.start()
    yield started
    await started.stop()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What is ended with the test."""
    async with AsyncExitStack() as ended:
        yield ended


@pytest.fixture
async def here(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    """A service of this test alone. Parametrised indirectly by changes to its settings."""
    async with house(tmp_path, **getattr(request, "param", {})) as there:
        yield there


@pytest.fixture
async def host(here: House, stack: AsyncExitStack) -> HostMaker:
    """Make hosts of that service, each an incarnation of its own, connected."""

    async def connected(*tools: Tool, name: str = "hand", account: str = "hand", capacity: int = 0) -> HandHost:
        made = HandHost(here, *tools, name=name, account=account, capacity=capacity)
        await stack.enter_async_context(made)
        await made.connect()
        return made

    return connected
