"""Notices between the replicas of a service: "look now", over PostgreSQL's NOTIFY.

A notice is sent after the commit of what it is about, on a connection of its own, those of one moment as one: within
the transaction it would have writers wait for each other. It may be lost, late or doubled: whoever hears it looks, and
looks every second without any. Where the connection breaks, another is made.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import structlog
from sqlalchemy.engine import URL

from service_kit.database import Database
from service_kit.feeds import Bell

log = structlog.get_logger()

AGAIN_SECONDS = 1.0
# A payload may have 8000 bytes. What does not fit says "anything".
MOST_BYTES = 7_000

Ring = Callable[[Iterable[str]], None]


def _nothing() -> None: ...


@asynccontextmanager
async def ringing(
    database: Database, channel: str, bell: Bell, heard: Callable[[], None] = _nothing
) -> AsyncIterator[Ring]:
    """Ring the bells of all replicas of a service, for as long as the block lasts. Where there is one alone, its own.

    `heard` is called when another replica has rung.
    """
    if database.is_a_file:
        yield lambda topics: bell.ring(*topics)
        return
    notices = _Notices(database.url, channel, bell, heard)
    running = asyncio.create_task(notices.run())
    try:
        yield notices.ring
    finally:
        running.cancel()
        await asyncio.wait([running])


class _Notices:
    """Tells other replicas what is rung here, and rings here what they tell."""

    def __init__(self, url: URL, channel: str, bell: Bell, heard: Callable[[], None]) -> None:
        self._url = url
        self._channel = channel
        self._bell = bell
        self._heard_another = heard
        # Nobody hears itself.
        self._own = uuid.uuid4().hex
        self._topics: set[str] = set()
        self._came = asyncio.Event()

    def ring(self, topics: Iterable[str]) -> None:
        """Say everywhere that there may be something new: after the commit of it."""
        self._bell.ring(*topics)
        self._topics.update(topics)
        self._came.set()

    async def run(self) -> None:
        """Tell and hear until cancelled."""
        while True:
            try:
                await self._connected()
            except Exception as problem:
                log.warning("notices.away", problem=type(problem).__name__)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _connected(self) -> None:
        connection = await _connect(self._url)
        try:
            # One that ended is noticed as something is told.
            connection.add_termination_listener(lambda _: self._came.set())
            await connection.add_listener(self._channel, self._heard)
            # Something may have been told while nobody listened here.
            self._heard_another()
            while True:
                await self._came.wait()
                self._came.clear()
                topics, self._topics = self._topics, set()
                await connection.execute("SELECT pg_notify($1, $2)", self._channel, self._payload(topics))
        finally:
            connection.terminate()

    def _payload(self, topics: set[str]) -> str:
        payload = json.dumps([self._own, sorted(topics)])
        return payload if len(payload) <= MOST_BYTES else json.dumps([self._own, None])

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        sender, topics = json.loads(payload)
        if sender != self._own:
            self._bell.ring(*(topics if topics is not None else self._bell.topics))
            self._heard_another()


async def _connect(url: URL) -> Any:
    # Who keeps data in SQLite does without the driver.
    import asyncpg

    query: dict[str, Any] = dict(url.query)
    return await asyncpg.connect(
        user=url.username,
        password=url.password,
        host=query.pop("host", url.host),
        port=url.port,
        database=url.database,
        timeout=10,
        command_timeout=10,
        **query,
    )
