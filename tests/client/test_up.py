"""`tutelage up`: both services start together, are found, and end together."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client.commands import finished, heard, ran, started

# What `tutelage up` starts, twice: it serves its health, tells its address, and stops when it is told to.
SMALL_SERVICE = """
import asyncio, os, pathlib, signal
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

async def main():
    name = pathlib.Path(__file__).parent.name.removesuffix("_service")
    setting = {key: value for key, value in os.environ.items() if key.startswith("TUTELAGE_")}
    folder = pathlib.Path(setting[f"TUTELAGE_{name.upper()}_DATA_DIR"])
    if (folder / f"{name}.broken").exists():
        raise SystemExit("The database cannot be opened.")
    (folder / f"{name}.teaching").write_text(setting.get("TUTELAGE_RUNTIME_TEACHING_ADDRESS", ""))
    server = aio.server()
    servicer = health.aio.HealthServicer()
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port(setting[f"TUTELAGE_{name.upper()}_LISTEN"])
    await server.start()
    address = folder / f"{name}.address"
    address.write_text(f"127.0.0.1:{port}")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    while (folder / f"{name}.stubborn").exists():
        await asyncio.sleep(1)
    await server.stop(1)
    address.unlink()

asyncio.run(main())
"""

UP = ("up", "--listen", "127.0.0.1:0", "--teaching-listen", "127.0.0.1:0")
SERVICES = ("runtime", "teaching")
SENTENCE = {"runtime": "The runtime", "teaching": "The teaching service"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to run `tutelage up` in, where `python -m` finds two small services."""
    for name in SERVICES:
        package = tmp_path / f"{name}_service"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(SMALL_SERVICE)
    (tmp_path / "tutelage-data").mkdir(mode=0o700)
    return tmp_path


@asynccontextmanager
async def up(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str, dict[str, Any]]]:
    """Both services, what was said, and what other commands find."""
    async with started(*UP, cwd=folder) as process:
        said = await heard(process, "Ctrl-C")
        yield process, said, json.loads((folder / "tutelage-data" / "up.json").read_text())


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_it_serves_says_how_to_sign_in_and_stops_cleanly(folder: Path, number: signal.Signals) -> None:
    data = folder / "tutelage-data"
    for name in SERVICES:  # what a service that was killed left behind says nothing
        (data / f"{name}.address").write_text("127.0.0.1:1")

    async with up(folder) as (process, said, left):
        command = re.search(r"TUTELAGE_TOKEN=\$\(tutelage (.*)\)", said)
        assert command is not None
        token = (await ran(*command[1].split(), cwd=folder)).out.strip()
        listed = await ran("approvals", "list", cwd=folder, TUTELAGE_TOKEN=token)
        told = await ran("teach", "show", "tagger", cwd=folder, TUTELAGE_TOKEN=token)
        process.send_signal(number)
        stopped = await finished(process)

    assert f"export TUTELAGE_TO_RUNTIME={left['runtime']}\n" in said
    assert f"export TUTELAGE_TO_TEACHING={left['teaching']}\n" in said
    assert left["pid"] == process.pid
    # They were found by what `up` left: the small services have neither approvals nor instructions, and say so.
    assert "cannot be reached" not in listed.refused()
    assert "cannot be reached" not in told.refused()
    assert stopped.code == 0, stopped.err
    assert not (data / "up.json").exists()
    assert not any((data / f"{name}.address").exists() for name in SERVICES)
    assert gone(left["runtime_pid"])
    assert gone(left["teaching_pid"])


async def test_the_runtime_is_told_where_teaching_is(folder: Path) -> None:
    async with up(folder) as (process, _, left):
        told = (folder / "tutelage-data" / "runtime.teaching").read_text()
        process.terminate()
        await finished(process)

    assert told == left["teaching"]


@pytest.mark.parametrize("broken", SERVICES)
async def test_it_says_why_a_service_did_not_start_and_leaves_none(folder: Path, broken: str) -> None:
    data = folder / "tutelage-data"
    (data / f"{broken}.broken").touch()

    made = await ran(*UP, cwd=folder)

    line = made.refused()
    assert line.startswith(f"tutelage: {SENTENCE[broken]} ended: ")
    assert "The database cannot be opened." in line
    assert f"{broken}.log" in line
    assert not any((data / f"{name}.address").exists() for name in SERVICES)


@pytest.mark.parametrize(("dies", "other"), [("runtime", "teaching"), ("teaching", "runtime")])
async def test_when_one_ends_the_other_is_stopped_and_the_reason_told(folder: Path, dies: str, other: str) -> None:
    async with up(folder) as (process, _, left):
        os.kill(left[f"{dies}_pid"], signal.SIGKILL)
        stopped = await finished(process)

    assert stopped.refused().startswith(f"tutelage: {SENTENCE[dies]} ended with -9. Its log is ")
    assert gone(left[f"{other}_pid"])
    assert not (folder / "tutelage-data" / "up.json").exists()


async def test_it_ends_within_ten_seconds_whatever_the_services_do(folder: Path) -> None:
    for name in SERVICES:
        (folder / "tutelage-data" / f"{name}.stubborn").touch()

    async with up(folder) as (process, _, left):
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        stopped = await finished(process)
        took = time.monotonic() - begun

    assert took < 11  # ten, and its own end
    assert stopped.code == 1
    assert gone(left["runtime_pid"])
    assert gone(left["teaching_pid"])
