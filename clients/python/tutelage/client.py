"""The two services, as a Python program speaks to them.

    async with connect("127.0.0.1:7420", token) as runtime:
        given = await runtime.turns.StartTurn(StartTurnRequest(...))
        async for event in runtime.watch_turn(given.turn.id):
            ...
    async with connect_teaching("127.0.0.1:7421", token) as teaching:
        await teaching.corrections.CorrectWork(CorrectWorkRequest(...))

The stubs are the generated ones, so the contract is the reference. What this adds is in `channel.py`
(token, deadlines, errors, tries) and in the watches, which go on where their stream broke.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc
from grpc import aio

from tutelage.channel import Token, open_channel
from tutelage.runtime.v1 import (
    agents_pb2_grpc,
    approvals_pb2,
    approvals_pb2_grpc,
    conversations_pb2_grpc,
    programs_pb2_grpc,
    tools_pb2_grpc,
    turns_pb2,
    turns_pb2_grpc,
)
from tutelage.teaching.v1 import (
    corrections_pb2_grpc,
    events_pb2,
    events_pb2_grpc,
    instructions_pb2_grpc,
    privacy_pb2_grpc,
    tasks_pb2_grpc,
)
from tutelage.watches import watched_approvals, watched_teaching, watched_turn

if TYPE_CHECKING:
    from tutelage.runtime.v1.agents_pb2_grpc import AgentServiceAsyncStub
    from tutelage.runtime.v1.approvals_pb2_grpc import ApprovalServiceAsyncStub, GrantServiceAsyncStub
    from tutelage.runtime.v1.conversations_pb2_grpc import ConversationServiceAsyncStub
    from tutelage.runtime.v1.programs_pb2_grpc import ProgramServiceAsyncStub
    from tutelage.runtime.v1.tools_pb2_grpc import ToolHostServiceAsyncStub
    from tutelage.runtime.v1.turns_pb2_grpc import TurnServiceAsyncStub
    from tutelage.teaching.v1.corrections_pb2_grpc import CorrectionServiceAsyncStub
    from tutelage.teaching.v1.events_pb2_grpc import TeachingEventServiceAsyncStub
    from tutelage.teaching.v1.instructions_pb2_grpc import InstructionServiceAsyncStub
    from tutelage.teaching.v1.privacy_pb2_grpc import PrivacyServiceAsyncStub
    from tutelage.teaching.v1.tasks_pb2_grpc import TaskServiceAsyncStub


class Connection:
    """A connection to one service, under one account."""

    def __init__(self, channel: aio.Channel) -> None:
        self._channel = channel

    async def ready(self) -> None:
        """Wait until the service can be reached. Bound it with `asyncio.timeout`."""
        await self._channel.channel_ready()

    async def close(self) -> None:
        """End every call under way and close the connection."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(self.close())


class Tutelage(Connection):
    """The runtime: agents, their turns, and what waits for people. Made by `connect`."""

    def __init__(self, channel: aio.Channel) -> None:
        super().__init__(channel)
        self.agents: AgentServiceAsyncStub = agents_pb2_grpc.AgentServiceStub(channel)
        self.conversations: ConversationServiceAsyncStub = conversations_pb2_grpc.ConversationServiceStub(channel)
        self.turns: TurnServiceAsyncStub = turns_pb2_grpc.TurnServiceStub(channel)
        self.approvals: ApprovalServiceAsyncStub = approvals_pb2_grpc.ApprovalServiceStub(channel)
        self.grants: GrantServiceAsyncStub = approvals_pb2_grpc.GrantServiceStub(channel)
        self.tools: ToolHostServiceAsyncStub = tools_pb2_grpc.ToolHostServiceStub(channel)
        self.programs: ProgramServiceAsyncStub = programs_pb2_grpc.ProgramServiceStub(channel)

    def watch_turn(self, turn_id: str, cursor: str = "") -> AsyncGenerator[turns_pb2.TurnEvent, None]:
        """Follow a turn from its start, or from after `cursor`, until it has ended.

        Goes on across ended streams and a service that is away, each event once. The last event is `ended`.
        """
        return watched_turn(self.turns, turn_id, cursor)

    def watch_approvals(
        self, filter: approvals_pb2.ApprovalFilter | None = None, cursor: str = ""
    ) -> AsyncGenerator[approvals_pb2.WatchApprovalsResponse, None]:
        """Follow what waits and what becomes of it, without an end.

        Without a cursor: all that waits first, then a bookmark with `caught_up`. What came before that
        bookmark comes again if the stream breaks before it; after it, each event comes once.
        """
        return watched_approvals(self.approvals, filter, cursor)


class Teaching(Connection):
    """The teaching service: what people tell agents. Made by `connect_teaching`."""

    def __init__(self, channel: aio.Channel) -> None:
        super().__init__(channel)
        self.corrections: CorrectionServiceAsyncStub = corrections_pb2_grpc.CorrectionServiceStub(channel)
        self.instructions: InstructionServiceAsyncStub = instructions_pb2_grpc.InstructionServiceStub(channel)
        self.tasks: TaskServiceAsyncStub = tasks_pb2_grpc.TaskServiceStub(channel)
        self.events: TeachingEventServiceAsyncStub = events_pb2_grpc.TeachingEventServiceStub(channel)
        self.privacy: PrivacyServiceAsyncStub = privacy_pb2_grpc.PrivacyServiceStub(channel)

    def watch_teaching(
        self, agent: str = "", cursor: str = ""
    ) -> AsyncGenerator[events_pb2.WatchTeachingResponse, None]:
        """Follow what is corrected, proposed and changed, of one agent or of all, without an end.

        Without a cursor: a bookmark first, which says where it begins. Each event after it comes once.
        """
        return watched_teaching(self.events, agent, cursor)


def connect(address: str, token: Token, tls: grpc.ChannelCredentials | None = None) -> Tutelage:
    """Connect to the runtime at `address` (`127.0.0.1:7420`) under the account that `token` names.

    Give a function that returns the token where the program outlives it. Without `tls` the token can be
    read on the way: for loopback, and where something else encrypts.
    """
    return Tutelage(open_channel(address, token, tls))


def connect_teaching(address: str, token: Token, tls: grpc.ChannelCredentials | None = None) -> Teaching:
    """Connect to the teaching service at `address` (`127.0.0.1:7421`), as `connect` does to the runtime."""
    return Teaching(open_channel(address, token, tls))
