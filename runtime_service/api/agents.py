"""`AgentService`."""

from __future__ import annotations

from typing import Any

from tutelage.runtime.v1 import agents_pb2, agents_pb2_grpc

from runtime_service.api import from_proto, seeing, to_proto
from runtime_service.api.checks import Fields
from runtime_service.api.lookups import Registry
from runtime_service.api.requests import repeatable
from runtime_service.domain.agents import AgentSpec, HostedLoop
from runtime_service.engine.models import Models
from service_kit.identity import current_caller
from service_kit.paging import PageCodec, page, page_size


class AgentService(agents_pb2_grpc.AgentServiceServicer):
    """The agents that turns run."""

    def __init__(self, registry: Registry, models: Models) -> None:
        self._registry = registry
        self._models = models

    async def PutAgent(self, request: agents_pb2.PutAgentRequest, context: Any) -> agents_pb2.PutAgentResponse:
        caller = current_caller()
        fields = Fields()
        spec = from_proto.agent_spec(request.spec, fields)
        fields.request_id(request.request_id)
        await self._check_model(spec, fields)
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
        if isinstance(spec.runs, HostedLoop) and (wrong := await self._models.check(spec.runs.model)):
            fields.refuse("spec.hosted.model", wrong)
