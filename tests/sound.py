"""What a test leaves behind is held to the services' own `check`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from runtime_service.store.checking import check as check_runtime
from teaching_service.store.checking import check as check_teaching

CHECKS: dict[str, Callable[[str], AsyncIterator[Any]]] = {"runtime.db": check_runtime, "teaching.db": check_teaching}


async def wrong_in(folder: Path) -> list[str]:
    """Say what does not hold of the databases below a folder."""
    found = []
    for name, check in CHECKS.items():
        for database in await asyncio.to_thread(_below, folder, name):
            async for one in check(f"sqlite:///{database}"):
                found.append(f"{one.where}: {one.what} ({one.rule})")
    return found


def _below(folder: Path, name: str) -> list[Path]:
    return list(folder.rglob(name))


@pytest.fixture(autouse=True)
async def sound(tmp_path: Path) -> AsyncIterator[None]:
    """Hold whatever the test's services kept to every rule, once they have stopped."""
    yield
    assert await wrong_in(tmp_path) == []
