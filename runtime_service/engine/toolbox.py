"""What a task's model may call, behind one face: hosts' tools, and other agents as tools (`runtime.md` R1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from runtime_service.domain.agents import (
    Agent,
    AgentSpec,
    AgentTool,
    DelegateTool,
    HostedLoop,
    HostTool,
    Shown,
    makeup,
    skill_tools,
)
from runtime_service.domain.effects import AgentMakeup, Declaration, Effects, agent_tool_effects
from runtime_service.engine.hosts import Hosts


class Registered(Protocol):
    """The agents that were registered."""

    async def agent(self, tenant: str, name: str, version: str = "") -> Agent | None:
        """Return a version of an agent, or its newest."""
        ...


class Catalogue(Registered, Protocol):
    """The store's side: what was registered and declared."""

    async def newest_declarations(self, tenant: str, names: Collection[str]) -> Mapping[str, Declaration]:
        """Return the newest declaration of each of these names that anybody in the tenant ever declared."""
        ...

    async def declaration(self, tenant: str, name: str, declaration_hash: str) -> Declaration | None:
        """Return the declaration of that hash."""
        ...

    async def tools(self, tenant: str, tools_hash: str) -> tuple[Shown, ...]:
        """Return the tools that a task was shown, as kept when it began."""
        ...


class Toolbox:
    """What models may call."""

    def __init__(self, catalogue: Catalogue, hosts: Hosts) -> None:
        self._catalogue = catalogue
        self._hosts = hosts

    async def for_new_task(self, tenant: str, spec: AgentSpec) -> tuple[Shown, ...]:
        """Return what a new task's model is shown: the newest declarations. What nobody ever declared is not shown."""
        names = [use.name for use in spec.tools if isinstance(use, HostTool)]
        declared = await self._catalogue.newest_declarations(tenant, names)
        agents = await agents_below(self._catalogue, tenant, spec)
        effects = await self._effects(tenant, agents)
        shown: list[Shown] = []
        for use in spec.tools:
            match use:
                case HostTool(name) if name in declared:
                    shown.append(Shown(declared[name]))
                case AgentTool(name) | DelegateTool(name) if name in agents:
                    delegate = isinstance(use, DelegateTool)
                    shown += skill_tools(agents[name], effects[name], delegate=delegate)
                case _:
                    pass
        # A model calls by name: of two with one name the first that the agent lists is shown.
        return tuple({one.declaration.name: one for one in reversed(shown)}.values())[::-1]

    async def kept(self, tenant: str, tools_hash: str) -> tuple[Shown, ...]:
        """Return what a task was shown when it began (R6.2)."""
        return await self._catalogue.tools(tenant, tools_hash)

    async def declaration(self, tenant: str, name: str, declaration_hash: str) -> Declaration | None:
        """Return a declaration that a call was asked about under."""
        return await self._catalogue.declaration(tenant, name, declaration_hash)

    def effects_now(self, tenant: str, shown: Shown) -> Effects:
        """Return what a tool does to the world: it changes things if any connected host says so (R1.4)."""
        declared = shown.declaration.effects
        if shown.agent or declared.changes:
            return declared
        others = self._hosts.offers(tenant, shown.declaration.name)
        return next((other.effects for other in others if other.effects.changes), declared)

    async def _effects(self, tenant: str, agents: Mapping[str, AgentSpec]) -> Mapping[str, Effects]:
        names = {use.name for spec in agents.values() for use in spec.tools if isinstance(use, HostTool)}
        declared = await self._catalogue.newest_declarations(tenant, names)

        def effects_of(name: str) -> Effects:
            if name not in declared:
                return Effects.UNSPECIFIED
            return self.effects_now(tenant, Shown(declared[name]))

        makeups: dict[str, AgentMakeup] = {name: makeup(spec, effects_of) for name, spec in agents.items()}
        return agent_tool_effects(makeups)


async def agents_below(registered: Registered, tenant: str, spec: AgentSpec) -> dict[str, AgentSpec]:
    """Return every agent that this one reaches, at its newest version, each once, whatever circles they make."""
    found: dict[str, AgentSpec] = {}
    to_see = list(spec.agents)
    while to_see:
        name = to_see.pop()
        agent = None if name in found else await registered.agent(tenant, name)
        if agent is not None and isinstance(agent.spec.runs, HostedLoop):
            found[name] = agent.spec
            to_see += agent.spec.agents
    return found
