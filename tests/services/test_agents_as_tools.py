"""Agents that use each other as tools: by which names, how deep, and never in a circle (R1.2, R1.5, A2)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from tutelage import TutelageError
from tutelage.runtime.v1 import agents_pb2, turns_pb2

from runtime_service.domain.agents import AgentSpec, AgentTool, HostedLoop
from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, NOTHING_ASKED, Service, calls, refusal

DONE = {"say": "Done."}


async def refused(service: Service, name: str, *agents: str, **spec: Any) -> TutelageError:
    return await refusal(service.agent(name, DONE, agents=agents, **spec))


@pytest.mark.parametrize(
    ("registered", "closes", "told"),
    [
        ([], ("a", "a"), "a -> a"),
        ([("b", "a")], ("a", "b"), "a -> b -> a"),
        ([("b", "c"), ("c", "d", "a")], ("a", "e", "b"), "a -> b -> c -> a"),
        # By a new version: it used nobody before.
        ([("a", "b"), ("b", "c"), ("c",)], ("c", "a"), "c -> a -> b -> c"),
    ],
)
async def test_a_circle_of_agents_is_refused_by_name(
    service: Service, registered: list[tuple[str, ...]], closes: tuple[str, ...], told: str
) -> None:
    """Whoever closes it is told the way round; nothing is written."""
    for name, *below in registered:
        await service.agent(name, DONE, agents=below)
    before = len(await listed(service))

    error = await refused(service, *closes)

    place = len(closes) - 2
    assert error.reason == "INVALID_FIELD"
    assert error.fields == ((f"spec.tools[{place}].agent", f"This closes a circle of agents: {told}."),)
    assert len(await listed(service)) == before


async def test_a_circle_through_a_delegate_is_refused_as_well(service: Service) -> None:
    """A delegate is an agent as a tool (A3): whichever of those on the way is one."""
    await service.agent("a", DONE, delegates=["b"])

    with pytest.raises(TutelageError) as raised:
        await service.agent("b", DONE, tools=["look"], delegates=["a"])

    assert raised.value.fields == (("spec.tools[1].delegate", "This closes a circle of agents: b -> a -> b."),)
    assert [agent.spec.name for agent in await listed(service)] == ["a"]


async def test_of_two_that_close_a_circle_at_once_one_is_refused(service: Service) -> None:
    """Whichever comes second."""
    puts = [service.agent("a", DONE, agents=["b"]), service.agent("b", DONE, agents=["a"])]

    ended = await asyncio.gather(*puts, return_exceptions=True)

    [problem] = [one for one in ended if isinstance(one, BaseException)]
    assert isinstance(problem, TutelageError)
    assert "circle" in str(problem)
    assert len(await listed(service)) == 1


async def test_what_is_no_circle_any_more_is_taken(service: Service) -> None:
    """The newest version of each counts: an older one that still runs closes nothing. Two ways to one agent do not."""
    await service.agent("a", DONE, agents=["b"])
    await refused(service, "b", "a")
    await service.agent("a", DONE)

    await service.agent("b", DONE, agents=["a"])
    await service.agent("c", DONE, agents=["a", "b"])

    assert {agent.spec.name for agent in await listed(service)} == {"a", "b", "c"}


async def test_a_circle_that_was_registered_before_ends_at_the_depth_limit(service: Service) -> None:
    """One in an older database: it is shown and runs, reads where nothing in it changes things, and fails (R1.2)."""
    await service.agent("a", calls(("b", {"input": "Go."})), agents=["b"], limits=agents_pb2.Limits(depth=3))
    await service.agent("b", calls(("a", {"input": "Go."})), agents=["later"])
    version = AgentSpec("b", "", HostedLoop("scripted:b"), tools=(AgentTool("a"),)).version
    change = f"spec = replace(spec, '\"later\"', '\"a\"'), version = '{version}'"
    with closing(sqlite3.connect(service.folder / "runtime.db")) as database:
        database.execute(f"update agents set {change} where name = 'b'")
        database.commit()

    turn = await service.ended(await service.asked_of("a", approve=CHANGES_ASKED))

    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert "a limit of its agent a: at most 3 agents below each other, and it came to 4." in turn.cause
    assert [receipt.path for receipt in turn.receipts] == ["a", "a/b", "a/b/a", "a/b/a/b"]


async def listed(service: Service) -> list[agents_pb2.Agent]:
    return list((await service["ana"].agents.ListAgents(agents_pb2.ListAgentsRequest())).agents)


async def test_three_deep_by_agent_and_by_skill_and_the_innermost_tool_asks(
    service: Service, book: Book, host: None
) -> None:
    """One tool a skill, `agent` or `agent.skill`, each with its input; the question says where (A2, R1.5, R2.2)."""
    skills = [agents_pb2.Skill(name="dig", description="Dig."), agents_pb2.Skill(name="sow", description="Sow.")]
    write = calls(("write_note", {"name": "spring", "text": "tulips"}))
    await service.agent("hand", write, {"say": "Sown."}, tools=["write_note"], skills=skills, purpose="You work.")
    await service.agent("gardener", calls(("hand.sow", {"input": "Tulips."})), {"say": "Seen to."}, agents=["hand"])
    await service.agent(
        "steward", calls(("gardener", {"input": "The beds."})), {"say": "It is so."}, agents=["gardener"]
    )
    await service.agent(
        "owner", calls(("steward", {"input": "See to it."})), DONE, agents=["steward"], approve=NOTHING_ASKED
    )
    conversation = await service.conversation("owner", CHANGES_ASKED)
    turn_id = (await service.turn(conversation)).id

    paths = []
    for _ in range(4):
        asked = await service.question(turn_id)
        paths.append(asked.path)
        await service.restart()
        await service.yes(asked)
    turn = await service.ended(turn_id)

    assert paths == [
        "owner/steward",
        "owner/steward/gardener",
        "owner/steward/gardener/hand.sow",
        "owner/steward/gardener/hand.sow/write_note",
    ]
    assert turn.output == "Done."
    assert len(book.runs("write_note")) == 1
    assert service.paid("gardener")[0]["tools"] == ["hand.dig", "hand.sow"]
    assert service.paid("hand")[0]["system"] == "You work.\n\nSow."
    assert [len(service.paid(name)) for name in ("owner", "steward", "gardener", "hand")] == [2, 2, 2, 2]
    assert [one["messages"][0]["text"] for one in service.paid("hand")] == ["Tulips.", "Tulips."]
    assert [receipt.skill for receipt in turn.receipts] == ["", "", "", "sow"]
