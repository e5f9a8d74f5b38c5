"""A real server with a small real servicer, tokens that it trusts, and a database in a file."""

from __future__ import annotations

import io
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from tutelage.runtime.v1 import turns_pb2_grpc

from service_kit import logs
from service_kit.database import Database
from service_kit.errors import ErrorsInterceptor
from service_kit.grpc_server import CLIENT_OPTIONS, Server, Service, make_server
from service_kit.identity import IdentityInterceptor, TokenKeys, embedded_issuer
from service_kit.streams import Streams

SignIn = Callable[..., str]


def claims(**changes: Any) -> dict[str, Any]:
    """Claims of a person that the embedded set-up signs in, with changes; None takes one away."""
    usual = {
        "iss": "tutelage-embedded",
        "aud": "tutelage",
        "sub": "ada",
        "kind": "person",
        "name": "Ada",
        "roles": ["uses", "supervises"],
        "exp": int(datetime.now(UTC).timestamp()) + 600,
    }
    return {name: value for name, value in (usual | changes).items() if value is not None}


@dataclass(frozen=True)
class Told:
    """What a caller was told of a problem."""

    code: grpc.StatusCode
    sentence: str
    reason: str
    domain: str
    metadata: dict[str, str]
    fields: list[tuple[str, str]]
    retry_after: float | None
    size: int

    @staticmethod
    async def by(error: grpc.aio.AioRpcError) -> Told:
        status = rpc_status.from_call(_Ended(error))
        assert status is not None, f"an error without details: {error.code()} {error.details()}"
        info, bad, retry = (
            error_details_pb2.ErrorInfo(),
            error_details_pb2.BadRequest(),
            error_details_pb2.RetryInfo(),
        )
        retries = False
        for detail in status.details:
            detail.Unpack(info)
            detail.Unpack(bad)
            retries = detail.Unpack(retry) or retries
        return Told(
            error.code(),
            status.message,
            info.reason,
            info.domain,
            dict(info.metadata),
            [(violation.field, violation.description) for violation in bad.field_violations],
            retry.retry_delay.ToTimedelta().total_seconds() if retries else None,
            status.ByteSize(),
        )


@dataclass(frozen=True)
class _Ended:
    """A call's end, as `rpc_status` reads it."""

    error: grpc.aio.AioRpcError

    def code(self) -> grpc.StatusCode:
        return self.error.code()

    def details(self) -> str | None:
        return self.error.details()

    def trailing_metadata(self) -> Any:
        return self.error.trailing_metadata()


@dataclass(frozen=True)
class Served:
    """A server that serves, and a channel to it."""

    server: Server
    streams: Streams
    channel: grpc.aio.Channel
    target: str

    @property
    def turns(self) -> turns_pb2_grpc.TurnServiceAsyncStub:
        return turns_pb2_grpc.TurnServiceStub(self.channel)


Serving = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def signing_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def sign_in(signing_key: Ed25519PrivateKey) -> SignIn:
    """Make the token of somebody whom the server trusts."""
    return lambda **changes: jwt.encode(claims(**changes), signing_key, algorithm="EdDSA")


@pytest.fixture
def keys(signing_key: Ed25519PrivateKey) -> TokenKeys:
    return TokenKeys((embedded_issuer(signing_key),))


@pytest.fixture
def serving(keys: TokenKeys) -> Serving:
    """Serve services for the time of a block, behind the kit's interceptors."""

    @asynccontextmanager
    async def serve(
        services: Sequence[Service], *, streams: Streams | None = None, listen: str = "127.0.0.1:0"
    ) -> AsyncIterator[Served]:
        streams = streams or Streams()
        interceptors = [ErrorsInterceptor("runtime.tutelage"), IdentityInterceptor(keys)]
        server = make_server(listen, interceptors, services, streams=streams)
        await server.start()
        target = listen if listen.startswith("unix:") else f"127.0.0.1:{server.port}"
        try:
            async with grpc.aio.insecure_channel(target, options=list(CLIENT_OPTIONS)) as channel:
                yield Served(server, streams, channel, target)
        finally:
            await server.stop(1)

    return serve


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/kit.db")
    yield database
    await database.close()


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Send the logs to a text for one test."""
    root, stream = logging.getLogger(), io.StringIO()
    before, level, structured = root.handlers[:], root.level, structlog.get_config()
    levels = {name: logging.getLogger(name).level for name in ("sqlalchemy", "asyncio")}
    logs.configure("info", "json", stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.configure(**structured)
    for name, was in levels.items():
        logging.getLogger(name).setLevel(was)
