"""Who turns without a conversation run for: where nobody is left, they are ABANDONED (`runtime.md` R3.2, settled 19).

Invariant: a turn that somebody attends is never abandoned for want of a caller; one that nobody attends is, and its
tools are told.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from runtime_service.domain.problems import PartUnavailable, TurnEnded
from runtime_service.domain.turns import TurnId
from runtime_service.engine.committer import Committer
from runtime_service.engine.hosts import Hosts
from runtime_service.engine.lease import Lease
from runtime_service.engine.units.turns import AbandonTurn

log = structlog.get_logger()

LOOK_SECONDS = 1.0


class Attendance:
    """The callers of the turns that end with them. `run` must be under way for any to be abandoned."""

    def __init__(self, committer: Committer, hosts: Hosts, lease: Lease) -> None:
        self._committer = committer
        self._hosts = hosts
        self._lease = lease
        self._callers: Counter[TurnId] = Counter()
        # When turns that nobody attends are abandoned, by the monotonic clock.
        self._left: dict[TurnId, float] = {}
        self._came = asyncio.Event()

    @contextmanager
    def attending(self, turn_id: TurnId, *, may_return: bool) -> Iterator[None]:
        """Attend a turn for as long as the block lasts. One whose caller may return is kept for `reconnect_within`."""
        self._callers[turn_id] += 1
        self._left.pop(turn_id, None)
        try:
            yield
        finally:
            self._callers[turn_id] -= 1
            if not self._callers[turn_id]:
                del self._callers[turn_id]
                self._left[turn_id] = time.monotonic() + (self._hosts.reconnect_seconds if may_return else 0.0)
                self._came.set()

    async def run(self) -> None:
        """Abandon what nobody attends, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if self._left else None):
                    await self._came.wait()
            self._came.clear()
            for turn_id in [turn_id for turn_id, at in self._left.items() if at <= time.monotonic()]:
                await self._abandon(turn_id)

    async def _abandon(self, turn_id: TurnId) -> None:
        unit = AbandonTurn(turn_id, None, "Its caller went.", self._lease.process)
        try:
            under_way = await self._committer.commit(unit)
        except TurnEnded:
            under_way = []
        except PartUnavailable:
            log.warning("attendance.not_abandoned", turn=turn_id)
            return
        self._left.pop(turn_id, None)
        for call in under_way:
            self._hosts.cancel(call.incarnation, call.id)
