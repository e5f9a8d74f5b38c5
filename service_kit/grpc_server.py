"""A gRPC server as both services run one: its port, limits, health, reflection, and its end.

Keepalive, for both sides. A peer that is stopped or cut off is noticed within 15 seconds: a ping after
`KEEPALIVE_MS` without traffic, also without calls, answered within `PING_TIMEOUT_MS`. Both time-outs have
to be set: `grpc.keepalive_timeout_ms` alone does not bound it. A client must not ping oftener than every
`PINGS_AT_LEAST_MS_APART`, or it is cut off; `CLIENT_OPTIONS` are what a client does best to set.

Invariants: plain text is spoken on loopback and Unix sockets alone; a port is served once (no
SO_REUSEPORT, by which a second server would take half of the calls in silence); the server ends within its
grace, however many streams are open.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from service_kit.errors import SetupProblem
from service_kit.streams import Streams

MOST_MESSAGE_BYTES = 8 * 1024 * 1024
KEEPALIVE_MS = 10_000
PING_TIMEOUT_MS = 5_000
PINGS_AT_LEAST_MS_APART = 5_000

CLIENT_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
SERVER_OPTIONS: Sequence[tuple[str, int]] = (
    *CLIENT_OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", PINGS_AT_LEAST_MS_APART),
    ("grpc.so_reuseport", 0),
)

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

# A generated `add_…Servicer_to_server`, and the servicer to add with it.
Service = tuple[Callable[[Any, Any], None], object]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The server's certificate, with what it needs to be trusted, and its key; both PEM."""

    certificate: Path
    key: Path


class Server:
    """A server that is bound to its port."""

    def __init__(self, server: grpc.aio.Server, port: int, streams: Streams) -> None:
        self._server = server
        self._streams = streams
        self.port = port

    async def start(self) -> None:
        """Begin to serve."""
        await self._server.start()

    async def stop(self, grace_seconds: float = 5.0) -> None:
        """End: say so to who watches the health, end the streams, and give calls the grace to finish.

        What has not ended by then is cancelled.
        """
        self._streams.shut_down()
        await self._server.stop(grace_seconds)

    async def wait(self) -> None:
        """Wait until the server has ended."""
        await self._server.wait_for_termination()


def make_server(
    listen: str,
    interceptors: Sequence[grpc.aio.ServerInterceptor],
    services: Iterable[Service],
    *,
    streams: Streams,
    tls: TlsFiles | None = None,
) -> Server:
    """Build a server and bind it to `HOST:PORT` (port 0: any free one) or `unix:PATH`.

    Raises `SetupProblem` where the address is not to be had, or would be served in plain text to others.
    """
    server = grpc.aio.server(interceptors=list(interceptors), options=list(SERVER_OPTIONS))
    registry = _Registry(server)
    for add, servicer in services:
        add(servicer, registry)
    health = _Health(registry.names, streams)
    health_pb2_grpc.add_HealthServicer_to_server(health, registry)
    reflection.enable_server_reflection((*registry.names, reflection.SERVICE_NAME), server)
    return Server(server, _bind(server, listen, tls), streams)


class _Registry:
    """The server, as generated code adds services to it; keeps their names."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server
        self.names: list[str] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(
        self, name: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        self.names.append(name)
        self._server.add_registered_method_handlers(name, dict(handlers))


class _Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Health (v1). Everything serves until the server shuts down; a watch ends with it."""

    def __init__(self, names: list[str], streams: Streams) -> None:
        self._names = names
        self._streams = streams

    def _status(self, service: str) -> Any:
        if service and service not in self._names:
            return _UNKNOWN
        return _NOT_SERVING if self._streams.closing else _SERVING

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self._status(request.service) == _UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "This server has no service of this name.")
        return health_pb2.HealthCheckResponse(status=self._status(request.service))

    async def Watch(self, request: Any, _context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield health_pb2.HealthCheckResponse(status=self._status(request.service))
        if not self._streams.closing:
            await self._streams.wait_for_shutdown()
            yield health_pb2.HealthCheckResponse(status=self._status(request.service))


def _bind(server: grpc.aio.Server, listen: str, tls: TlsFiles | None) -> int:
    if tls is None and not _is_local(listen):
        raise SetupProblem(
            f"{listen} can be reached from other machines: set a TLS certificate and key, or listen on 127.0.0.1."
        )
    try:
        if tls is None:
            return server.add_insecure_port(listen)
        return server.add_secure_port(listen, _credentials(tls))
    except RuntimeError:
        raise SetupProblem(
            f"{listen} is not to be had: another program listens there, or it is no address. Set another."
        ) from None


def _credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    try:
        return grpc.ssl_server_credentials([(tls.key.read_bytes(), tls.certificate.read_bytes())])
    except OSError as problem:
        raise SetupProblem(f"The TLS file {problem.filename} cannot be read: {problem.strerror}.") from None


def _is_local(listen: str) -> bool:
    if listen.startswith(("unix:", "unix-abstract:")):
        return True
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
