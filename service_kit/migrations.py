"""Migrations: from whatever a database is at to what this release needs, all or nothing."""

from __future__ import annotations

import asyncio
import functools
import uuid
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, column, inspect, table, text, update

from service_kit.database import Database
from service_kit.errors import SetupProblem
from service_kit.statements import alone, one_writes

# How long a statement may take that changes a large table.
STATEMENT_SECONDS = 3600.0


def migrate(url: str, scripts: Path, *, at_start: bool = False) -> None:
    """Bring a database to this release's tables, by the Alembic scripts of a folder. Done already: nothing happens.

    At a service's start a SQLite file alone is brought there. Others may be serving a PostgreSQL database: there the
    start raises `SetupProblem` where something is to be done; where a later release has done more, it serves all the
    same. Needs no event loop around it.
    """
    asyncio.run(_migrate(url, scripts, at_start=at_start))


async def _migrate(url: str, scripts: Path, *, at_start: bool) -> None:
    database = Database(url, STATEMENT_SECONDS)
    try:
        if at_start and not database.is_a_file:
            await database.read(lambda connection: require_newest(connection, scripts))
        else:
            await database.write(lambda connection: _upgrade(connection, scripts))
    finally:
        await database.close()


def _upgrade(connection: Connection, scripts: Path) -> None:
    alone(connection, "migrate")
    config = _config(scripts)
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if not one_writes(connection):
        _settle_on_this_server(connection)


def _settle_on_this_server(connection: Connection) -> None:
    """Forget the transaction numbers of another server, whose dump this was: here they are still to come."""
    newest = text("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    to_come = connection.execute(newest).scalar_one()
    for name in inspect(connection).get_table_names():
        if not name.endswith("_feed"):
            continue
        feed = table(name, column("transaction_id"))
        forgotten = update(feed).where(feed.c.transaction_id >= to_come).values(transaction_id=0)
        if connection.execute(forgotten).rowcount:
            facts = table("database_facts", column("name"), column("value"))
            anew = update(facts).where(facts.c.name == "generation").values(value=uuid.uuid4().hex)
            connection.execute(anew)


def require_newest(connection: Connection, scripts: Path) -> None:
    """Require that a database is what this release needs, or a later one left. Raises `SetupProblem`."""
    known, newest = _revisions(scripts)
    at = set(MigrationContext.configure(connection).get_current_heads())
    if not at or (at <= known and at != newest):
        name = scripts.parents[1].name
        raise SetupProblem(f"The database is not what this release needs yet. Run: python -m {name} migrate")


@functools.cache
def _revisions(scripts: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return the revisions that the scripts know, and the newest of them."""
    directory = ScriptDirectory.from_config(_config(scripts))
    return frozenset(one.revision for one in directory.walk_revisions()), frozenset(directory.get_heads())


def _config(scripts: Path) -> Config:
    config = Config()
    config.set_main_option("script_location", str(scripts))
    return config
