"""`check` as a command: of each service, and of the command line for both (settled 31)."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from runtime_service.store.migrations import migrate as migrate_runtime
from teaching_service.store.migrations import migrate as migrate_teaching
from tests.client.commands import Ran

# A turn that was never given, and of which there is a record.
ORPHAN = (
    "INSERT INTO records VALUES ('lost', 1, 'default', 1, '2026-03-01 09:30:00.000000', 'agent', 'turn_given', '{}',"
    " '', x'', '', '', '', NULL)"
)
FOUND = {"where": "turn lost", "what": "there are records of it, and no turn", "rule": "R5.1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with both databases, each as its service makes it."""
    for name, migrate in (("runtime", migrate_runtime), ("teaching", migrate_teaching)):
        migrate(f"sqlite:///{tmp_path}/{name}.db")
    return tmp_path


def damage(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "runtime.db")) as database, database:
        database.execute(ORPHAN)


async def ran(*command: str, folder: Path) -> Ran:
    """Run a command on the folder: two services' own commands take their time."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "TUTELAGE_DATA_DIR": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


async def service(name: str, *arguments: str, folder: Path) -> Ran:
    """Run a service's own command."""
    return await ran(sys.executable, "-m", f"{name}_service", *arguments, folder=folder)


async def tutelage(*arguments: str, folder: Path) -> Ran:
    """Run the command line."""
    return await ran(str(Path(sys.executable).with_name("tutelage")), *arguments, folder=folder)


async def test_it_says_that_all_of_it_holds(folder: Path) -> None:
    """Each service of its own, and the command line of both; exit code 0."""
    one = await service("teaching", "check", "--json", folder=folder)
    both = await tutelage("check", folder=folder)

    assert (one.code, json.loads(one.out)) == (0, {"holds": True, "wrong": []})
    assert (both.code, both.out) == (
        0,
        "What the runtime keeps:\nAll of it holds.\nWhat the teaching service keeps:\nAll of it holds.\n",
    )


async def test_it_names_what_does_not_hold(folder: Path) -> None:
    """What, where, rule; exit code 1, whichever of the two it is."""
    damage(folder)

    one = await service("runtime", "check", folder=folder)
    both = await tutelage("check", "--json", folder=folder)

    assert (one.code, one.out) == (
        1,
        "turn lost: there are records of it, and no turn (R5.1)\n1 of it does not hold.\n",
    )
    assert (both.code, json.loads(both.out)) == (
        1,
        {"runtime": {"holds": False, "wrong": [FOUND]}, "teaching": {"holds": True, "wrong": []}},
    )


async def test_what_cannot_be_looked_at_is_told_in_one_line(folder: Path) -> None:
    """No database, and one of another release: neither is made, brought up to date, or said to hold."""
    (folder / "teaching.db").unlink()
    with closing(sqlite3.connect(folder / "runtime.db")) as database, database:
        database.execute("DELETE FROM alembic_version")

    none = await service("teaching", "check", folder=folder)
    both = await tutelage("check", "--json", folder=folder)

    assert (none.code, none.out) == (1, "")
    assert none.err == f"There is no database {folder}/teaching.db: nothing was ever kept there.\n"
    assert not (folder / "teaching.db").exists()
    assert both.refused() == (
        "tutelage: The runtime cannot be checked: "
        "The database is not what this release needs yet. Run: python -m runtime_service migrate"
    )


async def test_json_goes_with_check_alone(folder: Path) -> None:
    """A service that serves says nothing as JSON: wrong usage."""
    assert (await service("runtime", "--json", folder=folder)).code == 2
