"""What is sent back to a model of its own replies: as recorded by this library and by earlier ones, or built anew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime_service.engine.library_messages import RAW_FORM, ToolNames
from runtime_service.engine.models import Asked, ModelCall, ModelRequest, Models, Replied, ShownTool, ToolResult
from runtime_service.engine.providers import LibraryModels
from tests.providers.conftest import WIRES
from tests.providers.record import GOLDEN, TOOLS
from tests.providers.wire import Arrived, Says, Wire

KEPT = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(GOLDEN.glob("*.json"))}


async def sent_back(wire: Wire, model: str, replied: Replied) -> Arrived:
    """Ask a model to go on behind a reply and the results of its calls; return what arrived."""
    results = [ToolResult(place, call.tool, f"result {place}") for place, call in enumerate(replied.calls)]
    more = () if results else (Asked("And now?"),)
    wire.answers.append(Says(("Done.",)))
    async with LibraryModels(seconds=10) as library:
        request = ModelRequest(model, ("Keep notes.",), (Asked("Go."), replied, *results, *more), TOOLS)
        await Models({}, library).ask(request)
    return wire.arrived[-1]


def parts(arrived: Arrived) -> list[dict[str, Any]]:
    """Everything said in a request, one part after the other."""
    found = []
    for message in arrived.body.get("messages") or arrived.body["input"]:
        found.append(message)
        found += message.get("tool_calls") or []
        found += [part for part in message.get("content") or [] if isinstance(part, dict)]
    return found


def ids(arrived: Arrived) -> list[tuple[str, str]]:
    """The ids of the calls and of the results in a request: `call` or `result`, and the id."""
    found = []
    for part in parts(arrived):
        if part.get("type") in ("function", "tool_use"):
            found.append(("call", part["id"]))
        elif part.get("type") == "function_call":
            found.append(("call", part["call_id"]))
        elif part.get("type") == "function_call_output":
            found.append(("result", part["call_id"]))
        elif part.get("type") == "tool_result":
            found.append(("result", part["tool_use_id"]))
        elif part.get("role") == "tool":
            found.append(("result", part["tool_call_id"]))
    return found


def both(expected: list[str]) -> list[tuple[str, str]]:
    """Every call, then every result, in the same order."""
    return [(kind, one) for kind in ("call", "result") for one in expected]


def test_there_are_replies_of_every_wire_format() -> None:
    wires = {kept["model"].partition(":")[0] for kept in KEPT.values()}

    assert wires == {model.partition(":")[0] for model in WIRES}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
async def test_what_an_earlier_library_recorded_goes_back_as_it_was(wire: Wire, kept: dict[str, Any]) -> None:
    """Ids, thoughts, signatures and wire names are read from the journal (R6.2)."""
    calls = tuple(ModelCall(*call) for call in kept["calls"])

    arrived = await sent_back(wire, kept["model"], Replied(kept["text"], calls, kept["raw_json"], kept["raw_form"]))

    expected = ["call_first", "call_second", "call_third"] if calls else []
    assert ids(arrived) == both(expected)
    body = json.dumps(arrived.body, ensure_ascii=False)
    if kept["model"].startswith("anthropic"):
        assert [part["signature"] for part in parts(arrived) if part.get("type") == "thinking"] == ["c2lnbmVk"]
    elif kept["model"].startswith("openai:"):
        assert [part["encrypted_content"] for part in parts(arrived) if part.get("type") == "reasoning"] == ["c2VjcmV0"]
    assert kept["text"] in body
    assert not calls or "9007199254740993" in body
    assert '"name": "water_bed"' in body
    assert "water.bed" not in body


@pytest.mark.parametrize(
    ("raw_json", "raw_form"),
    [("", ""), ('{"ids": ["x"]}', "scripted/1"), ("[]", RAW_FORM), ("{", RAW_FORM), ('[{"kind": "new"}]', RAW_FORM)],
)
async def test_what_cannot_be_read_is_built_anew(wire: Wire, model: str, raw_json: str, raw_form: str) -> None:
    """With ids made up by place: the same in every request, and each its own."""
    calls = (ModelCall("read_note", '{"name":"a"}'), ModelCall("read_note", '{"name":'))

    arrived = await sent_back(wire, model, Replied("I look.", calls, raw_json, raw_form))

    made = ["c00010000", "c00010001"]
    assert ids(arrived) == both(made)
    assert "I look." in json.dumps(arrived.body)


async def test_an_earlier_turn_that_handed_back_nothing_is_left_out(wire: Wire, model: str) -> None:
    """Providers refuse an empty message."""
    arrived = await sent_back(wire, model, Replied(""))

    said = [part for part in parts(arrived) if part.get("role") == "assistant"]
    assert not said


def test_names_that_providers_do_not_take() -> None:
    """Each tool has a name of its own, whatever the others are called, and names that are good stay."""
    tools = ["a.b", "a_b", "a:b", "x" * 128, "x" * 127 + "y", "gut_benannt"]
    names = ToolNames([ShownTool(name, "", "{}") for name in tools])

    theirs = [names.theirs(name) for name in tools]

    assert (theirs[1], theirs[5]) == ("a_b", "gut_benannt")
    assert len(set(theirs)) == len(tools)
    assert all(len(name) <= 64 for name in theirs)
    assert [names.ours(name) for name in theirs] == tools
    assert names.ours("made.up") == "made.up"
