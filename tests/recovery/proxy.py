"""A TCP proxy between a host and a runtime that breaks what goes through it: at any byte, in either direction.

It reorders nothing. Each connection gets a fault, or none; what is lost is lost as a network loses it: the end of a
stream, never its middle.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass


class Kind(enum.Enum):
    """What happens to a direction once so many bytes went through."""

    # Both ends see the connection reset.
    CUT = "cut"
    # Whatever comes after is lost, and for a while neither end knows.
    SWALLOW = "swallow"
    # The sender sees a reset at once; what it had sent arrives all the same, later, and so does the end.
    STALL = "stall"
    # It all arrives, later.
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens, to what goes up to the runtime or down to the host, after so many bytes, for how long."""

    kind: Kind
    up: bool
    after_bytes: int
    seconds: float = 0.0


class Proxy:
    """Made by `proxy`."""

    def __init__(self, host: str, port: int, choose: Callable[[int], Fault | None]) -> None:
        self._upstream = host, port
        self._choose = choose
        self.connections = 0
        self.faults: list[Fault] = []
        self.address = ""
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, down_reader: asyncio.StreamReader, down_writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections += 1
        fault = self._choose(self.connections)
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            down_writer.transport.abort()
            return
        finally:
            self._serving.discard(task)
        self._serving.add(task)
        self._open |= {down_writer, up_writer}
        up = self._carry(down_reader, up_writer, down_writer, fault if fault and fault.up else None)
        down = self._carry(up_reader, down_writer, up_writer, fault if fault and not fault.up else None)
        try:
            await asyncio.gather(up, down)
        finally:
            for writer in (up_writer, down_writer):
                writer.transport.abort()
            self._open -= {down_writer, up_writer}
            self._serving.discard(task)

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        fault: Fault | None,
    ) -> None:
        """Carry one direction to its end, or to its fault."""
        left = fault.after_bytes if fault else 0
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if fault is not None and left <= len(data):
                    self.faults.append(fault)
                    writer.write(data[:left])
                    if not await self._break(fault, reader, writer, back, data[left:]):
                        return
                    fault = None
                    continue
                left -= len(data)
                writer.write(data)
                await writer.drain()
        if not writer.is_closing() and writer.can_write_eof():
            writer.close()

    async def _break(
        self,
        fault: Fault,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        rest: bytes,
    ) -> bool:
        """Do what a fault does; say whether the direction goes on after it."""
        match fault.kind:
            case Kind.DELAY:
                await asyncio.sleep(fault.seconds)
                writer.write(rest)
                return True
            case Kind.SWALLOW:
                with contextlib.suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(fault.seconds):
                        while await reader.read(65_536):
                            pass
            case Kind.STALL:
                back.transport.abort()
                await asyncio.sleep(fault.seconds)
                writer.write(rest)
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
                writer.close()
                return False
            case Kind.CUT:
                pass
        writer.transport.abort()
        back.transport.abort()
        return False

    def close_all(self) -> None:
        """End every connection as if each end had left: what was sent before arrives."""
        for writer in list(self._open):
            writer.close()

    async def stop(self) -> None:
        """Cut all that is left."""
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)


def unbroken(_connection: int) -> None:
    """Break nothing."""
    return


@asynccontextmanager
async def proxy(address: str, choose: Callable[[int], Fault | None] = unbroken) -> AsyncIterator[Proxy]:
    """Listen for hosts and carry them to the runtime at that address. `choose` gives each connection its fault."""
    host, _, port = address.rpartition(":")
    made = Proxy(host, int(port), choose)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        await made.stop()
