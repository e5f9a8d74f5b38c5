"""The service as a command: its help, its settings, its migrations, its log, its end (points 10, 11)."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from contextlib import AsyncExitStack, closing
from pathlib import Path

import alembic.command
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection
from tutelage.service_process import ServiceProcess

from runtime_service.store import migrations
from runtime_service.store.migrations import migrate
from runtime_service.store.tables import metadata
from service_kit.database import Database
from tests.services.service import CHANGES_ASKED, DEADLINE_SECONDS, Logged, Service, calls, within_deadline
from tests.services.wire_host import wire_host

MIGRATIONS = Path(migrations.__file__).parent


async def command(*arguments: str, **environment: object) -> tuple[int, str, str]:
    """Run `python -m runtime_service`; return its exit code and what it said."""
    settings = {name: str(value) for name, value in environment.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "runtime_service", *arguments),
        env=os.environ | settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 3 * DEADLINE_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_help_names_every_setting() -> None:
    """`--help`, and at least the settings that point 10 names."""
    code, out, err = await command("--help")

    assert (code, err) == (0, "")
    for name in ("LISTEN", "DATABASE_URL", "DATA_DIR", "TEACHING_ADDRESS", "SCRIPTS_DIR", "AUTH_ISSUER", "LOG_LEVEL"):
        assert f"TUTELAGE_RUNTIME_{name}" in out


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TUTELAGE_RUNTIME_LEASE_SECONDS", "soon"),
        ("TUTELAGE_RUNTIME_APPROVE", "perhaps"),
        ("TUTELAGE_RUNTIME_LISTEN", "nowhere"),
        ("TUTELAGE_RUNTIME_LISTEN", "0.0.0.0:0"),
        ("TUTELAGE_RUNTIME_AUTH_JWKS_FILE", "keys.json"),
        ("TUTELAGE_RUNTIME_TLS_CERT_FILE", "cert.pem"),
        ("TUTELAGE_RUNTIME_DATABASE_URL", "nonsense"),
        ("TUTELAGE_RUNTIME_DATA_DIR", "/proc/no/such/folder"),
    ],
)
async def test_a_wrong_setting_is_told_in_one_line(tmp_path: Path, name: str, value: str) -> None:
    """What went wrong, without a traceback."""
    settings = {"TUTELAGE_DATA_DIR": tmp_path, "TUTELAGE_RUNTIME_LISTEN": "127.0.0.1:0"} | {name: value}

    code, out, err = await command(**settings)

    said = [line for line in (out + err).splitlines() if line.strip() and not line.startswith("{")]
    assert code == 1
    assert len(said) == 1, err
    assert "Traceback" not in err


async def test_one_process_alone_serves_a_data_folder(tmp_path: Path) -> None:
    """R6.1: on SQLite one process holds the folder's lock; a second one says so in one line."""
    first = await ServiceProcess.start("runtime", tmp_path)
    try:
        code, _, err = await command(TUTELAGE_DATA_DIR=tmp_path, TUTELAGE_RUNTIME_LISTEN="127.0.0.1:0")
    finally:
        assert await first.stop() == 0

    assert code == 1
    assert [line for line in err.splitlines() if not line.startswith("{")] == [
        f"Another process serves the data folder {tmp_path} (runtime). Stop it, or set another folder."
    ]


async def test_a_migrated_database_is_what_the_code_expects(tmp_path: Path) -> None:
    """Alembic finds nothing to change; migrating again changes nothing (point 10)."""
    url = f"sqlite:///{tmp_path}/fresh.db"
    await asyncio.to_thread(migrate, url)
    await asyncio.to_thread(migrate, url)

    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))

    database = Database(url)
    try:
        found = await database.read(differences)
    finally:
        await database.close()

    assert found == []


async def test_a_journal_of_the_first_tables_is_kept_as_it_is(tmp_path: Path) -> None:
    """Its records are moved to where they take less than half the room, none lost and none changed (D9)."""
    file = tmp_path / "first.db"
    rows = [(f"turn{n % 3}", n, f"words {n}") for n in range(60, 0, -1)]

    def first(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, "0001")
        connection.exec_driver_sql(
            "INSERT INTO records (turn_id, line, tenant, writer, time, address, kind, facts, words, words_salt,"
            " words_digest, content_digest, chain) VALUES (?, ?, '', 1, '', '', '', '', ?, x'00', '', '', '')",
            rows,
        )

    database = Database(f"sqlite:///{file}")
    await database.write(first)
    await database.close()
    await asyncio.to_thread(migrate, f"sqlite:///{file}")

    with closing(sqlite3.connect(file)) as opened:
        kept = opened.execute("SELECT turn_id, line, words FROM records ORDER BY turn_id, line").fetchall()
        [made] = opened.execute(
            "SELECT sql FROM sqlite_master WHERE tbl_name = 'records' AND type = 'table'"
        ).fetchone()
    assert kept == sorted(rows)
    assert "WITHOUT ROWID" not in made


async def test_migrate_brings_the_database_up_to_date_and_ends(tmp_path: Path) -> None:
    """`python -m runtime_service migrate` (settled 31)."""
    code, _, _ = await command("migrate", TUTELAGE_DATA_DIR=tmp_path)
    again, _, _ = await command("migrate", TUTELAGE_DATA_DIR=tmp_path)

    assert (code, again) == (0, 0)
    assert (tmp_path / "runtime.db").exists()


async def test_the_log_is_json_with_turn_writer_and_tenant_and_without_words_or_tokens(tmp_path: Path) -> None:
    """Secrets and tool inputs stay out of it, at every level (point 11)."""
    secret = {name: f"{name}-{os.urandom(6).hex()}" for name in ("turn", "input", "edit", "output", "reason", "said")}
    settings = {"TUTELAGE_RUNTIME_SCRIPTS_DIR": str(tmp_path / "scripts"), "TUTELAGE_RUNTIME_LOG_LEVEL": "debug"}
    async with AsyncExitStack() as cleanup:
        service = Service(tmp_path, cleanup, Logged())
        process = await ServiceProcess.start("runtime", tmp_path, settings=settings)
        cleanup.push_async_callback(process.stop)
        service.address = process.address
        async with wire_host(service) as host:
            asked = calls(("wire_write", {"what": secret["input"]}), say=secret["said"])
            await service.agent("gardener", asked, {"say": "Done."}, tools=["wire_write"])
            turn_id = await service.asked_of("gardener", secret["turn"], CHANGES_ASKED)
            [question] = await service.questions(turn_id)
            await service.yes(question, edited_input_json=json.dumps({"what": secret["edit"]}), reason=secret["reason"])
            host.say(await host.call(), output_json=json.dumps(secret["output"]))
            await service.ended(turn_id)
        stopped = await within_deadline(process.stop())
    log = process.log.read_text()
    tokens = [service.token(who).split(".")[1] for who in ("gus", "ana", "worker")]

    assert stopped == 0
    for name, words in secret.items():
        assert words not in log, name
    assert "eyJ" not in log
    assert not [token for token in tokens if token[:40] in log]
    lines = [json.loads(line) for line in log.splitlines()]
    of_turn = [line for line in lines if line.get("turn") == turn_id]
    assert {line["event"] for line in of_turn} >= {"turn.taken", "turn.done"}
    assert all(line["tenant"] == "default" and line["writer"] >= 1 for line in of_turn)
