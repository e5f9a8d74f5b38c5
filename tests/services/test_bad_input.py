"""What models ask for and hosts give back that is no good: the model is told, and the turn lives (scenario 25, R12)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tutelage.runtime.v1 import turns_pb2
from tutelage.runtime.v1.agents_pb2 import Limits
from tutelage.runtime.v1.journal_pb2 import TOOL_END_FAILED, TOOL_END_NOT_TO_BE_HAD

from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, Service, calls, whats
from tests.services.wire_host import wire_host

OK = {"name": "fine", "text": "fine"}


async def told_of(service: Service, *asked: dict[str, Any], tools: tuple[str, ...] = ("write_note",)) -> list[str]:
    """Have a model call tools in one reply; return what it was told once the turn is done."""
    rules = ({"when": "step == 0", "calls": list(asked)}, {"say": "Done."})
    await service.agent("gardener", *rules, tools=tools)
    turn = await service.ended(await service.asked_of("gardener"))
    assert turn.state == turns_pb2.TURN_STATE_DONE, turn.cause
    results: list[str] = service.paid("gardener")[-1]["results"]
    return results


@pytest.fixture
async def unasked(service: Service) -> Service:
    """A service that asks nothing, so that what runs runs at once."""
    await service.restart(approve="nothing", reconnect_seconds=0.5)
    return service


async def test_an_input_that_cannot_run_is_told_and_its_neighbours_run(unasked: Service, book: Book) -> None:
    """Not fitting, no JSON, a key twice, half a surrogate, too large, too deep: each told, none asked (R4, R12)."""
    bad = {
        "not fitting": '{"name": 7, "colour": "red"}',
        "no JSON": '{"name": ',
        "no object": '"tulips"',
        "a key twice": '{"name": "a", "name": "b", "text": "c"}',
        "half a surrogate": '{"name": "\\ud83c", "text": "c"}',
        "too large": json.dumps({"name": "a", "text": "x" * (256 * 1024)}),
        "too deep": '{"name": ' + "[" * 200 + "]" * 200 + "}",
        "beyond a double": '{"name": 1e999, "text": "c"}',
    }
    asked = [{"tool": "write_note", "input_json": text} for text in bad.values()]
    async with unasked.host("notebook", *book.tools()):
        told = await told_of(unasked, *asked, {"tool": "write_note", "input": OK})

    assert len(told) == len(bad) + 1
    assert told[-1] == "wrote fine"
    for what, words in zip(bad, told, strict=False):
        assert words, what
        assert "Traceback" not in words
        assert len(words) < 2_000, what
    assert "name" in told[0]
    assert "colour" in told[0]
    assert [run["input"] for run in book.runs()] == [OK]


async def test_a_tool_of_no_such_name_is_told_at_once(unasked: Service, book: Book) -> None:
    """One that the model was never shown, or that nobody ever declared (settled 6)."""
    async with unasked.host("notebook", *book.tools()):
        told = await told_of(
            unasked,
            {"tool": "no_such_tool", "input": {}},
            {"tool": "never_declared", "input": {}},
            {"tool": "poke", "input": {"name": "x"}},
            {"tool": "write_note", "input": OK},
            tools=("write_note", "never_declared"),
        )

    assert told == ["There is no tool of this name."] * 3 + ["wrote fine"]
    assert unasked.paid("gardener")[0]["tools"] == ["write_note"]


async def test_a_tool_whose_host_stays_away_is_not_to_be_had(unasked: Service, book: Book) -> None:
    """Not yet asked about, and no host for `reconnect_within` (R4); the record says how it ended."""
    async with unasked.host("notebook", *book.tools()):
        pass

    told = await told_of(unasked, {"tool": "write_note", "input": OK})

    assert told == ["This tool is not to be had now."]
    [turn] = (await unasked["gus"].turns.ListTurns(turns_pb2.ListTurnsRequest())).turns
    assert (await unasked.record(turn.id, "tool_done")).end == TOOL_END_NOT_TO_BE_HAD


async def test_what_does_not_fit_is_not_asked_about(service: Service, book: Book) -> None:
    """The gate asks last: after the input was parsed and validated (R2.7)."""
    async with service.host("notebook", *book.tools()):
        await service.agent("gardener", calls(("write_note", {"name": 7})), {"say": "Done."}, tools=["write_note"])
        turn = await service.ended(await service.asked_of("gardener", approve=CHANGES_ASKED))

    assert "approval_asked" not in whats(await service.records(turn.id))


@pytest.mark.parametrize("output", ["{", "NaN", '{"a":1,"a":2}', '"' + "x" * (1024 * 1024) + '"'])
@pytest.mark.parametrize("tool", ["wire_write", "wire_read"])
async def test_an_output_that_cannot_be_taken_is_that_calls_error(unasked: Service, tool: str, output: str) -> None:
    """No JSON, or too large: the model is told, the turn goes on, the host may forget it (R12)."""
    async with wire_host(unasked) as host:
        await unasked.agent("gardener", calls((tool, {})), {"say": "Done."}, tools=[tool])
        turn_id = await unasked.asked_of("gardener")
        call = await host.call()
        host.say(call, output_json=output)
        assert list((await host.hear("taken")).call_ids) == [call.call_id]
        await unasked.ended(turn_id)

    [told] = unasked.paid("gardener")[-1]["results"]
    assert told.startswith("The tool's output cannot be taken: ")
    assert len(told) < 500
    assert (await unasked.record(turn_id, "tool_done")).end == TOOL_END_FAILED


async def test_a_tools_own_error_is_told_as_it_is(unasked: Service) -> None:
    """R4: the tool failed; its error."""
    async with wire_host(unasked) as host:
        await unasked.agent("gardener", calls(("wire_write", {})), {"say": "Done."}, tools=["wire_write"])
        turn_id = await unasked.asked_of("gardener")
        host.say(await host.call(), error='It said "no" 🌷\nand left.')
        await unasked.ended(turn_id)

    assert unasked.paid("gardener")[-1]["results"] == ['It said "no" 🌷\nand left.']


async def test_a_read_that_takes_too_long_is_told_so(unasked: Service) -> None:
    """R4: `This tool took too long.`; the host is told that nobody waits."""
    await unasked.restart(tool_seconds=0.3)
    async with wire_host(unasked) as host:
        await unasked.agent("gardener", calls(("wire_read", {})), {"say": "Done."}, tools=["wire_read"])
        turn_id = await unasked.asked_of("gardener")
        call = await host.call()
        assert list((await host.hear("cancelled")).call_ids) == [call.call_id]
        await unasked.ended(turn_id)

    assert unasked.paid("gardener")[-1]["results"] == ["This tool took too long."]


async def test_a_reply_of_five_megabytes_ends_its_turn_with_a_clear_cause(unasked: Service) -> None:
    """A model's reply has 1 MiB at most (R12); the service lives on."""
    await unasked.agent("gardener", {"when": 'messages[0].text == "Much."', "say": "x" * (5 << 20)}, {"say": "Done."})

    turn = await unasked.ended(await unasked.asked_of("gardener", "Much."))
    other = await unasked.ended(await unasked.asked_of("gardener", "Little."))

    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert str(5 << 20) in turn.cause
    assert len(turn.cause) < 500
    assert other.output == "Done."


async def test_outputs_are_told_as_their_characters_or_as_written(unasked: Service) -> None:
    """A JSON string as its characters, other JSON as it was written (R4, scenario 10)."""
    outputs = ['"a \\"b\\" \\ud83c\\udf37\\n"', '{ "b": 1.0, "a": 9007199254740993 }', "null", "-0"]
    async with wire_host(unasked) as host:
        asked = [("wire_write", {"n": n}) for n in range(len(outputs))]
        await unasked.agent("gardener", calls(*asked), {"say": "Done."}, tools=["wire_write"])
        turn_id = await unasked.asked_of("gardener")
        received: list[Any] = []
        while len(received) < len(outputs):
            received += (await host.hear("calls")).calls
        for call in received:
            host.say(call, output_json=outputs[json.loads(call.input_json)["n"]])
        await unasked.ended(turn_id)

    told = unasked.paid("gardener")[-1]["results"]
    assert told == ['a "b" 🌷\n', '{ "b": 1.0, "a": 9007199254740993 }', "null", "-0"]


async def test_a_model_that_never_ends_reaches_the_limit_of_its_agent(unasked: Service, book: Book) -> None:
    """Limits of a turn: it fails, and says which (R12)."""
    async with unasked.host("notebook", *book.tools()):
        again = calls(("read_note", {"name": "x"}), when="true")
        await unasked.agent("gardener", again, tools=["read_note"], limits=Limits(model_requests=3))
        turn = await unasked.ended(await unasked.asked_of("gardener"))

    assert turn.state == turns_pb2.TURN_STATE_FAILED
    assert "gardener: at most 3 model requests, and it came to 3." in turn.cause
    assert turn.usage.model_requests == len(unasked.paid("gardener")) == 3


async def test_a_provider_that_fails_for_a_while_is_tried_again(unasked: Service) -> None:
    """429, 5xx: again; the turn is interrupted with its cause and goes on by itself (R6.7, C13, settled 34)."""
    await unasked.agent("gardener", {"fail": {"status": 503}})
    turn_id = await unasked.asked_of("gardener")
    stopped = (await unasked.events(turn_id, lambda event: event.HasField("interrupted")))[-1].interrupted
    unasked.script("gardener", {"say": "At last."})

    turn = await unasked.ended(turn_id)

    assert stopped.state == turns_pb2.TURN_STATE_INTERRUPTED
    assert "503" in stopped.cause
    assert not stopped.unfinished
    assert turn.output == "At last."
