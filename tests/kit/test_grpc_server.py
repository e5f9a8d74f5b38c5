"""Where a server listens, whom it notices, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tutelage.runtime.v1 import turns_pb2, turns_pb2_grpc

from service_kit import grpc_server
from service_kit.errors import SetupProblem
from service_kit.grpc_server import KEEPALIVE_MS, PING_TIMEOUT_MS, Service, TlsFiles, make_server
from service_kit.streams import Streams
from tests.kit.conftest import Serving, SignIn, bearer

Options = Sequence[tuple[str, int]]

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
TURNS = "tutelage.runtime.v1.TurnService"


class Turns(turns_pb2_grpc.TurnServiceServicer):
    """Calls that end when they are told to, or never."""

    def __init__(self) -> None:
        self.began, self.go_on, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def GetTurn(self, request: Any, context: Any) -> turns_pb2.GetTurnResponse:
        self.began.set()
        await self.go_on.wait()
        return turns_pb2.GetTurnResponse(turn=turns_pb2.Turn(id="t1"))

    async def WatchTurn(self, request: Any, context: Any) -> AsyncIterator[turns_pb2.WatchTurnResponse]:
        """A stream that minds nothing but its client."""
        try:
            yield turns_pb2.WatchTurnResponse()
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def service() -> tuple[Turns, list[Service]]:
    turns = Turns()  # type: ignore[abstract]
    return turns, [(turns_pb2_grpc.add_TurnServiceServicer_to_server, turns)]


async def health_of(channel: grpc.aio.Channel, name: str) -> int:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name))
    return int(answer.status)


async def test_health_is_told_for_the_server_and_each_of_its_services(serving: Serving) -> None:
    _, services = service()
    async with serving(services) as served:
        assert [await health_of(served.channel, name) for name in ("", TURNS)] == [SERVING, SERVING]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_of(served.channel, "nobody")

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_who_watches_the_health_is_told_of_the_end_and_does_not_hold_it_up(serving: Serving) -> None:
    _, services = service()
    async with serving(services) as served:
        stub = health_pb2_grpc.HealthStub(served.channel)
        known = stub.Watch(health_pb2.HealthCheckRequest(service=TURNS))
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="nobody"))
        assert [(await known.read()).status, (await unknown.read()).status] == [SERVING, UNKNOWN]
        began = time.monotonic()
        await served.server.stop(10)
        took = time.monotonic() - began
        assert [(await known.read()).status, (await unknown.read()).status] == [NOT_SERVING, UNKNOWN]
        assert await known.read() is grpc.aio.EOF

    assert took < 5


async def test_a_call_under_way_has_the_grace_to_finish(serving: Serving, sign_in: SignIn) -> None:
    turns, services = service()
    async with serving(services) as served:
        call = served.turns.GetTurn(turns_pb2.GetTurnRequest(), metadata=bearer(sign_in()))
        answer = asyncio.ensure_future(_awaited(call))
        await turns.began.wait()
        stopping = asyncio.ensure_future(served.server.stop(10))
        await asyncio.sleep(0)
        turns.go_on.set()
        assert (await answer).turn.id == "t1"
        await stopping


async def _awaited(call: Any) -> Any:
    return await call


async def test_what_does_not_end_by_itself_is_cancelled_after_the_grace(serving: Serving, sign_in: SignIn) -> None:
    turns, services = service()
    async with serving(services) as served:
        call: Any = served.turns.WatchTurn(turns_pb2.WatchTurnRequest(), metadata=bearer(sign_in()))
        await call.read()
        began = time.monotonic()
        await served.server.stop(0.3)
        await asyncio.wait_for(turns.ended.wait(), 5)

    assert time.monotonic() - began < 5


async def test_a_port_is_served_once(serving: Serving) -> None:
    """With SO_REUSEPORT a second server would take half of the calls in silence."""
    _, services = service()
    async with serving(services) as served:
        with pytest.raises(SetupProblem, match="another program listens there"):
            make_server(f"127.0.0.1:{served.server.port}", [], [], streams=Streams())


async def test_a_server_can_listen_on_a_unix_socket(serving: Serving, tmp_path: Path) -> None:
    _, services = service()
    async with serving(services, listen=f"unix:{tmp_path}/s") as served:
        assert await health_of(served.channel, TURNS) == SERVING


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", ":0", "10.0.0.1:0", "example.org:0", "0"])
async def test_plain_text_is_not_spoken_to_other_machines(listen: str) -> None:
    with pytest.raises(SetupProblem, match="set a TLS certificate and key"):
        make_server(listen, [], [], streams=Streams())


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.1.2.3:0", "localhost:0"])
async def test_plain_text_is_spoken_on_this_machine(listen: str) -> None:
    server = make_server(listen, [], [], streams=Streams())
    await server.start()
    await server.stop(0)

    assert server.port > 0


async def test_with_a_certificate_a_server_listens_to_other_machines(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    server = make_server("0.0.0.0:0", [], [], streams=Streams(), tls=TlsFiles(certificate, key))
    await server.start()
    trust = grpc.ssl_channel_credentials(certificate.read_bytes())
    async with grpc.aio.secure_channel(f"localhost:{server.port}", trust) as channel:
        assert await health_of(channel, "") == SERVING
    await server.stop(0)


async def test_a_certificate_that_is_not_there_is_a_problem_of_the_set_up(tmp_path: Path) -> None:
    with pytest.raises(SetupProblem, match="cannot be read"):
        make_server("0.0.0.0:0", [], [], streams=Streams(), tls=TlsFiles(tmp_path / "c", tmp_path / "k"))


def self_signed(folder: Path) -> tuple[Path, Path]:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


STOPPED_CLIENT = """
import asyncio, sys, grpc
from tutelage.runtime.v1 import turns_pb2, turns_pb2_grpc
async def main():
    async with grpc.aio.insecure_channel(sys.argv[1]) as channel:
        metadata = [("authorization", f"Bearer {sys.argv[2]}")]
        stub = turns_pb2_grpc.TurnServiceStub(channel)
        call = stub.WatchTurn(turns_pb2.WatchTurnRequest(), metadata=metadata)
        await call.read()
        print("watching", flush=True)
        await call.read()
asyncio.run(main())
"""


@pytest.fixture
def ten_times_as_fast(monkeypatch: pytest.MonkeyPatch) -> Options:
    """The published keepalive, its every time a tenth: the server's set, the client's given."""

    def faster(options: Options) -> Options:
        return [(name, value // 10 if name.endswith("_ms") else value) for name, value in options]

    monkeypatch.setattr(grpc_server, "SERVER_OPTIONS", faster(grpc_server.SERVER_OPTIONS))
    return faster(grpc_server.CLIENT_OPTIONS)


async def test_a_client_that_was_stopped_is_noticed(
    serving: Serving, sign_in: SignIn, ten_times_as_fast: Options
) -> None:
    """Its machine still acknowledges; only the pair of keepalive time-outs notices."""
    turns, services = service()
    async with serving(services) as served:
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", STOPPED_CLIENT, served.target, sign_in(), stdout=subprocess.PIPE
        )
        assert client.stdout is not None
        assert await client.stdout.readline() == b"watching\n"
        client.send_signal(signal.SIGSTOP)
        try:
            await asyncio.wait_for(turns.ended.wait(), (KEEPALIVE_MS + PING_TIMEOUT_MS) / 10_000 + 3)
        finally:
            client.kill()
            await client.wait()


async def test_a_client_that_pings_as_published_is_not_cut_off(
    serving: Serving, sign_in: SignIn, ten_times_as_fast: Options
) -> None:
    """Five pings on a stream without traffic; a server that was not told to permit them takes two."""
    turns, services = service()
    async with (
        serving(services) as served,
        grpc.aio.insecure_channel(served.target, options=list(ten_times_as_fast)) as channel,
    ):
        stub = turns_pb2_grpc.TurnServiceStub(channel)
        call: Any = stub.WatchTurn(turns_pb2.WatchTurnRequest(), metadata=bearer(sign_in()))
        await call.read()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(turns.ended.wait(), 5.5 * KEEPALIVE_MS / 10_000)
