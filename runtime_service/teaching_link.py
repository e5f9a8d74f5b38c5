"""The runtime's one window on the teaching service.

Without one every block is empty and its set is 0, which is a good mode of its own. With one nothing runs untaught:
where it does not answer, what needs it waits, and goes on soon after it answers again (`runtime.md` R3.6, R6.7).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import grpc
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tutelage.common.v1 import principal_pb2
from tutelage.teaching.v1 import tasks_pb2, tasks_pb2_grpc
from tutelage.token import make_token

from runtime_service.domain.journal import BlockReceipt
from runtime_service.domain.principals import Principal
from runtime_service.domain.problems import PartUnavailable
from runtime_service.domain.turns import Turn
from service_kit.messages import filled

log = structlog.get_logger()

RENDER_VERSION = 1
# How long an answer is waited for: what it decides waits for it meanwhile.
ANSWER_SECONDS = 10.0
MOST_CHECKED_AT_ONCE = 1_000
OWN_TOKEN_SECONDS = 3_600.0
TENANT_KEY = "tutelage-tenant"
# What waits for teaching says so by this. No tool has such a name.
TEACHING = "teaching service"
# While it is away it is asked so often whether it is back: soon at first, then later each time.
FIRST_LOOK_SECONDS = 0.5
LAST_LOOK_SECONDS = 5.0
_NOBODY_THERE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True, slots=True)
class Block:
    """What a task's model is told by people: the text, last in its system prompt, and what is kept of it."""

    text: str
    receipt: BlockReceipt
    # What the task runs with, in words: the first line of its record.
    words: str

    def as_recorded(self, recorded: BlockReceipt | None) -> Block:
        """Return it for a task whose record says what it was told: that, and nothing else.

        One that began while nobody taught was told nothing. Raises `PartUnavailable` where what it was told is not to
        be had, because no teaching service is set any more.
        """
        if recorded is None or recorded.instruction_set == self.receipt.instruction_set:
            return self
        if recorded.instruction_ids:
            raise PartUnavailable(TEACHING, retry_after=1.0)
        return replace(self, text="")


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task as it begins: the work of one agent's call."""

    id: str
    agent: str
    skill: str
    skill_version: str
    path: str


class TeachingAway(PartUnavailable):
    """Nobody answers at the teaching service's address. `on_return` is told when somebody does."""

    def __init__(self) -> None:
        super().__init__(TEACHING, retry_after=1.0)


class Teaching(Protocol):
    """What the runtime asks of teaching. Each raises `PartUnavailable` where it does not answer."""

    on_return: list[Callable[[], None]]

    async def begin_task(self, turn: Turn, task: NewTask) -> Block:
        """Begin a task and return its block. The same task again: the same block, whatever was taught since."""
        ...

    async def standing(self, tenant: str, task_ids: Collection[str]) -> Collection[str]:
        """Return those of the tasks whose set still stands. The answer is the moment that counts."""
        ...

    async def take_up(self, tenant: str, task_id: str, number: int) -> Block:
        """Take up the instructions as they stand, for the how-manieth time. The same again: the same block."""
        ...


_NOTHING = Block(
    text="",
    receipt=BlockReceipt(
        instruction_set=0,
        instruction_ids=(),
        sha256=hashlib.sha256(b"").hexdigest(),
        left_out=0,
        render_version=RENDER_VERSION,
    ),
    words="",
)


class NobodyTeaches:
    """There is no teaching service."""

    def __init__(self) -> None:
        self.on_return: list[Callable[[], None]] = []

    async def begin_task(self, turn: Turn, task: NewTask) -> Block:
        """Return the empty block of set 0."""
        return replace(_NOTHING, words=f"Set 0 of {task.agent}: 0 sent, 0 left out.")

    async def standing(self, tenant: str, task_ids: Collection[str]) -> Collection[str]:
        """Return all of them: nothing ever changes."""
        return task_ids

    async def take_up(self, tenant: str, task_id: str, number: int) -> Block:
        """Return the empty block of set 0."""
        return _NOTHING


class _NotBegun(PartUnavailable):
    """Teaching answers, and knows no such task."""


class TeachingService:
    """The teaching service over gRPC, as the runtime's own account, which names the tenant of each call."""

    def __init__(self, channel: grpc.aio.Channel, token: Callable[[], str]) -> None:
        self._tasks = tasks_pb2_grpc.TaskServiceStub(channel)
        self._token = token
        self.on_return: list[Callable[[], None]] = []
        # Set at first: work may wait for it from before this process.
        self._away = asyncio.Event()
        self._away.set()

    async def watch(self) -> None:
        """Tell `on_return` whenever teaching answers again after it was away, until cancelled.

        Twice each time: what was just being let go of as it came back is found by the second. What fails though
        somebody answers is so tried again every five seconds at most.
        """
        while True:
            await self._away.wait()
            pause = FIRST_LOOK_SECONDS
            while not await self._answers():
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_LOOK_SECONDS)
            self._away.clear()
            self._tell()
            await asyncio.sleep(LAST_LOOK_SECONDS)
            self._tell()

    async def _answers(self) -> bool:
        try:
            await self._asked(self._tasks.CheckSets, tasks_pb2.CheckSetsRequest(), "default")
        except PartUnavailable:
            return False
        return True

    def _tell(self) -> None:
        for told in self.on_return:
            told()

    async def begin_task(self, turn: Turn, task: NewTask) -> Block:
        """Begin a task and return its block."""
        request = tasks_pb2.BeginTaskRequest(
            task_id=task.id,
            agent=task.agent,
            skill=task.skill,
            skill_version=task.skill_version,
            turn_id=turn.id,
            path=task.path,
            work_for=_principal(turn.work_for),
            given_by=_principal(turn.given_by),
            scope=turn.scope,
        )
        return _block((await self._asked(self._tasks.BeginTask, request, turn.tenant)).block)

    async def standing(self, tenant: str, task_ids: Collection[str]) -> Collection[str]:
        """Return those of the tasks whose set still stands."""
        ids = list(dict.fromkeys(task_ids))
        standing: set[str] = set()
        for start in range(0, len(ids), MOST_CHECKED_AT_ONCE):
            standing |= await self._standing(tenant, ids[start : start + MOST_CHECKED_AT_ONCE])
        return standing

    async def _standing(self, tenant: str, ids: Sequence[str]) -> set[str]:
        """Ask about some of them. A task that was begun while nobody taught has no set here that could stand."""
        request = tasks_pb2.CheckSetsRequest(task_ids=ids)
        try:
            answer = await self._asked(self._tasks.CheckSets, request, tenant)
        except _NotBegun:
            one_by_one = [await self._standing(tenant, [one]) for one in ids] if len(ids) > 1 else []
            return set().union(*one_by_one)
        return {check.task_id for check in answer.checks if check.stands}

    async def take_up(self, tenant: str, task_id: str, number: int) -> Block:
        """Take up the instructions as they stand."""
        request = tasks_pb2.TakeUpInstructionsRequest(task_id=task_id, number=number)
        return _block((await self._asked(self._tasks.TakeUpInstructions, request, tenant)).block)

    async def _asked(self, rpc: Callable[..., Any], request: object, tenant: str) -> Any:
        """Ask, at most so long. Whatever keeps teaching from answering, the runtime cannot go on without it."""
        metadata = (("authorization", f"Bearer {self._token()}"), (TENANT_KEY, tenant))
        try:
            return await rpc(request, metadata=metadata, timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as problem:
            log.warning("teaching.no_answer", code=problem.code().name, rpc=type(request).__name__)
            if problem.code() in _NOBODY_THERE:
                self._away.set()
                raise TeachingAway from None
            kind = _NotBegun if problem.code() is grpc.StatusCode.NOT_FOUND else PartUnavailable
            raise kind(TEACHING, retry_after=1.0) from None


def _block(message: tasks_pb2.InstructionBlock) -> Block:
    receipt = BlockReceipt(
        instruction_set=message.set_number,
        instruction_ids=tuple(message.instruction_ids),
        sha256=message.sha256,
        left_out=message.left_out,
        render_version=message.render_version,
    )
    return Block(message.text, receipt, message.words)


def _principal(one: Principal) -> principal_pb2.Principal:
    return filled(principal_pb2.Principal(), one)


def own_token(key: Ed25519PrivateKey) -> Callable[[], str]:
    """Return what gives the runtime's own account its token: another one when half of its time is over."""
    made_at, token = 0.0, ""

    def current() -> str:
        nonlocal made_at, token
        if not token or time.monotonic() - made_at > OWN_TOKEN_SECONDS / 2:
            made_at = time.monotonic()
            token = make_token(key, sub="runtime", kind="service", roles=["runtime"], expires_in=OWN_TOKEN_SECONDS)
        return token

    return current
