"""What a turn may still take: the limits of its own agent, over all its writers and every agent in it.

Invariants:
- Requests are never more than their limit: those under way count as made, and where they may be the last, others wait
  for what becomes of them.
- Tokens and money are known once a reply has come. No request is begun once they are used up, so what passes a limit is
  at most the replies that were under way.
- What counts is what was recorded. A request that got no reply takes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runtime_service.domain.agents import Limits
from runtime_service.domain.problems import LimitReached
from runtime_service.domain.replay import Past
from runtime_service.domain.turns import Turn

# Where the agent says nothing.
MOST_REQUESTS = 1_000
MOST_DEPTH = 8


class Budget:
    """The limits of one turn, looked at before anything is taken."""

    def __init__(self, turn: Turn, limits: Limits, past: Past) -> None:
        self._turn = turn
        self._limits = limits
        self._past = past
        self._under_way = 0
        self._answered = asyncio.Event()

    @property
    def in_money(self) -> bool:
        """Whether money is limited."""
        return bool(self._limits.cost_micro_usd)

    def check_depth(self, depth: int) -> None:
        """Raises `LimitReached` where agents would call each other deeper than they may."""
        if depth > (most := self._limits.depth or MOST_DEPTH):
            raise self._reached("depth", most, depth)

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Make a request, and record its reply, within the block. Raises `LimitReached`."""
        while self._must_wait():
            self._answered.clear()
            await self._answered.wait()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._answered.set()

    def _must_wait(self) -> bool:
        """Whether those under way may be the last requests. Raises `LimitReached`."""
        used = self._past.usage
        for name in ("output_tokens", "cost_micro_usd"):
            if (most := getattr(self._limits, name)) and getattr(used, name) >= most:
                raise self._reached(name, most, getattr(used, name))
        most = self._limits.model_requests or MOST_REQUESTS
        if used.model_requests >= most:
            raise self._reached("model_requests", most, used.model_requests)
        return used.model_requests + self._under_way >= most

    def _reached(self, limit: str, most: int, used: int) -> LimitReached:
        return LimitReached(self._turn.id, self._turn.agent, limit, most, used)
