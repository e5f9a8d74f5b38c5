"""A provider on loopback, the real service in this process that asks it, and a host with the book's tools."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tutelage.runtime.v1 import agents_pb2

from tests.providers.wire import Wire
from tests.services.conftest import book, host, idle_service, nothing_blocks, service, sound  # noqa: F401
from tests.services.service import NOTHING_ASKED, Service

WIRES = ("openai-chat:gpt-4o", "openai:gpt-4o", "anthropic:claude-sonnet-5")


@pytest.fixture
async def wire(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wire]:
    """A provider that answers what the test put in. Every OpenAI and Anthropic model is asked here."""
    wire = Wire()
    async with wire.serving():
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{wire.port}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{wire.port}")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-anthropic")
        yield wire


@pytest.fixture(params=WIRES)
def model(request: pytest.FixtureRequest) -> str:
    """A model of each wire format."""
    return str(request.param)


async def gardener(
    service: Service,  # noqa: F811
    model: str,
    *tools: str,
    agents: tuple[str, ...] = (),
    **spec: object,
) -> None:
    """Register an agent of a real model that asks nobody."""
    uses = [agents_pb2.ToolUse(tool=tool) for tool in tools] + [agents_pb2.ToolUse(agent=agent) for agent in agents]
    hosted = agents_pb2.HostedLoop(model=model)
    spec = {"purpose": "You keep the garden's notes.", "approve": NOTHING_ASKED} | spec
    agent = agents_pb2.AgentSpec(name="gardener", hosted=hosted, tools=uses, **spec)  # type: ignore[arg-type]
    await service["ana"].agents.PutAgent(agents_pb2.PutAgentRequest(spec=agent))
