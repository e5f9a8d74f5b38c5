"""Agents as registered, and the tools that a task's model is shown (`runtime.md` R1).

A turn keeps to the version that it started with; a task keeps to the tools that it was shown, so that a deploy changes
nothing of what was done (R6.2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from runtime_service.domain.canonical_json import encode
from runtime_service.domain.effects import AgentMakeup, Declaration, Effects
from runtime_service.domain.length_prefix import lp
from runtime_service.domain.plain import to_plain
from runtime_service.domain.rules import Setting

TEXT_SCHEMA = (
    '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}'
)


@dataclass(frozen=True, slots=True)
class HostedLoop:
    """The runtime runs the agent's loop."""

    model: str


@dataclass(frozen=True, slots=True)
class CallerProgram:
    """A caller runs it."""

    effects: Effects


@dataclass(frozen=True, slots=True)
class Skill:
    """Something an agent can be asked to do."""

    name: str = ""
    description: str = ""
    version: str = ""
    input_schema_json: str = ""
    output_schema_json: str = ""


@dataclass(frozen=True, slots=True)
class HostTool:
    """A tool of a host, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class AgentTool:
    """Another agent, as a tool."""

    name: str


@dataclass(frozen=True, slots=True)
class DelegateTool:
    """Another agent that remembers."""

    name: str


@dataclass(frozen=True, slots=True)
class McpServerTools:
    """Every tool of an MCP server."""

    name: str


ToolUse = HostTool | AgentTool | DelegateTool | McpServerTools


@dataclass(frozen=True, slots=True)
class Limits:
    """The most one turn may take. 0: the service's default."""

    model_requests: int = 0
    output_tokens: int = 0
    cost_micro_usd: int = 0
    depth: int = 0


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """What an agent is."""

    name: str
    purpose: str
    runs: HostedLoop | CallerProgram
    skills: tuple[Skill, ...] = ()
    tools: tuple[ToolUse, ...] = ()
    approve: Setting | None = None
    limits: Limits = field(default_factory=Limits)
    suggests_instructions: bool = False

    @property
    def version(self) -> str:
        """SHA-256, in hex, of its canonical form: the same spec has the same version."""
        return hashlib.sha256(encode(to_plain(self)).encode()).hexdigest()

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that it uses as tools, by name."""
        return tuple(tool.name for tool in self.tools if isinstance(tool, AgentTool | DelegateTool))

    def skill(self, name: str) -> Skill | None:
        """Return a skill by its name; without a name, the only one."""
        if not name:
            return (self.skills or (Skill(),))[0] if len(self.skills) <= 1 else None
        return next((skill for skill in self.skills if skill.name == name), None)


@dataclass(frozen=True, slots=True)
class Agent:
    """One version of an agent, as registered."""

    tenant: str
    spec: AgentSpec
    version: str
    create_time: datetime


@dataclass(frozen=True, slots=True)
class Shown:
    """A tool as a task's model is shown it: a host's, or with `agent` another agent's skill."""

    declaration: Declaration
    agent: str = ""
    # The version that its calls run, for as long as the task lasts: a deploy changes nothing of it.
    agent_version: str = ""
    skill: str = ""
    # Its calls remember those before them (R9).
    delegate: bool = False


def tools_hash(tools: Sequence[Shown]) -> str:
    """Hash what a task's model is shown, in its order, with its words (R6.2): docs/fingerprints.md."""
    each = (
        lp(one.declaration.hash, one.declaration.description, one.agent, one.agent_version, one.skill)
        + (lp("delegate") if one.delegate else b"")
        for one in tools
    )
    return hashlib.sha256(b"tutelage.tools.v1\0" + b"".join(each)).hexdigest()


def skill_tools(spec: AgentSpec, effects: Effects, *, delegate: bool) -> list[Shown]:
    """Return an agent's skills as tools (R1.5)."""
    return [
        Shown(
            Declaration(
                name=f"{spec.name}.{skill.name}" if skill.name else spec.name,
                description="\n".join(text for text in (spec.purpose, skill.description) if text),
                input_schema_json=skill.input_schema_json or TEXT_SCHEMA,
                effects=effects,
                timeout_seconds=None,
            ),
            agent=spec.name,
            agent_version=spec.version,
            skill=skill.name,
            delegate=delegate,
        )
        for skill in (spec.skills or (Skill(),))
    ]


def makeup(spec: AgentSpec, effects_of: Callable[[str], Effects]) -> AgentMakeup:
    """Return what an agent's effects as a tool follow from (R1.2). What an MCP server's tools do is not known here."""
    if isinstance(spec.runs, CallerProgram):
        return AgentMakeup(program=spec.runs.effects)
    return AgentMakeup(
        tools=tuple(
            Effects.UNSPECIFIED if isinstance(tool, McpServerTools) else effects_of(tool.name)
            for tool in spec.tools
            if isinstance(tool, HostTool | McpServerTools)
        ),
        agents=spec.agents,
    )


def circle(spec: AgentSpec, others: Mapping[str, AgentSpec]) -> tuple[str, ...]:
    """Return the names by which an agent would come to use itself, its own first and last; empty where it does not."""
    ways: list[tuple[str, ...]] = [(spec.name, name) for name in spec.agents]
    seen: set[str] = set()
    for way in ways:
        last = way[-1]
        if last == spec.name:
            return way
        if last in others and last not in seen:
            seen.add(last)
            ways += [(*way, name) for name in others[last].agents]
    return ()
