"""This process's lease: it holds turns and hosts' sessions for as long as this runs (`runtime.md` R6.1, R6.6).

The database's clock judges the lease; before something is sent to a host this process judges it by its own monotonic
clock, which runs on while the process is stopped.

Invariants:
- The lease is counted from before it was asked for, never from when the answer came.
- A lease that lapsed is never revived: the process drops all that it held and begins under another id.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

log = structlog.get_logger()


class Leases(Protocol):
    """The store's side."""

    async def begin(self, process: str, seconds: float) -> None:
        """Write a process's lease."""
        ...

    async def keep(self, process: str, seconds: float) -> bool:
        """Lengthen a lease that still runs; False where it has ended."""
        ...

    async def end(self, process: str) -> None:
        """End a lease, and the sessions held under it."""
        ...


class Lease:
    """Keeps this process's lease. `run` must be under way for it to last."""

    def __init__(self, leases: Leases, *, seconds: float, keep_seconds: float) -> None:
        self._leases = leases
        self._seconds = seconds
        self._keep_seconds = keep_seconds
        self._until = 0.0
        self.process = _new_id()
        # Called when the lease lapsed, before another begins.
        self.on_lapse: list[Callable[[], None]] = []

    @property
    def good(self) -> bool:
        """Whether at least a third of the lease is left: enough to send something under it (R6.6)."""
        return time.monotonic() < self._until - self._seconds / 3

    async def begin(self) -> None:
        """Take the first lease."""
        asked = time.monotonic()
        await self._leases.begin(self.process, self._seconds)
        self._extend(asked)

    async def run(self) -> None:
        """Keep the lease until cancelled."""
        while True:
            await asyncio.sleep(self._keep_seconds)
            await self.keep()

    async def keep(self) -> None:
        """Keep the lease once; where it lapsed, drop what was held under it and begin another."""
        asked = time.monotonic()
        try:
            if await self._leases.keep(self.process, self._seconds):
                self._extend(asked)
                return
        except Exception:
            log.exception("lease.not_kept", process=self.process)
            return
        log.warning("lease.lapsed", process=self.process)
        for lapsed in self.on_lapse:
            lapsed()
        lapsed_process, self.process = self.process, _new_id()
        await self._until_done(lambda: self._leases.end(lapsed_process))
        await self._until_done(self.begin)

    async def end(self) -> None:
        """Give the lease up."""
        self._until = 0.0
        await self._leases.end(self.process)

    async def _until_done(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write until the database takes it: nothing is held meanwhile."""
        while True:
            try:
                return await write()
            except Exception:
                log.exception("lease.not_written", process=self.process)
                await asyncio.sleep(min(1.0, self._keep_seconds))

    def _extend(self, asked: float) -> None:
        self._until = asked + self._seconds


def _new_id() -> str:
    return f"runtime-{uuid.uuid4().hex[:12]}"
