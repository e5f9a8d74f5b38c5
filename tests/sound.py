"""What a test leaves behind is held to the services' own `check`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from runtime_service.store.checking import check as check_runtime
from teaching_service.store.checking import check as check_teaching

CHECKS: dict[str, Callable[[str], AsyncIterator[Any]]] = {"runtime": check_runtime, "teaching": check_teaching}


async def wrong_in(folder: Path, **others: str) -> list[str]:
    """Say what does not hold of the databases below a folder, and of others by their service."""
    urls = [(name, f"sqlite:///{file}") for name in CHECKS for file in await asyncio.to_thread(_below, folder, name)]
    urls += [(name, url) for name, url in others.items() if url]
    return [f"{one.where}: {one.what} ({one.rule})" for name, url in urls async for one in CHECKS[name](url)]


def _below(folder: Path, name: str) -> list[Path]:
    return list(folder.rglob(f"{name}.db"))


@pytest.fixture(autouse=True)
async def sound(tmp_path: Path, runtime_database: str, teaching_database: str) -> AsyncIterator[None]:
    """Hold whatever the test's services kept to every rule, once they have stopped."""
    yield
    assert await wrong_in(tmp_path, runtime=runtime_database, teaching=teaching_database) == []
