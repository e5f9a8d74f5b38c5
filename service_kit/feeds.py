"""Feeds: every change that a stream shows, in an order that every reader sees alike.

A feed is a table in a service's own database, written in the transaction that makes the change. It holds
keys, never words: events are built from the rows as they stand when they are sent. A `Bell` only says
"look now"; what it does not say is found by looking.

Invariants: a reader that goes on from its last position misses nothing and sees nothing twice; a cursor is
opaque, and good for the filter and the database that it was made for, alone (R11).

On SQLite there is one writer, so numbers become visible in their order. On PostgreSQL a later number can become
visible before an earlier one. So there a row carries its transaction's id, and is read only once every transaction up
to that one has ended: below the snapshot's horizon, in the order (transaction, number). Nobody outside this module
knows which of the two it is.
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
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, Index, MetaData, Table, func, insert, select, tuple_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from service_kit.columns import NUMBER, TEXT, UtcDateTime
from service_kit.errors import CursorExpired, InvalidField
from service_kit.statements import one_writes


class Position(NamedTuple):
    """A place in a feed: everything up to it was seen."""

    # Always 0 where one writes at a time.
    transaction: int
    number: int


START = Position(0, 0)


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

    position: Position = START


class _OwnTransaction(FunctionElement[int]):
    """The id of the transaction that writes a row; 0 where one writes at a time."""

    inherit_cache = True
    type = NUMBER


class _Horizon(FunctionElement[int]):
    """The first transaction that had not ended when the snapshot was taken (PostgreSQL)."""

    inherit_cache = True
    type = NUMBER


@compiles(_OwnTransaction)
def _own_transaction(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "(pg_current_xact_id()::text::bigint)"


@compiles(_OwnTransaction, "sqlite")
def _one_writer(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "0"


@compiles(_Horizon)
def _first_running(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "(pg_snapshot_xmin(pg_current_snapshot())::text::bigint)"


def feed_table(metadata: MetaData, name: str) -> Table:
    """Add a feed to a service's tables."""
    return Table(
        name,
        metadata,
        Column("position", NUMBER, primary_key=True, autoincrement=True),
        Column("transaction_id", NUMBER, server_default=_OwnTransaction(), nullable=False),
        Column("tenant", TEXT, nullable=False),
        Column("kind", TEXT, nullable=False),
        Column("subject", TEXT, nullable=False),
        Column("detail", TEXT, nullable=False, default=""),
        Column("time", UtcDateTime, nullable=False),
        Index(f"ix_{name}_tenant", "tenant", "transaction_id", "position"),
        Index(f"ix_{name}_subject", "subject", "position"),
        # A position is never given twice, also after the last row was removed.
        sqlite_autoincrement=True,
    )


def append(connection: Connection, table: Table, entries: Sequence[FeedEntry]) -> None:
    """Add changes, in this order, to the transaction that makes them. Ring the bell after its commit."""
    if entries:
        connection.execute(insert(table), [asdict(entry) for entry in entries])


def read_after(connection: Connection, table: Table, position: Position, limit: int, tenant: str) -> list[FeedRow]:
    """Read a tenant's next changes after a position, at most `limit`, in their order."""
    place = (table.c.transaction_id, table.c.position)
    wanted = select(table).where(table.c.tenant == tenant, tuple_(*place) > tuple_(*position))
    if not one_writes(connection):
        wanted = wanted.where(table.c.transaction_id < _Horizon())
    return _rows(connection.execute(wanted.order_by(*place).limit(limit)).mappings())


def read_subject(connection: Connection, table: Table, position: Position, subject: str) -> list[FeedRow]:
    """Read the changes of one subject after a position, in their order.

    For a subject whose row is locked by whoever writes of it: its changes are numbered in the order of their commits.
    """
    wanted = select(table).where(table.c.subject == subject, table.c.position > position.number)
    return _rows(connection.execute(wanted.order_by(table.c.position)).mappings())


def horizon(connection: Connection, table: Table) -> Position:
    """Tell how far this snapshot's feed goes: where a stream of what comes next begins.

    What stands behind it may be seen in the snapshot's rows all the same: see `told_later`.
    """
    if one_writes(connection):
        return Position(0, connection.execute(select(func.coalesce(func.max(table.c.position), 0))).scalar_one())
    return Position(connection.execute(select(_Horizon())).scalar_one(), 0)


def told_later(table: Table, position: Position, kind: str, subject: ColumnElement[str]) -> ColumnElement[bool]:
    """Say whether a change of this kind stands behind a position: whoever reads on from there is told of it then."""
    place = tuple_(table.c.transaction_id, table.c.position) > tuple_(*position)
    return select(table.c.position).where(table.c.subject == subject, table.c.kind == kind, place).exists()


def _rows(found: Any) -> list[FeedRow]:
    return [
        FeedRow(
            row["tenant"], row["kind"], row["subject"], row["time"], row["detail"],
            Position(row["transaction_id"], row["position"]),
        )
        for row in found
    ]  # fmt: skip


class CursorCodec:
    """Makes cursors of positions, and positions of cursors, for one database's generation."""

    _VERSION = 2
    _LAYOUT = struct.Struct(">B8s8sQQQ")
    _CHECK_BYTES = 6

    def __init__(self, generation: str) -> None:
        self._generation = _digest("generation", generation)

    def encode(self, position: Position, filter_key: str, sub: int = 0) -> str:
        """Make the cursor for a position, and for a place within it where `sub` is given."""
        body = self._LAYOUT.pack(self._VERSION, self._generation, _digest("filter", filter_key), *position, sub)
        return urlsafe_b64encode(body + self._check(body)).decode().rstrip("=")

    def decode(self, cursor: str, filter_key: str) -> tuple[Position, int]:
        """Tell the position and the place within it.

        Raises `InvalidField` for what is no cursor, `CursorExpired` for one of another filter, database
        or version (settled 18).
        """
        body = self._opened(cursor)
        if body[0] != self._VERSION or len(body) != self._LAYOUT.size:
            raise CursorExpired
        _, generation, digest, transaction, number, sub = self._LAYOUT.unpack(body)
        if generation != self._generation or digest != _digest("filter", filter_key):
            raise CursorExpired
        return Position(transaction, number), sub

    def _opened(self, cursor: str) -> bytes:
        try:
            raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        except ValueError:
            raw = b""
        body, check = raw[: -self._CHECK_BYTES], raw[-self._CHECK_BYTES :]
        if not body or check != self._check(body):
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

    @property
    def topics(self) -> Sequence[str]:
        """What somebody listens to."""
        return tuple(self._listeners)

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
