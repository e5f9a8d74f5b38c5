"""`AgentService`."""

from __future__ import annotations

import asyncio
from typing import Any

from tutelage.runtime.v1 import agents_pb2, agents_pb2_grpc

from runtime_service.api import from_proto, seeing, to_proto
from runtime_service.api.checks import Fields
from runtime_service.api.lookups import Registry
from runtime_service.api.requests import repeatable
from runtime_service.domain.agents import AgentSpec, AgentTool, DelegateTool, HostedLoop, circle
from runtime_service.engine.models import PRICE_UNKNOWN, Models
from runtime_service.engine.toolbox import agents_below
from service_kit.identity import current_caller
from service_kit.paging import PageCodec, page, page_size


class AgentService(agents_pb2_grpc.AgentServiceServicer):
    """The agents that turns run."""

    def __init__(self, registry: Registry, models: Models) -> None:
        self._registry = registry
        self._models = models
        self._putting = asyncio.Lock()

    async def PutAgent(self, request: agents_pb2.PutAgentRequest, context: Any) -> agents_pb2.PutAgentResponse:
        caller = current_caller()
        fields = Fields()
        spec = from_proto.agent_spec(request.spec, fields)
        fields.request_id(request.request_id)
        await self._check_model(spec, fields)
        # One after the other: two that are put at once do not close a circle unseen.
        async with self._putting:
            await self._check_circle(caller.tenant, spec, fields)
            fields.done()
            agent = await self._registry.put_agent(caller.tenant, spec, repeatable(caller, "PutAgent", request))
        return agents_pb2.PutAgentResponse(agent=to_proto.agent(agent))

    async def GetAgent(self, request: agents_pb2.GetAgentRequest, context: Any) -> agents_pb2.GetAgentResponse:
        agent = await seeing.agent(self._registry, current_caller(), request.name, request.version)
        return agents_pb2.GetAgentResponse(agent=to_proto.agent(agent))

    async def ListAgents(self, request: agents_pb2.ListAgentsRequest, context: Any) -> agents_pb2.ListAgentsResponse:
        most = page_size(request.page_size)
        after = PageCodec.decode("agents", request.page_token)
        found = await self._registry.agents(current_caller().tenant, str(after or ""), most)
        agents, token = page(found, most, "agents", to_proto.agent, lambda one: one.spec.name)
        return agents_pb2.ListAgentsResponse(agents=agents, next_page_token=token)

    async def _check_model(self, spec: AgentSpec, fields: Fields) -> None:
        if not isinstance(spec.runs, HostedLoop):
            return
        model = spec.runs.model
        if wrong := await self._models.check(model):
            fields.refuse("spec.hosted.model", wrong)
        elif spec.limits.cost_micro_usd and not await self._models.priced(model):
            fields.refuse("spec.limits.cost_micro_usd", f"This cannot be kept to with {model}: {PRICE_UNKNOWN}")

    async def _check_circle(self, tenant: str, spec: AgentSpec, fields: Fields) -> None:
        """Refuse an agent that would come to use itself, by the newest version of each on the way."""
        way = circle(spec, await agents_below(self._registry, tenant, spec))
        for place, use in enumerate(spec.tools):
            if way and isinstance(use, AgentTool | DelegateTool) and use.name == way[1]:
                kind = "agent" if isinstance(use, AgentTool) else "delegate"
                fields.refuse(f"spec.tools[{place}].{kind}", f"This closes a circle of agents: {' -> '.join(way)}.")
