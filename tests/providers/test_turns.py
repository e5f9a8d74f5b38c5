"""Turns on real wire formats, through the running service: what is said, what is heard, what it cost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tutelage.runtime.v1 import agents_pb2, journal_pb2, turns_pb2

from tests.providers.conftest import gardener
from tests.providers.wire import Arrived, Call, Says, Status, Wire
from tests.services.book import Book
from tests.services.service import Service, refusal

pytestmark = pytest.mark.usefixtures("host")

READ = Call("call_a", "read_note", ('{"na', 'me": "tulips"}'))
WRITE = Call("call_w", "write_note", ('{"name": "spring", "text": "Dig."}',))
READ_TOO = Call("call_b", "read_note", ('{"name":', ' "spring" }'))


def system(arrived: Arrived) -> str:
    """The system prompt of a request, in whatever form it came."""
    body = arrived.body
    if "system" in body:
        return body["system"] if isinstance(body["system"], str) else "\n\n".join(one["text"] for one in body["system"])
    said = body.get("messages") or body.get("input") or []
    parts = [one["content"] for one in said if one.get("role") in ("system", "developer")]
    return "\n\n".join([*filter(None, [body.get("instructions")]), *parts])


def results(arrived: Arrived) -> list[tuple[str, str]]:
    """The results of calls in a request, by the model's own ids."""
    body, found = arrived.body, []
    for one in body.get("messages") or body.get("input") or []:
        if one.get("role") == "tool":
            found.append((one["tool_call_id"], one["content"]))
        elif one.get("type") == "function_call_output":
            found.append((one["call_id"], one["output"]))
        elif isinstance(one.get("content"), list):
            found += [(b["tool_use_id"], _text(b["content"])) for b in one["content"] if b["type"] == "tool_result"]
    return found


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


async def replies(service: Service, turn_id: str) -> list[journal_pb2.ModelReplied]:
    return [one.model_replied for one in await service.records(turn_id) if one.HasField("model_replied")]


async def test_a_turn_with_calls_side_by_side(service: Service, wire: Wire, book: Book, model: str) -> None:
    """Each result goes back under the id of its call, in the order of the reply (C5, A17, R4)."""
    wire.answers += [Says(("I ", "look."), (READ, READ_TOO)), Says(("Water ", "both."))]
    await gardener(service, model, "read_note")

    turn = await service.ended(await service.asked_of("gardener", "What do they need?"))

    assert turn.output == "Water both.", turn.cause
    assert len(wire.arrived) == 2
    assert {run["input"]["name"] for run in book.runs()} == {"tulips", "spring"}
    told = [("call_a", "tulips: water on Mondays"), ("call_b", "spring: water on Mondays")]
    assert results(wire.arrived[1]) == told
    first, last = await replies(service, turn.id)
    assert first.text == "I look."
    # To the letter, with every space.
    assert [call.input_json for call in first.calls] == ['{"name": "tulips"}', '{"name": "spring" }']
    assert not last.calls


async def test_what_is_sent(service: Service, wire: Wire, model: str) -> None:
    """The system prompt's parts in their order, earlier turns, the tools as their host wrote them (R9)."""
    wire.answers += [Says(("First.",)), Says(("Second.",))]
    await gardener(service, model, "read_note")
    conversation = await service.conversation("gardener")

    await service.ended((await service.turn(conversation, "One?")).id)
    await service.ended((await service.turn(conversation, "Two?")).id)

    body = json.dumps(wire.arrived[1].body)
    assert system(wire.arrived[1]).startswith("You keep the garden's notes.")
    assert body.index("One?") < body.index("First.") < body.index("Two?")
    assert "Second." not in body
    [tool] = wire.arrived[1].body["tools"]
    tool = tool.get("function", tool)
    assert tool["name"] == "read_note"
    assert tool["description"] == "Read a note."
    schema = tool.get("parameters") or tool["input_schema"]
    assert schema["properties"] == {"name": {"type": "string"}}
    assert wire.arrived[1].body["stream"] is True
    key = "key-of-anthropic" if model.startswith("anthropic") else "key-of-openai"
    assert wire.arrived[1].headers["authorization"] == f"Bearer {key}"


async def test_what_a_turn_cost(service: Service, wire: Wire, model: str) -> None:
    """Tokens as the provider counts them, money by genai-prices in millionths of a dollar (C5)."""
    wire.answers += [Says((), (READ,), tokens=(1_000_000, 0)), Says(("Done.",), tokens=(0, 1_000_000))]
    await gardener(service, model, "read_note")

    turn = await service.ended(await service.asked_of("gardener"))

    assert (turn.usage.model_requests, turn.usage.input_tokens, turn.usage.output_tokens) == (2, 10**6, 10**6)
    # Dollars for a million tokens read, and for one written. Prices change; that they are not nothing does not.
    read, written = [one.cost_micro_usd for one in await replies(service, turn.id)]
    assert 100_000 < read < written < 10**8
    assert turn.usage.cost_micro_usd == read + written


async def test_a_limit_in_money_ends_the_turn_before_another_request(service: Service, wire: Wire, model: str) -> None:
    """By genai-prices, through a restart; the cause names limit, figure and agent (C5)."""
    wire.answers += [Says((), (WRITE,), tokens=(1_000, 1_000)), Says((), (READ,), tokens=(1_000_000, 1))]
    limits = agents_pb2.Limits(cost_micro_usd=100_000)
    await gardener(service, model, "read_note", "write_note", approve=None, limits=limits)
    turn_id = await service.asked_of("gardener")
    asked = await service.question(turn_id)
    await service.restart()

    await service.yes(asked, by="hale")
    turn = await service.ended(turn_id)

    first, last = await replies(service, turn_id)
    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert f"gardener: at most 100000 millionths of a dollar, and it came to {turn.usage.cost_micro_usd}." in turn.cause
    assert 0 < first.cost_micro_usd < 100_000 < turn.usage.cost_micro_usd == first.cost_micro_usd + last.cost_micro_usd
    assert len(wire.arrived) == turn.usage.model_requests == 2


async def test_under_a_limit_in_money_no_model_without_a_price_is_asked(service: Service, wire: Wire) -> None:
    """Refused as it is put; an agent below with such a model is not asked, and its caller is told why (C5)."""
    wire.answers += [Says((), (Call("call_a", "helper", ('{"input": "Help."}',)),)), Says(("Without.",))]
    limits = agents_pb2.Limits(cost_micro_usd=1_000_000)
    unpriced = agents_pb2.AgentSpec(name="helper", hosted=agents_pb2.HostedLoop(model="openai-chat:my-own-model"))
    limited = agents_pb2.AgentSpec(name="mine", hosted=unpriced.hosted, limits=limits)
    await service["ana"].agents.PutAgent(agents_pb2.PutAgentRequest(spec=unpriced))

    refused = await refusal(service["ana"].agents.PutAgent(agents_pb2.PutAgentRequest(spec=limited)))
    await gardener(service, "openai-chat:gpt-4o", agents=("helper",), limits=limits)
    turn = await service.ended(await service.asked_of("gardener"))

    assert [path for path, _ in refused.fields] == ["spec.limits.cost_micro_usd"]
    assert "nobody knows its price" in str(refused)
    assert (turn.output, len(wire.arrived)) == ("Without.", 2)
    [(_, told)] = results(wire.arrived[1])
    assert told.startswith("The model openai-chat:my-own-model gave no reply: nobody knows its price")


async def test_a_model_that_nobody_knows_the_price_of(service: Service, wire: Wire) -> None:
    """OPENAI_BASE_URL serves any server that speaks it; what nobody prices costs 0 (C5)."""
    wire.answers += [Says(("Done.",))]
    await gardener(service, "openai-chat:my-own-model")

    turn = await service.ended(await service.asked_of("gardener"))

    assert turn.output == "Done."
    assert wire.arrived[0].body["model"] == "my-own-model"
    assert turn.usage.output_tokens == 100
    assert turn.usage.cost_micro_usd == 0


async def test_what_is_handed_back_is_held_to_its_schema(service: Service, wire: Wire, model: str) -> None:
    """The schema is in the system prompt; what does not fit is told as a message of the user's (C5, R4)."""
    schema = '{"type":"object","required":["litres"]}'
    wire.answers += [Says(("{}",), thought="None?"), Says(('{"litres"', ": 3}"))]
    await gardener(service, model, skills=[agents_pb2.Skill(name="water", output_schema_json=schema)])

    turn = await service.ended(await service.asked_of("gardener", "How much?"))

    assert turn.output == '{"litres": 3}', turn.cause
    assert all(system(one).rstrip().endswith(schema) for one in wire.arrived)
    said = wire.arrived[1].body.get("messages") or wire.arrived[1].body["input"]
    assert (said[-2]["role"], said[-1]["role"]) == ("assistant", "user")
    assert "What you handed back does not fit:" in json.dumps(said[-1])
    assert "litres" in json.dumps(said[-1])


async def test_a_tool_that_there_is_not(service: Service, wire: Wire, book: Book, model: str) -> None:
    """The model is told, and goes on (settled 6)."""
    wire.answers += [Says((), (Call("call_a", "dig.deep", ("{}",)), READ)), Says(("Without.",))]
    await gardener(service, model, "read_note")

    turn = await service.ended(await service.asked_of("gardener"))

    assert turn.output == "Without."
    assert results(wire.arrived[1])[0] == ("call_a", "There is no tool of this name.")
    assert len(book.runs()) == 1
    assert (await replies(service, turn.id))[0].calls[0].tool == "dig.deep"


@pytest.mark.parametrize("written", ['{"name": ', "tulips", '["tulips"]', '{"name": "a", "name": "b"}'])
async def test_arguments_that_are_no_input(service: Service, wire: Wire, book: Book, model: str, written: str) -> None:
    """Kept to the letter; the model is told what is wrong and tries again (R4, settled 9)."""
    wire.answers += [Says((), (Call("call_a", "read_note", (written,)),)), Says((), (READ,)), Says(("Done.",))]
    await gardener(service, model, "read_note")

    turn = await service.ended(await service.asked_of("gardener"))

    assert turn.output == "Done.", turn.cause
    assert (await replies(service, turn.id))[0].calls[0].input_json == written
    [(call, told)] = results(wire.arrived[1])
    assert call == "call_a"
    assert told != "tulips: water on Mondays"
    assert len(book.runs()) == 1


async def test_a_call_without_any_arguments_has_an_input_without_fields(
    service: Service, wire: Wire, model: str
) -> None:
    wire.answers += [Says((), (Call("call_a", "read_note", ()),)), Says(("Done.",))]
    await gardener(service, model, "read_note")

    turn = await service.ended(await service.asked_of("gardener"))

    assert (await replies(service, turn.id))[0].calls[0].input_json == "{}"


async def test_a_tool_whose_name_providers_do_not_take(service: Service, wire: Wire, model: str) -> None:
    """An agent's skill as a tool has a point in its name; models are shown another, and the journal keeps ours."""
    await service.agent("water.er", {"say": "It is watered."})
    wire.answers += [Says((), (Call("call_a", "water_er", ('{"input": "Do."}',)),)), Says(("Done.",))]
    await gardener(service, model, agents=("water.er",))

    turn = await service.ended(await service.asked_of("gardener"))

    assert turn.output == "Done."
    assert results(wire.arrived[1]) == [("call_a", "It is watered.")]
    assert (await replies(service, turn.id))[0].calls[0].tool == "water.er"


async def test_a_turn_goes_on_in_another_process_with_the_models_own_ids(
    service: Service, wire: Wire, book: Book, model: str
) -> None:
    """The reply is read back from the journal and not paid again; ids and letters as they were (A11, R6.2)."""
    write = Call("toolu_9", "write_note", ('{"name": "spring", ', '"text": "Dig."}'))
    wire.answers += [Says(("I write.",), (write,)), Says(("Written.",))]
    await gardener(service, model, "write_note", approve=None)
    turn_id = await service.asked_of("gardener")
    asked = await service.question(turn_id)
    await service.restart()

    async with service.host("second", *book.tools()):
        await service.yes(asked, by="hale")
        turn = await service.ended(turn_id)

    assert turn.output == "Written.", turn.cause
    assert len(wire.arrived) == 2
    assert [call for call, _ in results(wire.arrived[1])] == ["toolu_9"]
    assert turn.usage.replies_replayed == 1


@pytest.mark.parametrize("model", ["openai-chat:gpt-4o", "openai:gpt-4o"])
async def test_a_model_that_does_not_stream_is_asked_without(
    service: Service, wire: Wire, book: Book, model: str
) -> None:
    """Providers refuse to stream some models; that is found out once."""
    refused = Status(400, "This model does not stream.", param="stream", code="unsupported_value")
    wire.answers += [refused, Says(("I look.",), (READ, READ_TOO)), Says(("Done.",))]
    await gardener(service, model, "read_note")

    turn = await service.ended(await service.asked_of("gardener"))

    assert turn.output == "Done.", turn.cause
    assert [bool(one.body.get("stream")) for one in wire.arrived] == [True, False, False]
    assert [call for call, _ in results(wire.arrived[2])] == ["call_a", "call_b"]
    assert (await replies(service, turn.id))[0].calls[1].input_json == '{"name": "spring" }'
    assert turn.usage.input_tokens == 2_000


async def test_a_reply_that_says_nothing_ends_the_turn(service: Service, wire: Wire, model: str) -> None:
    wire.answers += [Says(())]
    await gardener(service, model)

    turn = await service.ended(await service.asked_of("gardener"))

    assert turn.state == turns_pb2.TURN_STATE_DONE
    assert turn.output == ""
