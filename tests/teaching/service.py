"""A teaching service as the tests here drive it: the real one, in this process, over the public API alone.

It serves on a port of the system's choice, from a real database in the test's folder, and can be stopped and started
again on the same port.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

from grpc import aio
from tutelage.channel import open_channel
from tutelage.common.v1.principal_pb2 import PRINCIPAL_KIND_PERSON, Principal
from tutelage.errors import TutelageError
from tutelage.teaching.v1 import (
    corrections_pb2,
    corrections_pb2_grpc,
    events_pb2,
    events_pb2_grpc,
    instructions_pb2,
    instructions_pb2_grpc,
    privacy_pb2_grpc,
    tasks_pb2,
    tasks_pb2_grpc,
)
from tutelage.token import make_token, signing_key

from teaching_service.server import running
from teaching_service.settings import Settings

DEADLINE_SECONDS = 10.0
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
HEADING = "What people have told you since you were written. Where two of these disagree, the later one holds."

# Everybody in these tests: their kind and roles.
ACCOUNTS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "gus": ("person", ("uses",)),
    "hale": ("person", ("uses", "teaches")),
    "ivy": ("person", ("teaches",)),
    "sam": ("person", ("supervises",)),
    "audra": ("person", ("audits",)),
    "stranger": ("person", ("uses",)),
    "nobody": ("person", ()),
    "runtime": ("service", ("runtime",)),
    "robot": ("agent", ("uses", "supervises", "teaches", "runtime")),
    "gateway": ("service", ("uses", "supervises", "teaches")),
    "pretender": ("person", ("runtime",)),
}


class Client:
    """Somebody's connection."""

    def __init__(self, channel: aio.Channel) -> None:
        self.channel = channel
        self.corrections: corrections_pb2_grpc.CorrectionServiceAsyncStub
        self.corrections = corrections_pb2_grpc.CorrectionServiceStub(channel)
        self.instructions: instructions_pb2_grpc.InstructionServiceAsyncStub
        self.instructions = instructions_pb2_grpc.InstructionServiceStub(channel)
        self.tasks: tasks_pb2_grpc.TaskServiceAsyncStub = tasks_pb2_grpc.TaskServiceStub(channel)
        self.events: events_pb2_grpc.TeachingEventServiceAsyncStub
        self.events = events_pb2_grpc.TeachingEventServiceStub(channel)
        self.privacy: privacy_pb2_grpc.PrivacyServiceAsyncStub = privacy_pb2_grpc.PrivacyServiceStub(channel)


class Teaching:
    """One service in its folder, with whoever is connected to it."""

    def __init__(self, folder: Path, cleanup: AsyncExitStack) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = {}
        self.address = "127.0.0.1:0"
        self._cleanup = cleanup
        self._clients: dict[str, Client] = {}
        self._serving: AsyncExitStack | None = None
        self._tasks = 0

    # The process

    async def start(self, **settings: Any) -> None:
        """Serve. Settings stay for later starts."""
        self.settings |= settings
        stack = AsyncExitStack()
        served = running(Settings(listen=self.address, data_dir=self.folder, **self.settings))
        self.address = (await stack.enter_async_context(served)).address
        self._serving = stack
        for client in self._clients.values():
            async with asyncio.timeout(DEADLINE_SECONDS):
                await client.channel.channel_ready()

    async def stop(self) -> None:
        """Stop as on SIGTERM, and wait for the end."""
        if self._serving is not None:
            await self._serving.aclose()
        self._serving = None

    # Who calls

    def token(self, who: str, **changes: Any) -> str:
        """Sign somebody's token; `changes` are those of `make_token`."""
        kind, roles = ACCOUNTS[who]
        made: dict[str, Any] = {"sub": who, "kind": kind, "roles": roles} | changes
        return make_token(signing_key(self.folder), **made)

    def client(self, token: str) -> Client:
        """Connect by a token of one's own making."""
        client = Client(open_channel(self.address, token))
        self._cleanup.push_async_callback(client.channel.close)
        return client

    def __getitem__(self, who: str) -> Client:
        """Somebody's connection."""
        if who not in self._clients:
            self._clients[who] = self.client(self.token(who))
        return self._clients[who]

    # What the runtime does

    async def begin(
        self,
        agent: str = "Tagger",
        *,
        skill: str = "WriteTag",
        work_for: str = "gus",
        given_by: str = "",
        scope: str = "",
        task_id: str = "",
        tenant: str = "default",
    ) -> tuple[str, tasks_pb2.InstructionBlock]:
        """Begin a task as the runtime does; return its id and its block."""
        self._tasks += 1
        task_id = task_id or f"t{self._tasks}/{agent}"
        request = tasks_pb2.BeginTaskRequest(
            task_id=task_id,
            agent=agent,
            skill=skill,
            skill_version="2",
            turn_id=task_id.partition("/")[0],
            path=agent,
            work_for=person(work_for),
            given_by=person(given_by or work_for),
            scope=scope,
        )
        response = await self["runtime"].tasks.BeginTask(request, metadata=named(tenant))
        return task_id, response.block

    async def check(self, *task_ids: str) -> Sequence[tasks_pb2.SetCheck]:
        request = tasks_pb2.CheckSetsRequest(task_ids=task_ids)
        return (await self["runtime"].tasks.CheckSets(request, metadata=named())).checks

    async def take_up(self, task_id: str, number: int) -> tasks_pb2.InstructionBlock:
        request = tasks_pb2.TakeUpInstructionsRequest(task_id=task_id, number=number)
        return (await self["runtime"].tasks.TakeUpInstructions(request, metadata=named())).block

    async def put(self, task_id: str, proposal_id: str, *who: str) -> None:
        """Say to whom a proposal was put."""
        proposal = tasks_pb2.Proposal(task_id=task_id, proposal_id=proposal_id, put_to=who)
        request = tasks_pb2.RecordProposalsRequest(proposals=[proposal])
        await self["runtime"].tasks.RecordProposals(request, metadata=named())

    # What people do

    async def correct(
        self, task_id: str, by: str = "gus", request_id: str = "", **says: Any
    ) -> corrections_pb2.Correction:
        draft = {"wrong": "The Latin name alone.", "right": "The common name first.", "because": "Customers ask by it."}
        request = corrections_pb2.CorrectWorkRequest(
            task_id=task_id, correction=corrections_pb2.CorrectionDraft(**(draft | says)), request_id=request_id
        )
        return (await self[by].corrections.CorrectWork(request)).correction

    async def propose(
        self, guidance: str, by: str = "gus", agent: str = "Tagger", request_id: str = "", **says: Any
    ) -> instructions_pb2.Instruction:
        draft = instructions_pb2.InstructionDraft(agent=agent, guidance=guidance, **says)
        request = instructions_pb2.ProposeInstructionRequest(draft=draft, request_id=request_id)
        return (await self[by].instructions.ProposeInstruction(request)).instruction

    async def activate(
        self, instruction: instructions_pb2.Instruction, by: str = "hale", **request: Any
    ) -> instructions_pb2.InstructionSet:
        asked: dict[str, Any] = {"guidance_hash": instruction.guidance_hash} | request
        response = await self[by].instructions.ActivateInstruction(
            instructions_pb2.ActivateInstructionRequest(instruction_id=instruction.id, **asked)
        )
        return response.set

    async def teach(self, guidance: str, **says: Any) -> instructions_pb2.Instruction:
        """Propose an instruction as a teacher and make it active; return it as it stands then."""
        proposal = await self.propose(guidance, "hale", **says)
        await self.activate(proposal)
        return await self.instruction(proposal.id)

    async def retire(
        self, instruction_id: str, by: str = "hale", why: str = "No longer so.", **request: Any
    ) -> instructions_pb2.InstructionSet:
        asked = instructions_pb2.RetireInstructionRequest(instruction_id=instruction_id, why=why, **request)
        return (await self[by].instructions.RetireInstruction(asked)).set

    async def reject(self, instruction_id: str, by: str = "hale", why: str = "No.") -> instructions_pb2.Instruction:
        asked = instructions_pb2.RejectInstructionRequest(instruction_id=instruction_id, why=why)
        return (await self[by].instructions.RejectInstruction(asked)).instruction

    async def revise(
        self, instruction_id: str, guidance: str, by: str = "hale", why: str = ""
    ) -> instructions_pb2.Instruction:
        asked = instructions_pb2.ReviseInstructionRequest(instruction_id=instruction_id, guidance=guidance, why=why)
        return (await self[by].instructions.ReviseInstruction(asked)).instruction

    async def roll_back(
        self, to_set: int, by: str = "hale", agent: str = "Tagger", why: str = "Start again.", **request: Any
    ) -> instructions_pb2.InstructionSet:
        asked = instructions_pb2.RollBackInstructionsRequest(agent=agent, to_set=to_set, why=why, **request)
        return (await self[by].instructions.RollBackInstructions(asked)).set

    # What is read

    async def instruction(self, instruction_id: str, by: str = "hale") -> instructions_pb2.Instruction:
        request = instructions_pb2.GetInstructionRequest(instruction_id=instruction_id)
        return (await self[by].instructions.GetInstruction(request)).instruction

    async def instructions(self, by: str = "hale", **request: Any) -> Sequence[instructions_pb2.Instruction]:
        asked = instructions_pb2.ListInstructionsRequest(**({"agent": "Tagger"} | request))
        return (await self[by].instructions.ListInstructions(asked)).instructions

    async def newest(self, agent: str = "Tagger", **request: Any) -> instructions_pb2.InstructionSet:
        asked = instructions_pb2.GetInstructionSetRequest(agent=agent, **request)
        return (await self["gus"].instructions.GetInstructionSet(asked)).set

    async def sets(self, agent: str = "Tagger") -> Sequence[instructions_pb2.InstructionSet]:
        asked = instructions_pb2.ListInstructionSetsRequest(agent=agent)
        return (await self["gus"].instructions.ListInstructionSets(asked)).sets

    async def preview(
        self, by: str = "hale", agent: str = "Tagger", **request: str
    ) -> instructions_pb2.PreviewBlockResponse:
        return await self[by].instructions.PreviewBlock(instructions_pb2.PreviewBlockRequest(agent=agent, **request))

    async def task(self, task_id: str, by: str = "gus") -> tasks_pb2.Task:
        return (await self[by].tasks.GetTask(tasks_pb2.GetTaskRequest(task_id=task_id))).task

    async def explain(self, task_id: str, by: str = "gus") -> tasks_pb2.ExplainTaskResponse:
        return await self[by].tasks.ExplainTask(tasks_pb2.ExplainTaskRequest(task_id=task_id))

    async def corrections(self, by: str = "gus", **request: Any) -> Sequence[corrections_pb2.Correction]:
        asked = corrections_pb2.ListCorrectionsRequest(**request)
        return (await self[by].corrections.ListCorrections(asked)).corrections

    @asynccontextmanager
    async def watching(
        self, by: str, cursor: str = "", agent: str = ""
    ) -> AsyncIterator[AsyncIterator[events_pb2.WatchTeachingResponse]]:
        """Watch for as long as the block lasts."""
        call: Any = self[by].events.WatchTeaching(events_pb2.WatchTeachingRequest(cursor=cursor, agent=agent))
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                yield aiter(call)
        finally:
            call.cancel()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Look into the database's file, or write to it."""
        with closing(sqlite3.connect(self.folder / "teaching.db")) as database, database:
            return database.execute(query).fetchall()


def person(account: str) -> Principal:
    return Principal(id=account, kind=PRINCIPAL_KIND_PERSON)


def named(tenant: str = "default") -> list[tuple[str, str]]:
    """The metadata by which the runtime's account names a call's tenant."""
    return [("tutelage-tenant", tenant)]


def text_of(*guidances: str) -> str:
    """The block that these make, as docs/sets.md tells it, written once more."""
    lines = [f"\n{number}. {guidance}" for number, guidance in enumerate(guidances, 1)]
    return HEADING + "".join(lines) if lines else ""


async def refusal(call: Awaitable[object]) -> TutelageError:
    """Return what a call was refused with."""
    try:
        answer = await call
    except TutelageError as error:
        return error
    raise AssertionError(f"this was not refused: {answer}")
