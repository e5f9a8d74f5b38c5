"""The nursery story on PostgreSQL: told as on SQLite, kills and all, by both services."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import MakeDatabase
from tests.story.nursery import tell_story


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
async def test_it_comes_out_as_told(make_database: MakeDatabase, tmp_path: Path) -> None:
    """C8: what the services keep is there, and in no file."""
    databases = {
        f"TUTELAGE_{service.upper()}_DATABASE_URL": await make_database(service) for service in ("runtime", "teaching")
    }

    code, said = await tell_story(tmp_path, **databases)

    assert said.endswith("All of it came out as told.\n"), said
    assert code == 0
    assert not list(tmp_path.glob("*.db"))  # noqa: ASYNC240
