"""What tools do to the world: runtime.md R1; features A1, A2, D1."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_service.domain.canonical_json import JsonProblem
from runtime_service.domain.effects import (
    AgentMakeup,
    Declaration,
    Effects,
    agent_tool_effects,
    declaration_hash,
)

REFUND = Declaration("refund", "Pays back.", '{"type":"object","minimum":1.0}', Effects.CHANGES, 30)

some_effects = st.sampled_from(Effects)
agent_names = st.sampled_from("abcdef")
makeups = st.builds(
    AgentMakeup,
    program=st.none() | some_effects,
    tools=st.lists(st.just(Effects.READS) | some_effects, max_size=2).map(tuple),
    agents=st.lists(agent_names, max_size=3).map(tuple),
)


@pytest.mark.parametrize(
    ("effects", "changes"),
    [(Effects.READS, False), (Effects.CHANGES, True), (Effects.UNSPECIFIED, True)],
)
def test_what_is_not_declared_counts_as_changing_things(effects: Effects, changes: bool) -> None:
    """A1."""
    assert effects.changes is changes


@pytest.mark.parametrize(
    "other",
    [
        replace(REFUND, name="refunds"),
        replace(REFUND, input_schema_json='{"type":"object","minimum":2}'),
        replace(REFUND, effects=Effects.READS),
        replace(REFUND, effects=Effects.UNSPECIFIED),
    ],
)
def test_another_name_schema_or_effect_is_another_declaration(other: Declaration) -> None:
    """D1, R1.4."""
    assert other.hash != REFUND.hash


@pytest.mark.parametrize(
    "other",
    [
        replace(REFUND, description="Pays money back."),
        replace(REFUND, timeout_seconds=None),
        replace(REFUND, input_schema_json='{ "minimum": 1, "type": "object" }'),
    ],
)
def test_a_description_a_time_out_and_how_the_schema_is_written_change_nothing(other: Declaration) -> None:
    """D1, R1.4, scenario 24f."""
    assert other.hash == REFUND.hash


def test_a_schema_that_is_not_json_has_no_hash() -> None:
    with pytest.raises(JsonProblem):
        _ = replace(REFUND, input_schema_json="{").hash


def test_a_programs_tool_is_hashed_without_a_schema() -> None:
    """R3.5: over name and effects."""
    assert declaration_hash("refund", "", Effects.CHANGES) != REFUND.hash


def test_a_hosted_agent_reads_until_a_tool_of_its_own_changes_something_at_any_depth() -> None:
    """A2."""
    agents = {
        "desk": AgentMakeup(tools=(Effects.READS,), agents=("clerk",)),
        "clerk": AgentMakeup(agents=("till",)),
        "till": AgentMakeup(tools=(Effects.READS,)),
    }
    assert set(agent_tool_effects(agents).values()) == {Effects.READS}
    agents["till"] = AgentMakeup(tools=(Effects.READS, Effects.UNSPECIFIED))
    assert set(agent_tool_effects(agents).values()) == {Effects.CHANGES}


def test_agents_in_a_circle_read_where_nothing_in_it_changes_things() -> None:
    """A2: a fixed point, not a walk without end."""
    circle = {"a": AgentMakeup(agents=("b",)), "b": AgentMakeup(agents=("a",))}
    assert agent_tool_effects(circle) == {"a": Effects.READS, "b": Effects.READS}


def test_a_program_has_the_effects_it_declares_whatever_it_uses() -> None:
    """A2."""
    agents = {
        "reads": AgentMakeup(program=Effects.READS),
        "silent": AgentMakeup(program=Effects.UNSPECIFIED),
        "uses_reads": AgentMakeup(agents=("reads",)),
        "uses_silent": AgentMakeup(agents=("silent",)),
        "uses_a_stranger": AgentMakeup(agents=("nobody",)),
    }
    assert {name: effects.changes for name, effects in agent_tool_effects(agents).items()} == {
        "reads": False,
        "silent": True,
        "uses_reads": False,
        "uses_silent": True,
        "uses_a_stranger": True,
    }


@given(st.dictionaries(agent_names, makeups))
def test_an_agent_changes_things_where_it_can_reach_something_that_does(
    agents: dict[str, AgentMakeup],
) -> None:
    """A2: against a plain walk over everything that an agent can reach."""

    def reaches_change(name: str, seen: frozenset[str]) -> bool:
        if name not in agents:
            return True
        makeup = agents[name]
        if makeup.program is not None:
            return makeup.program is not Effects.READS
        if any(tool is not Effects.READS for tool in makeup.tools):
            return True
        return any(reaches_change(used, seen | {name}) for used in makeup.agents if used not in seen)

    found = agent_tool_effects(agents)
    assert {name: effects.changes for name, effects in found.items()} == {
        name: reaches_change(name, frozenset({name})) for name in agents
    }
