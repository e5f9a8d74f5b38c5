"""The same request again is the same call: what came of each `request_id`.

The row is written in the transaction that does what was asked, and read in it first. It belongs to a
tenant, an account and an rpc, so that nobody meets another's ids. It keeps a digest of the request and the
key of what came of it, never its words.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import datetime

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from sqlalchemy import Column, Connection, MetaData, Table, insert, select

from service_kit.columns import TEXT, UtcDateTime
from service_kit.errors import RequestIdReused
from service_kit.identity import Caller


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Whose request it is."""

    tenant: str
    account: str
    rpc: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A request that may come again: its key, and the digest of what it asked."""

    key: RequestKey
    digest: str


def repeatable(caller: Caller, tenant: str, rpc: str, request: Message) -> Repeatable | None:
    """Return what makes a request the same again; None where it has no `request_id`."""
    request_id: str = request.request_id  # type: ignore[attr-defined]
    if not request_id:
        return None
    return Repeatable(RequestKey(tenant, caller.id, rpc, request_id), request_digest(request))


def requests_table(metadata: MetaData) -> Table:
    """Add the table of requests to a service's tables."""
    return Table(
        "requests",
        metadata,
        Column("tenant", TEXT, primary_key=True),
        Column("account", TEXT, primary_key=True),
        Column("rpc", TEXT, primary_key=True),
        Column("request_id", TEXT, primary_key=True),
        Column("digest", TEXT, nullable=False),
        Column("response_key", TEXT, nullable=False),
        Column("time", UtcDateTime, nullable=False),
    )


def find_request(connection: Connection, table: Table, key: RequestKey, digest: str) -> str | None:
    """Tell the key of what came of this request before; None if it is new.

    Raises `RequestIdReused` where the id was used with another request.
    """
    same = [table.c[column] == value for column, value in asdict(key).items()]
    row = connection.execute(select(table.c.digest, table.c.response_key).where(*same)).first()
    if row is None:
        return None
    if row.digest != digest:
        raise RequestIdReused
    return str(row.response_key)


def record_request(
    connection: Connection, table: Table, key: RequestKey, digest: str, response_key: str, time: datetime
) -> None:
    """Write down what came of a new request, in the transaction that did it."""
    row = {**asdict(key), "digest": digest, "response_key": response_key, "time": time}
    connection.execute(insert(table), row)


def request_digest(message: Message) -> str:
    """Make the digest, in hex, of what is asked, whatever its `request_id`.

    Over canonical JSON: the bytes of a message are not canonical.
    """
    asked = type(message)()
    asked.CopyFrom(message)
    asked.ClearField("request_id")
    fields = MessageToDict(asked, preserving_proto_field_name=True)
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
