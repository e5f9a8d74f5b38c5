"""The composition root: builds the parts, joins them, starts the server, and ends it all in order.

    api ─► changes ─► bell ─► streams
     └───► reading

There is no engine: each change is one transaction of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog
from tutelage.teaching.v1 import (
    corrections_pb2_grpc,
    events_pb2_grpc,
    instructions_pb2_grpc,
    privacy_pb2_grpc,
    tasks_pb2_grpc,
)

from service_kit.admission import AdmissionInterceptor
from service_kit.data_folder import DataFolder
from service_kit.database import Database
from service_kit.errors import ErrorsInterceptor
from service_kit.feeds import Bell, CursorCodec
from service_kit.grpc_server import Server, Service, make_server
from service_kit.identity import IdentityInterceptor
from service_kit.notices import Ring, ringing
from service_kit.serving import address_file, address_of, holding, tls_files, token_keys
from service_kit.streams import Streams
from teaching_service.api import access
from teaching_service.api.corrections import CorrectionService
from teaching_service.api.events import TeachingEventService, topic
from teaching_service.api.instructions import InstructionService
from teaching_service.api.tasks import TaskService
from teaching_service.settings import Settings
from teaching_service.store.changes import Changes
from teaching_service.store.migrations import migrate
from teaching_service.store.reading import Reading
from teaching_service.store.task_changes import TaskChanges

log = structlog.get_logger()

# How long calls have to finish once the service stops; streams end at once.
GRACE_SECONDS = 5.0
ADDRESS_FILE = "teaching.address"


@dataclass(frozen=True, slots=True)
class Running:
    """A teaching service that serves."""

    address: str


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Running]:
    """Run the service for as long as the block lasts; what it holds is handed back at the end.

    Raises `SetupProblem` where it cannot start.
    """
    bell = Bell()
    async with (
        holding("teaching", settings, migrate) as (folder, database),
        ringing(database, "tutelage_teaching", bell) as ring,
    ):
        server = await _server(settings, folder, database, bell, ring)
        await server.start()
        try:
            address = address_of(settings.listen, server.port)
            async with address_file(settings.data_dir / ADDRESS_FILE, address):
                log.info("service.serving", address=address)
                yield Running(address)
                log.info("service.stopping")
        finally:
            await server.stop(GRACE_SECONDS)


async def _server(settings: Settings, folder: DataFolder, database: Database, bell: Bell, ring: Ring) -> Server:
    policy = settings.policy
    streams = Streams()
    reading = Reading(database, policy.limits)
    changes = Changes(database, policy, ring=lambda tenant: ring([topic(tenant)]))
    cursors = CursorCodec(await reading.generation())
    # What a servicer leaves out answers NOT_IN_THIS_RELEASE.
    services: Sequence[Service] = [
        (corrections_pb2_grpc.add_CorrectionServiceServicer_to_server, CorrectionService(reading, changes)),
        (
            instructions_pb2_grpc.add_InstructionServiceServicer_to_server,
            InstructionService(reading, changes),  # type: ignore[abstract]
        ),
        (
            tasks_pb2_grpc.add_TaskServiceServicer_to_server,
            TaskService(reading, TaskChanges(database, policy.limits)),
        ),
        (
            events_pb2_grpc.add_TeachingEventServiceServicer_to_server,
            TeachingEventService(reading, streams, bell, cursors),
        ),
        (privacy_pb2_grpc.add_PrivacyServiceServicer_to_server, privacy_pb2_grpc.PrivacyServiceServicer()),  # type: ignore[abstract]
    ]
    keys = await asyncio.to_thread(token_keys, settings, folder)
    interceptors = [
        ErrorsInterceptor("teaching.tutelage"),
        IdentityInterceptor(keys),
        AdmissionInterceptor(access.TABLE),
    ]
    return make_server(settings.listen, interceptors, services, streams=streams, tls=tls_files(settings))
