"""The runtime's migrations: from whatever a database is at to what this release needs, all or nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from service_kit.database import Database


def migrate(url: str) -> None:
    """Bring a database to this release's tables. Done already: nothing happens. Needs no event loop around it."""
    asyncio.run(_migrate(url))


async def _migrate(url: str) -> None:
    database = Database(url)
    try:
        async with database.write() as connection:
            await connection.run_sync(_upgrade)
    finally:
        await database.close()


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
