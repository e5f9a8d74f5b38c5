"""Two replicas of the runtime on one PostgreSQL database, each a process with a folder of its own and the same key."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tutelage.service_process import ServiceProcess
from tutelage.token import signing_key

from tests.conftest import MIGRATE
from tests.postgres import Postgres
from tests.recovery.conftest import forks
from tests.recovery.house import House

__all__ = ["forks"]

LEASE_SECONDS = 3.0


@dataclass
class Replica:
    """One of the two."""

    process: ServiceProcess
    house: House

    async def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        await self.process.ended()


@dataclass
class Pair:
    """Both of them."""

    a: Replica
    b: Replica


async def start(folder: Path, name: str, url: str, stack: AsyncExitStack) -> Replica:
    """Start a replica, for as long as the stack lasts."""
    own = folder / name
    own.mkdir()
    signing_key(folder)
    shutil.copy(folder / "signing-key.pem", own)
    settings = {
        "TUTELAGE_RUNTIME_DATABASE_URL": url,
        "TUTELAGE_RUNTIME_SCRIPTS_DIR": str(folder / "scripts"),
        "TUTELAGE_RUNTIME_LEASE_SECONDS": str(LEASE_SECONDS),
        "TUTELAGE_RUNTIME_LEASE_KEEP_SECONDS": "0.5",
        "TUTELAGE_RUNTIME_RECONNECT_SECONDS": "4",
    }
    process = await ServiceProcess.start("runtime", own, settings=settings)
    stack.push_async_callback(process.stop)
    house = House(folder, process.address)
    stack.push_async_callback(house.close)
    return Replica(process, house)


@pytest.fixture(scope="module")
async def pair(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Two replicas that a module's tests share: each test has agents and conversations of its own."""
    folder = tmp_path_factory.mktemp("replicas")
    async with AsyncExitStack() as stack:
        url = await postgres.create()
        stack.push_async_callback(postgres.drop, url)
        await migrated(url)
        yield Pair(await start(folder, "a", url, stack), await start(folder, "b", url, stack))


async def migrated(url: str) -> None:
    """Migrate a runtime's database, as `python -m runtime_service migrate` does."""
    await asyncio.to_thread(MIGRATE["runtime"], url)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack
