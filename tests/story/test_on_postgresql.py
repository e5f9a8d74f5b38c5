"""The nursery story on PostgreSQL: told as on SQLite, kills and all, by both services."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import MakeDatabase
from tests.story.test_nursery import SECONDS, STORY


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
async def test_it_comes_out_as_told(make_database: MakeDatabase, tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TUTELAGE_")}
    databases = {
        f"TUTELAGE_{service.upper()}_DATABASE_URL": await make_database(service) for service in ("runtime", "teaching")
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(STORY),
        "--yes",
        "--data-dir",
        str(tmp_path),
        env=clean | databases,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert said.decode().endswith("All of it came out as told.\n"), said.decode()
    assert process.returncode == 0
    assert not list(tmp_path.glob("*.db"))  # noqa: ASYNC240
