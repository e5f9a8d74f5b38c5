"""The composition root: builds the parts, joins them, starts the server, and ends it all in order.

    committer ─► scheduler ─► writers        api ─► committer, hosts, lookups
        │            ▲                        │
        └── store    └── hosts ◄── lease      └── streams ◄── bell

What listens to what the committer wrote is the scheduler: it begins writers, brings them words and rings the bell.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import structlog
from tutelage.runtime.v1 import (
    agents_pb2_grpc,
    approvals_pb2_grpc,
    conversations_pb2_grpc,
    programs_pb2_grpc,
    tools_pb2_grpc,
    turns_pb2_grpc,
)

from runtime_service.api import access
from runtime_service.api.agents import AgentService
from runtime_service.api.approvals import ApprovalService
from runtime_service.api.conversations import ConversationService
from runtime_service.api.tool_hosts import ToolHostService
from runtime_service.api.turns import TurnService
from runtime_service.engine.attendance import Attendance
from runtime_service.engine.committer import Committer
from runtime_service.engine.elsewhere import Elsewhere
from runtime_service.engine.hosts import Hosts
from runtime_service.engine.lease import Lease
from runtime_service.engine.models import Models
from runtime_service.engine.providers import LibraryModels
from runtime_service.engine.scheduler import Scheduler
from runtime_service.engine.scripted import Scripts
from runtime_service.engine.words import Words
from runtime_service.settings import Settings
from runtime_service.store.catalogue import Catalogue
from runtime_service.store.leases import Leases
from runtime_service.store.migrations import migrate
from runtime_service.store.reading import Reading
from runtime_service.store.replicas import Replicas
from runtime_service.store.transactions import Transactions
from runtime_service.teaching_link import NobodyTeaches, Teaching, TeachingService, own_token
from service_kit.admission import AdmissionInterceptor
from service_kit.data_folder import DataFolder
from service_kit.database import Database
from service_kit.errors import ErrorsInterceptor
from service_kit.feeds import Bell, CursorCodec
from service_kit.grpc_server import CLIENT_OPTIONS, Server, Service, make_server
from service_kit.identity import IdentityInterceptor
from service_kit.notices import Ring, ringing
from service_kit.serving import address_file, address_of, holding, tls_files, token_keys
from service_kit.streams import Streams

log = structlog.get_logger()

# How long calls have to finish once the service stops; streams end at once.
GRACE_SECONDS = 5.0
ADDRESS_FILE = "runtime.address"
# A teaching service that was away is seen to be back within two seconds: as it comes, gRPC waits up to two minutes.
RECONNECT_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


@dataclass(frozen=True, slots=True)
class Running:
    """A runtime service that serves."""

    address: str
    process: str


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Running]:
    """Run the service for as long as the block lasts; what it holds is handed back at the end.

    Raises `SetupProblem` where it cannot start.
    """
    async with (
        holding("runtime", settings, migrate) as (folder, database),
        _teaching(settings, folder) as teaching,
        LibraryModels(seconds=settings.model_seconds) as library,
        _parts(settings, folder, database, teaching, library) as (server, lease),
    ):
        address = address_of(settings.listen, server.port)
        async with address_file(settings.data_dir / ADDRESS_FILE, address):
            log.info("service.serving", address=address, process=lease.process)
            yield Running(address, lease.process)
            log.info("service.stopping")


@asynccontextmanager
async def _teaching(settings: Settings, folder: DataFolder) -> AsyncIterator[Teaching]:
    """The teaching service, where one is set, for as long as the block lasts."""
    if not settings.teaching_address:
        yield NobodyTeaches()
        return
    key = await asyncio.to_thread(folder.signing_key)
    options = (*CLIENT_OPTIONS, *RECONNECT_OPTIONS)
    async with grpc.aio.insecure_channel(settings.teaching_address, options=options) as channel:
        teaching = TeachingService(channel, own_token(key))
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(teaching.watch())
            yield teaching
            watching.cancel()


@dataclass(frozen=True, slots=True)
class _Engine:
    """What runs turns, its parts joined."""

    reading: Reading
    catalogue: Catalogue
    models: Models
    teaching: Teaching
    lease: Lease
    bell: Bell
    words: Words
    scheduler: Scheduler
    committer: Committer
    hosts: Hosts
    attendance: Attendance
    # None: there are no other replicas.
    elsewhere: Elsewhere | None


@asynccontextmanager
async def _parts(
    settings: Settings, folder: DataFolder, database: Database, teaching: Teaching, library: LibraryModels
) -> AsyncIterator[tuple[Server, Lease]]:
    leases = Leases(database)
    if database.is_a_file:
        # Whatever was held was held by a process that has ended: this one alone serves the file.
        await leases.end_all()
    lease = Lease(leases, seconds=settings.lease_seconds, keep_seconds=settings.lease_keep_seconds)
    await lease.begin()
    models = Models({"scripted": Scripts(settings.scripts_dir)}, library)
    bell, told = Bell(), asyncio.Event()
    async with (
        ringing(database, "tutelage_runtime", bell, told.set) as ring,
        _served(settings, folder, _engine(settings, database, models, teaching, lease, bell, ring, told)) as server,
    ):
        yield server, lease


@asynccontextmanager
async def _served(settings: Settings, folder: DataFolder, engine: _Engine) -> AsyncIterator[Server]:
    """Serve what an engine runs, for as long as the block lasts."""
    keys = await asyncio.to_thread(token_keys, settings, folder)
    interceptors = [
        ErrorsInterceptor("runtime.tutelage"),
        IdentityInterceptor(keys),
        AdmissionInterceptor(access.TABLE),
    ]
    streams, cursors = Streams(), CursorCodec(await engine.reading.generation())
    services = _services(engine, streams, cursors, settings.approve)
    server = make_server(settings.listen, interceptors, services, streams=streams, tls=tls_files(settings))
    async with _at_work(engine):
        await server.start()
        try:
            yield server
        finally:
            await server.stop(GRACE_SECONDS)


def _engine(
    settings: Settings, database: Database, models: Models, teaching: Teaching, lease: Lease, bell: Bell, ring: Ring,
    told: asyncio.Event,
) -> _Engine:  # fmt: skip
    """Join what runs turns. `ring` rings every replica's bell; `told` is set where another one rang."""
    reading, catalogue = Reading(database), Catalogue(database)
    # What is written as it comes is shown by this process alone.
    words = Words(lambda topics: bell.ring(*topics))
    scheduler = Scheduler(
        reading, catalogue, models, teaching, lease, words, tool_seconds=settings.tool_seconds, ring=ring
    )
    committer = Committer(Transactions(database), scheduler)
    replicas = None if database.is_a_file else Replicas(database)
    hosts = Hosts(committer, lease, replicas, reconnect_seconds=settings.reconnect_seconds)
    scheduler.join(committer, hosts)
    elsewhere = Elsewhere(replicas, hosts, scheduler, lease, told, lambda: ring(())) if replicas else None
    attendance = Attendance(committer, hosts, lease)
    return _Engine(
        reading, catalogue, models, teaching, lease, bell, words, scheduler, committer, hosts, attendance, elsewhere
    )


def _services(engine: _Engine, streams: Streams, cursors: CursorCodec, approve: str) -> Sequence[Service]:
    """Return every service of the contract. What a servicer leaves out answers NOT_IN_THIS_RELEASE."""
    reading, catalogue, committer, hosts = engine.reading, engine.catalogue, engine.committer, engine.hosts
    lease, bell = engine.lease, engine.bell
    turns = TurnService(
        reading, catalogue, committer, hosts, lease, engine.attendance, engine.words, streams, bell, cursors,
        approve=approve,
    )  # fmt: skip
    conversations = ConversationService(reading, catalogue, committer)  # type: ignore[abstract]
    approvals = ApprovalService(reading, committer, engine.teaching, streams, bell, cursors)
    return [
        (agents_pb2_grpc.add_AgentServiceServicer_to_server, AgentService(catalogue, engine.models)),
        (conversations_pb2_grpc.add_ConversationServiceServicer_to_server, conversations),
        (turns_pb2_grpc.add_TurnServiceServicer_to_server, turns),
        (approvals_pb2_grpc.add_ApprovalServiceServicer_to_server, approvals),
        (approvals_pb2_grpc.add_GrantServiceServicer_to_server, approvals_pb2_grpc.GrantServiceServicer()),  # type: ignore[abstract]
        (tools_pb2_grpc.add_ToolHostServiceServicer_to_server, ToolHostService(hosts, lease, streams)),
        (programs_pb2_grpc.add_ProgramServiceServicer_to_server, programs_pb2_grpc.ProgramServiceServicer()),  # type: ignore[abstract]
    ]


@asynccontextmanager
async def _at_work(engine: _Engine) -> AsyncIterator[None]:
    """Run turns for as long as the block lasts; then end what runs, what is written, and the lease, in this order."""
    async with asyncio.TaskGroup() as group:
        committing = group.create_task(engine.committer.run())
        keeping = group.create_task(engine.lease.run())
        scheduling = group.create_task(engine.scheduler.run())
        attending = group.create_task(engine.attendance.run())
        looking = group.create_task(engine.elsewhere.run()) if engine.elsewhere else None
        try:
            yield
        finally:
            engine.scheduler.stop()
            await asyncio.wait([scheduling])
            attending.cancel()
            if looking is not None:
                looking.cancel()
            engine.committer.close()
            await asyncio.wait([committing])
            keeping.cancel()
            await engine.lease.end()
