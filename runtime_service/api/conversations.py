"""`ConversationService`."""

from __future__ import annotations

import uuid
from typing import Any

from tutelage.runtime.v1 import conversations_pb2 as pb
from tutelage.runtime.v1 import conversations_pb2_grpc

from runtime_service.api import access, from_proto, seeing, to_proto
from runtime_service.api.checks import Fields
from runtime_service.api.lookups import Lookups, Registry
from runtime_service.domain.problems import NotAdmitted
from runtime_service.domain.rules import Level, Setting, SettingInForce
from runtime_service.domain.turns import ConversationKey
from runtime_service.engine.committer import Committer
from runtime_service.engine.units.conversations import OpenConversation, SetApproval
from service_kit.identity import Caller, current_caller
from service_kit.paging import PageCodec, page, page_size


class ConversationService(conversations_pb2_grpc.ConversationServiceServicer):
    """Conversations: turns of one agent, each of which sees the earlier ones."""

    def __init__(self, lookups: Lookups, registry: Registry, committer: Committer) -> None:
        self._lookups = lookups
        self._registry = registry
        self._committer = committer

    async def OpenConversation(self, request: pb.OpenConversationRequest, context: Any) -> pb.OpenConversationResponse:
        caller = current_caller()
        fields = Fields()
        fields.name("agent", request.agent)
        fields.own_id("conversation_id", request.conversation_id)
        approve = from_proto.setting(request.approve, "approve", fields)
        fields.done()
        await seeing.agent(self._registry, caller, request.agent)
        unit = OpenConversation(
            key=ConversationKey(caller.tenant, request.conversation_id or uuid.uuid4().hex),
            agent=request.agent,
            approve=_in_force(approve, caller),
            opened_by=access.principal(caller),
            sees_all=access.viewer(caller).sees_all,
        )
        opened = await self._committer.commit(unit)
        return pb.OpenConversationResponse(conversation=to_proto.conversation(opened))

    async def GetConversation(self, request: pb.GetConversationRequest, context: Any) -> pb.GetConversationResponse:
        conversation = await seeing.conversation(self._lookups, current_caller(), request.conversation_id)
        return pb.GetConversationResponse(conversation=to_proto.conversation(conversation))

    async def ListConversations(
        self, request: pb.ListConversationsRequest, context: Any
    ) -> pb.ListConversationsResponse:
        most = page_size(request.page_size)
        key = f"conversations\0{request.agent}"
        before = PageCodec.decode(key, request.page_token)
        viewer = access.viewer(current_caller())
        found = await self._lookups.conversations(viewer, request.agent, None if before is None else int(before), most)
        shown, token = page(found, most, key, to_proto.conversation, lambda one: one.made)
        return pb.ListConversationsResponse(conversations=shown, next_page_token=token)

    async def SetConversationApproval(
        self, request: pb.SetConversationApprovalRequest, context: Any
    ) -> pb.SetConversationApprovalResponse:
        caller = current_caller()
        fields = Fields()
        approve = from_proto.setting(request.approve, "approve", fields)
        fields.done()
        conversation = await seeing.conversation(self._lookups, caller, request.conversation_id)
        if conversation.opened_by.id != caller.id and not access.supervises(caller):
            raise NotAdmitted("change who is asked in this conversation", ("supervises",))
        changed = await self._committer.commit(SetApproval(conversation.key, _in_force(approve, caller)))
        return pb.SetConversationApprovalResponse(conversation=to_proto.conversation(changed))


def _in_force(setting: Setting | None, caller: Caller) -> SettingInForce | None:
    """Return a conversation's setting: by somebody who does not supervise it only adds (R2.2)."""
    if setting is None:
        return None
    return SettingInForce(Level.CONVERSATION, setting, only_adds=not access.supervises(caller))
