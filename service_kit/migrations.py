"""Migrations: from whatever a database is at to what this release needs, all or nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from service_kit.database import Database


def migrate(url: str, scripts: Path) -> None:
    """Bring a database to this release's tables, by the Alembic scripts of a folder. Done already: nothing happens.

    Needs no event loop around it.
    """
    asyncio.run(_migrate(url, scripts))


async def _migrate(url: str, scripts: Path) -> None:
    database = Database(url)
    try:
        await database.write(lambda connection: _upgrade(connection, scripts))
    finally:
        await database.close()


def _upgrade(connection: Connection, scripts: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
