"""A service as a child process: started, waited for, stopped.

For `tutelage up`, and for programs and tests that bring their own services. A service tells where it listens by a
file in its data folder (`runtime.address`, `teaching.address`), so that port 0 will do. What it logs goes to a file
beside it (`runtime.log`, `teaching.log`). Both services may have one folder.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Self

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

Service = Literal["runtime", "teaching"]

# As a sentence names them.
NAMES: Mapping[Service, str] = {"runtime": "runtime", "teaching": "teaching service"}
START_SECONDS = 30.0
STOP_SECONDS = 10.0
LOOK_SECONDS = 0.02


class StartError(Exception):
    """The service did not come up. `str(error)` says why, and where its log is."""


class ServiceProcess:
    """A service that serves. Made by `start`."""

    def __init__(self, service: Service, data_dir: Path, process: asyncio.subprocess.Process) -> None:
        self.name = NAMES[service]
        self.data_dir = data_dir
        self.log = _log_file(service, data_dir)
        self.address = ""
        self._address_file = _address_file(service, data_dir)
        self._process = process

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @classmethod
    async def start(
        cls,
        service: Service,
        data_dir: Path,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, str] = MappingProxyType({}),
        within: float = START_SECONDS,
    ) -> Self:
        """Start a service on a data folder, as `python -m` does, and wait until its health says that it serves.

        `settings` are added to the environment. Raises StartError where it ends first, or takes too long.
        """
        data_dir = _made(data_dir)
        left_before = _identity(_address_file(service, data_dir))
        prefix = f"TUTELAGE_{service.upper()}_"
        own = {f"{prefix}DATA_DIR": str(data_dir), f"{prefix}LISTEN": listen}
        with _log_file(service, data_dir).open("ab") as output:
            logged_before = output.tell()
            # In a session of its own: a Ctrl-C at the terminal is for whoever started it, who stops it.
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"{service}_service",
                env={**os.environ, **own, **settings},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        started = cls(service, data_dir, process)
        try:
            async with asyncio.timeout(within):
                started.address = await started._told_address(left_before)
                if started.address:
                    await started._serving()
        except TimeoutError:
            await started.stop()
            raise StartError(
                f"The {started.name} did not serve within {within:g} s. Its log is {started.log}."
            ) from None
        except BaseException:
            await started.stop()
            raise
        if process.returncode is not None:
            said = _last_line(started.log, logged_before)
            raise StartError(f"The {started.name} ended: {said}. Its log is {started.log}.")
        return started

    async def ended(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        return await self._process.wait()

    async def stop(self, within: float = STOP_SECONDS) -> int:
        """End it cleanly, or by force after `within` seconds, and return its exit code."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                return await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            return await self._process.wait()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def _told_address(self, left_before: tuple[int, int] | None) -> str:
        """Wait for the address that this process writes; one that a killed process left says nothing."""
        while self._process.returncode is None:
            written = _identity(self._address_file) not in (None, left_before)
            if written and (text := self._address_file.read_text().strip()):
                return text
            await asyncio.sleep(LOOK_SECONDS)
        return ""

    async def _serving(self) -> None:
        request = health_pb2.HealthCheckRequest()
        async with aio.insecure_channel(self.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            while self._process.returncode is None:
                try:
                    response = await health.Check(request, timeout=1)
                except aio.AioRpcError as failure:
                    if failure.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                        raise StartError(f"What listens at {self.address} is no {self.name}.") from None
                else:
                    if response.status == health_pb2.HealthCheckResponse.SERVING:
                        return
                await asyncio.sleep(LOOK_SECONDS)


def _made(data_dir: Path) -> Path:
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return data_dir.absolute()


def _address_file(service: Service, data_dir: Path) -> Path:
    return data_dir / f"{service}.address"


def _log_file(service: Service, data_dir: Path) -> Path:
    return data_dir / f"{service}.log"


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _last_line(log: Path, since: int) -> str:
    with log.open("rb") as file:
        file.seek(since)
        lines = file.read().decode(errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:500].rstrip(".") if said else "it said nothing"
