"""Feeds: every change that a stream shows, in the order in which it was committed.

A feed is a table in a service's own database, written in the transaction that makes the change. It holds
keys, never words: events are built from the rows as they stand when they are sent. A `Bell` only says
"look now"; what it does not say is found by looking.

Invariants: a reader that goes on from its last position misses nothing and sees nothing twice; a cursor is
opaque, and good for the filter and the database that it was made for, alone (R11).

On SQLite there is one writer, so positions become visible in their order. On PostgreSQL a later position
can become visible before an earlier one: rows will carry their transaction's id, be read below the
snapshot's xmin in the order (transaction id, position), and `horizon` will be of that same snapshot.
"""

import asyncio
import hashlib
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Column, Connection, Index, Integer, MetaData, String, Table, func, insert, select

from service_kit.columns import UtcDateTime
from service_kit.errors import CursorExpired, InvalidField


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One change, by its keys."""

    tenant: str
    kind: str
    subject: str
    time: datetime
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FeedRow(FeedEntry):
    """A change in its place."""

    position: int = 0


def feed_table(metadata: MetaData, name: str) -> Table:
    """Add a feed to a service's tables."""
    return Table(
        name,
        metadata,
        Column("position", Integer, primary_key=True, autoincrement=True),
        Column("tenant", String, nullable=False),
        Column("kind", String, nullable=False),
        Column("subject", String, nullable=False),
        Column("detail", String, nullable=False, default=""),
        Column("time", UtcDateTime, nullable=False),
        Index(f"ix_{name}_tenant", "tenant", "position"),
        Index(f"ix_{name}_subject", "subject", "position"),
        # A position is never given twice, also after the last row was removed.
        sqlite_autoincrement=True,
    )


def append(connection: Connection, table: Table, entries: Sequence[FeedEntry]) -> None:
    """Add changes, in this order, to the transaction that makes them. Ring the bell after its commit."""
    if entries:
        connection.execute(insert(table), [asdict(entry) for entry in entries])


def read_after(connection: Connection, table: Table, position: int, limit: int, tenant: str) -> list[FeedRow]:
    """Read a tenant's next changes after a position, at most `limit`, in their order."""
    rows = connection.execute(
        select(table)
        .where(table.c.tenant == tenant, table.c.position > position)
        .order_by(table.c.position)
        .limit(limit)
    )
    return [FeedRow(**row) for row in rows.mappings()]


def horizon(connection: Connection, table: Table) -> int:
    """Tell the last position that this snapshot has: where a stream of what comes next begins."""
    last = connection.execute(select(func.coalesce(func.max(table.c.position), 0)))
    return int(last.scalar_one())


class CursorCodec:
    """Makes cursors of positions, and positions of cursors, for one database's generation."""

    _VERSION = 1
    _LAYOUT = struct.Struct(">B8s8sQQ")
    _CHECK_BYTES = 6

    def __init__(self, generation: str) -> None:
        self._generation = _digest("generation", generation)

    def encode(self, position: int, filter_key: str, sub: int = 0) -> str:
        """Make the cursor for a position, and for a place within it where `sub` is given."""
        body = self._LAYOUT.pack(self._VERSION, self._generation, _digest("filter", filter_key), position, sub)
        return urlsafe_b64encode(body + self._check(body)).decode().rstrip("=")

    def decode(self, cursor: str, filter_key: str) -> tuple[int, int]:
        """Tell the position and the place within it.

        Raises `InvalidField` for what is no cursor, `CursorExpired` for one of another filter, database
        or version (settled 18).
        """
        body = self._opened(cursor)
        if body[0] != self._VERSION:
            raise CursorExpired
        _, generation, digest, position, sub = self._LAYOUT.unpack(body)
        if generation != self._generation or digest != _digest("filter", filter_key):
            raise CursorExpired
        return position, sub

    def _opened(self, cursor: str) -> bytes:
        try:
            raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        except ValueError:
            raw = b""
        body, check = raw[: -self._CHECK_BYTES], raw[-self._CHECK_BYTES :]
        if len(body) != self._LAYOUT.size or check != self._check(body):
            raise InvalidField([("cursor", "is not a cursor that this service gave")])
        return body

    def _check(self, body: bytes) -> bytes:
        return hashlib.sha256(b"tutelage.cursor\0" + body).digest()[: self._CHECK_BYTES]


def _digest(what: str, text: str) -> bytes:
    return hashlib.sha256(f"tutelage.{what}\0{text}".encode()).digest()[:8]


class Hints:
    """What one listener has heard of a topic since it last waited: something, or nothing."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Say that there may be something new. Rings that nobody waited for in between are one."""
        self._rung.set()

    async def wait(self, timeout: float) -> bool:
        """Wait for a ring since the last wait, and say whether there was one in time.

        Look after each wait: then a ring between the look and the next wait ends that wait at once.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class Bell:
    """Tells those who listen, in this process, that a topic may have something new.

    Holds a flag for each listener and nothing else. Belongs to the event loop's thread.
    """

    def __init__(self) -> None:
        self._listeners: defaultdict[str, set[Hints]] = defaultdict(set)

    def ring(self, *topics: str) -> None:
        """Wake who listens to these topics: after the commit of what is new, never before."""
        for topic in topics:
            for hints in self._listeners.get(topic, ()):
                hints.ring()

    @contextmanager
    def listen(self, topic: str) -> Iterator[Hints]:
        """Hear a topic for as long as the block lasts. Listen first, then look, then wait."""
        hints = Hints()
        self._listeners[topic].add(hints)
        try:
            yield hints
        finally:
            self._listeners[topic].discard(hints)
            if not self._listeners[topic]:
                del self._listeners[topic]
