"""A tool host with tools that wait for the test, served for as long as a block lasts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tutelage.client import Tutelage
from tutelage.host import ToolHost
from tutelage.runtime.v1.tools_pb2 import CallResult
from tutelage.tools import CHANGES, current_call

from tests.client.runtime_double import WAIT_SECONDS


class Tools:
    """A host's tools, with gates that the test opens and a count of what ran."""

    def __init__(self, capacity: int = 10, clock: Callable[[], float] | None = None) -> None:
        self.runs: list[str] = []
        self.began = asyncio.Event()
        self.opened = asyncio.Event()
        self.thread_began = threading.Event()
        self.thread_opened = threading.Event()
        self.host = ToolHost("notes", capacity=capacity, clock=clock) if clock else ToolHost("notes", capacity=capacity)

        @self.host.tool(effects=CHANGES)
        def note() -> str:
            """Write a note."""
            self.runs.append(current_call().call_id)
            return "ok"

        @self.host.tool()
        async def wait() -> str:
            """Wait for the gate."""
            self.runs.append(current_call().call_id)
            self.began.set()
            await self.opened.wait()
            return "waited"

        @self.host.tool()
        def wait_in_thread() -> str:
            """Wait for the gate, in a thread."""
            self.runs.append(current_call().call_id)
            self.thread_began.set()
            assert self.thread_opened.wait(WAIT_SECONDS)
            return "waited"

        @self.host.tool()
        async def fail(how: str) -> object:
            """Fail in one way or another."""
            match how:
                case "raises":
                    raise ValueError("no note of that name")
                case "exits":
                    raise SystemExit(3)
                case "cancels":
                    raise asyncio.CancelledError
                case "stops":
                    raise StopAsyncIteration
                case _:
                    return object()

        @self.host.tool()
        def fail_in_thread(how: str) -> object:
            """Fail in one way or another, in a thread."""
            match how:
                case "raises":
                    raise ValueError("no note of that name")
                case "exits":
                    raise SystemExit(3)
                case "stops":
                    raise StopIteration
                case _:
                    return object()

        @self.host.tool()
        def who() -> dict[str, object]:
            """Tell which call this is."""
            now = current_call()
            return {
                "call": now.call_id,
                "key": now.idempotency_key,
                "turn": now.turn_id,
                "attempt": now.attempt,
            }


@asynccontextmanager
async def served(host: ToolHost, runtime: Tutelage) -> AsyncIterator[asyncio.Task[None]]:
    serving = asyncio.create_task(host.serve(runtime))
    try:
        yield serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def drained(host: ToolHost, serving: asyncio.Task[None]) -> None:
    host.drain()
    async with asyncio.timeout(WAIT_SECONDS):
        await serving


def outcome(result: CallResult) -> str:
    return str(result.WhichOneof("outcome"))
