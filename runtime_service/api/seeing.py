"""What a caller sees of what there is: a thing that is there for them, or `NoSuchThing` (`runtime.md` R10)."""

from __future__ import annotations

from runtime_service.api import access
from runtime_service.api.lookups import Lookups, Registry
from runtime_service.domain.agents import Agent
from runtime_service.domain.approvals import Approval
from runtime_service.domain.problems import NoSuchThing
from runtime_service.domain.turns import Conversation, Turn
from service_kit.identity import Caller


async def agent(registry: Registry, caller: Caller, name: str, version: str = "") -> Agent:
    """Return a version of an agent of the caller's tenant, or its newest."""
    found = await registry.agent(caller.tenant, name, version)
    if found is None:
        raise NoSuchThing("agent", name)
    return found


async def conversation(lookups: Lookups, caller: Caller, conversation_id: str) -> Conversation:
    """Return a conversation that the caller may see."""
    found = await lookups.conversation(access.viewer(caller), conversation_id)
    if found is None:
        raise NoSuchThing("conversation", conversation_id)
    return found


async def turn(lookups: Lookups, caller: Caller, turn_id: str) -> Turn:
    """Return a turn that the caller may see."""
    found = await lookups.turn(access.viewer(caller), turn_id)
    if found is None:
        raise NoSuchThing("turn", turn_id)
    return found


async def approval(lookups: Lookups, caller: Caller, approval_id: str) -> Approval:
    """Return an approval that the caller may see."""
    found = await lookups.approval(access.viewer(caller), approval_id)
    if found is None:
        raise NoSuchThing("approval", approval_id)
    return found
