"""`python -m teaching_service`: how it starts, where it says that it listens, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tutelage.channel import open_channel
from tutelage.teaching.v1 import instructions_pb2, instructions_pb2_grpc
from tutelage.token import make_token, signing_key

import runtime_service.server
import runtime_service.settings
from teaching_service.settings import Settings
from tests.teaching.service import Teaching

DEADLINE_SECONDS = 30.0


async def _start(*arguments: str, **settings: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "teaching_service", *arguments),
        env={**os.environ, **settings},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _run(*arguments: str, **settings: str) -> tuple[int | None, str, str]:
    process = await _start(*arguments, **settings)
    async with asyncio.timeout(DEADLINE_SECONDS):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def _serving(**settings: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A process that serves, and where it does: it logs it."""
    process = await _start(TUTELAGE_TEACHING_LISTEN="127.0.0.1:0", **settings)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            told: dict[str, str] = {"event": ""}
            while told["event"] != "service.serving":
                told = json.loads(await process.stderr.readline())
            yield process, told["address"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_it_serves_says_where_and_ends_cleanly_when_told_to(tmp_path: Path) -> None:
    """The address stands in `teaching.address` for as long as it serves; embedded tokens are trusted (settled 27)."""
    async with _serving(TUTELAGE_DATA_DIR=str(tmp_path)) as (process, address):
        assert (tmp_path / "teaching.address").read_text() == address
        async with aio.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            served = "tutelage.teaching.v1.InstructionService"
            answer = await health.Check(health_pb2.HealthCheckRequest(service=served))
        token = make_token(signing_key(tmp_path), sub="gus", kind="person", roles=["uses"])
        async with open_channel(address, token) as channel:
            stub: instructions_pb2_grpc.InstructionServiceAsyncStub
            stub = instructions_pb2_grpc.InstructionServiceStub(channel)
            newest = await stub.GetInstructionSet(instructions_pb2.GetInstructionSetRequest(agent="Tagger"))
        second = await _run(TUTELAGE_DATA_DIR=str(tmp_path), TUTELAGE_TEACHING_LISTEN="127.0.0.1:0")
        process.send_signal(signal.SIGTERM)
        code = await process.wait()

    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert newest.set.number == 0
    assert second[0] == 1
    assert "Another process serves the data folder" in second[2]
    assert code == 0
    assert not (tmp_path / "teaching.address").exists()


async def test_migrate_makes_the_tables_and_ends(tmp_path: Path) -> None:
    settings = {"TUTELAGE_TEACHING_DATA_DIR": str(tmp_path), "TUTELAGE_DATA_DIR": "/nowhere"}
    codes = [(await _run("migrate", **settings))[0] for _ in range(2)]

    with closing(sqlite3.connect(tmp_path / "teaching.db")) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert codes == [0, 0]
    assert {"tasks", "receipts", "instructions", "instruction_sets", "corrections"} <= tables


async def test_a_wrong_setting_is_one_line_and_help_names_them_all(tmp_path: Path) -> None:
    wrong = await _run(TUTELAGE_DATA_DIR=str(tmp_path), TUTELAGE_TEACHING_MOST_INSTRUCTIONS="0")
    helped = await _run("--help")

    assert wrong[0] == 1
    assert wrong[2].startswith("TUTELAGE_TEACHING_MOST_INSTRUCTIONS: ")
    assert wrong[2].count("\n") == 1
    for name in Settings.model_fields:
        assert f"TUTELAGE_TEACHING_{name.upper()}" in helped[1]


async def test_both_services_live_in_one_folder(teaching: Teaching) -> None:
    """Settled 33: one lock a service."""
    settings = runtime_service.settings.Settings(listen="127.0.0.1:0", data_dir=teaching.folder)
    async with runtime_service.server.running(settings) as runtime:
        assert runtime.address != teaching.address
        assert (await teaching.newest()).number == 0
        assert {path.name for path in teaching.folder.glob("*.lock")} == {"runtime.lock", "teaching.lock"}
