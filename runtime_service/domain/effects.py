"""What tools do to the world, and what was declared of them.

Forgetting to declare is safe: whatever is not known to read counts as changing things (R1.1). A
declaration's hash is what a yes is bound to; description and time-out do not enter it (R1.4).
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from runtime_service.domain import canonical_json
from runtime_service.domain.length_prefix import lp


class Effects(enum.Enum):
    """What a tool does to the world, as declared."""

    UNSPECIFIED = "UNSPECIFIED"
    READS = "READS"
    CHANGES = "CHANGES"

    @property
    def changes(self) -> bool:
        """It changes things, or says nothing."""
        return self is not Effects.READS


@dataclass(frozen=True, slots=True)
class Declaration:
    """A tool as its host declares it. `timeout_seconds` of None: the service's default."""

    name: str
    description: str
    input_schema_json: str
    effects: Effects
    timeout_seconds: float | None = None

    @property
    def hash(self) -> str:
        """The declaration's hash, in hex. Raises `JsonProblem` where the schema is not JSON."""
        return declaration_hash(self.name, self.input_schema_json, self.effects)


@lru_cache(maxsize=4096)
def declaration_hash(name: str, input_schema_json: str, effects: Effects) -> str:
    """Hash what a yes covers of a tool: docs/fingerprints.md. A program's tool has an empty schema."""
    schema = canonical_json.canonical(input_schema_json) if input_schema_json else ""
    return sha256(b"tutelage.declaration.v1\0" + lp(name, schema, effects.value)).hexdigest()


@dataclass(frozen=True, slots=True)
class AgentMakeup:
    """What an agent's effects follow from: what its program declares, or what a hosted loop may call."""

    program: Effects | None = None
    tools: tuple[Effects, ...] = ()
    agents: tuple[str, ...] = ()


def agent_tool_effects(agents: Mapping[str, AgentMakeup]) -> dict[str, Effects]:
    """Say what each agent does to the world when another uses it as a tool (R1.2).

    A hosted one reads, unless something that it may call at any depth does not. Agents that use each other
    in a circle read if nothing in the circle changes things. One that is not among `agents` counts as
    changing.
    """
    found = {name: Effects.READS if makeup.program is None else makeup.program for name, makeup in agents.items()}
    unsettled = True
    while unsettled:
        unsettled = False
        for name, makeup in agents.items():
            if makeup.program is not None or found[name].changes:
                continue
            used = (found.get(agent, Effects.UNSPECIFIED) for agent in makeup.agents)
            if any(each.changes for each in (*makeup.tools, *used)):
                found[name] = Effects.CHANGES
                unsettled = True
    return found
