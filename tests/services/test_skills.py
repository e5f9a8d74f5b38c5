"""What skills take and hand back, held to their schemas (A17, R1.5, R4, R12)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tutelage.runtime.v1 import agents_pb2, journal_pb2, turns_pb2

from runtime_service.domain.agents import Skill
from runtime_service.engine.handing_back import handed_back
from tests.services.service import NOTHING_ASKED, Service, calls, refusal, whats

TAG = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "beds": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name"],
    "additionalProperties": False,
}
PLACE = {"type": "object", "properties": {"bed": {"type": "integer"}}, "required": ["bed"]}
SKILL = agents_pb2.Skill(name="tag", description="Write a tag.", output_schema_json=json.dumps(TAG))
WRONG, BETTER, RIGHT = '{"beds": [1, "two"]}', '{"name": "Tulip", "beds": ["two"]}', '{ "name": "Tulip", "beds": [1] }'


def says(*texts: str) -> list[dict[str, Any]]:
    """A script that hands these back one after the other, the last again and again."""
    return [{"when": f"step == {n}", "say": text} for n, text in enumerate(texts[:-1])] + [{"say": texts[-1]}]


def told(service: Service, agent: str) -> list[list[str]]:
    """What the model was told by each request that it was paid for, behind what it was asked."""
    return [[one["text"] for one in asked["messages"][1:] if one["role"] == "user"] for asked in service.paid(agent)]


async def test_what_does_not_fit_is_told_field_by_field_until_it_does(service: Service) -> None:
    """The schema stands in the system prompt; what fits is handed back to the letter."""
    await service.agent("tagger", *says(WRONG, "It is a tulip.", RIGHT), purpose="You tag.", skills=[SKILL])

    turn = await service.ended(await service.asked_of("tagger"))

    first, second, third = told(service, "tagger")
    assert (turn.state, turn.output) == (turns_pb2.TURN_STATE_DONE, RIGHT)
    assert first == []
    assert second[0].startswith("What you handed back does not fit:\n- ")
    assert "beds[1]" in second[0]
    assert "name" in second[0]
    assert third[1].startswith("What you handed back is no JSON, and JSON is asked for.")
    system = service.paid("tagger")[0]["system"]
    assert system.startswith("You tag.\n\nWrite a tag.\n\n")
    assert system.endswith(SKILL.output_schema_json)
    records = await service.records(turn.id)
    assert whats(records)[-6:] == ["model_replied", "output_did_not_fit"] * 2 + ["model_replied", "turn_ended"]
    recorded = [one.output_did_not_fit.told for one in records if one.HasField("output_did_not_fit")]
    assert recorded == third


async def test_after_three_tries_the_turn_fails_and_whoever_resumes_it_gives_it_as_many_again(service: Service) -> None:
    """A FAILED turn with a clear cause; what was told stays told (R6.2)."""
    await service.agent("tagger", *says(WRONG, BETTER, "{}", WRONG, RIGHT), skills=[SKILL])
    turn_id = await service.asked_of("tagger")
    ended = (await service.events(turn_id, lambda event: event.HasField("ended")))[-1]

    await service["gus"].turns.ResumeTurn(turns_pb2.ResumeTurnRequest(turn_id=turn_id))
    turn = (await service.events(turn_id, lambda event: event.HasField("ended"), ended.cursor))[-1].ended

    failed = ended.ended
    assert failed.state == turns_pb2.TURN_STATE_FAILED
    assert failed.cause.startswith("What tagger handed back did not fit the output schema of its skill, 3 times.")
    assert failed.usage.model_requests == 3
    assert (turn.state, turn.output) == (turns_pb2.TURN_STATE_DONE, RIGHT)
    assert [len(each) for each in told(service, "tagger")] == [0, 1, 2, 3, 4]


async def test_the_same_conversation_goes_on_in_the_next_process(service: Service) -> None:
    """What was told is read from the records; no reply is paid for twice (A11, R6.2)."""
    slow = {"when": "step == 2", "delay_ms": 60_000, "say": RIGHT}
    await service.agent("tagger", *says(WRONG, BETTER, RIGHT)[:2], slow, skills=[SKILL])
    turn_id = await service.asked_of("tagger")
    seen = 0

    def second(event: turns_pb2.TurnEvent) -> bool:
        nonlocal seen
        seen += event.record.HasField("output_did_not_fit")
        return seen == 2

    await service.events(turn_id, second)
    await service.stop()
    service.script("tagger", *says("Never.", "Never.", RIGHT))
    await service.start()
    turn = await service.ended(turn_id)

    # The last was under way as the process stopped: asked again, by the same words.
    *_, stopped, again = service.paid("tagger")
    assert (turn.state, turn.output, turn.writer) == (turns_pb2.TURN_STATE_DONE, RIGHT, 2)
    assert stopped["messages"] == again["messages"]
    assert turn.usage.model_requests == 3


async def test_a_calling_model_is_told_the_json_and_of_what_never_fits_why(service: Service) -> None:
    """R1.5, R4: an agent as a tool, by `agent.skill`; the caller's turn goes on."""
    await service.agent("tagger", *says(WRONG, RIGHT), skills=[SKILL])
    await service.agent("stubborn", *says(WRONG), skills=[SKILL])
    both = calls(("tagger.tag", {"input": "Tag."}), ("stubborn.tag", {"input": "Tag."}))
    await service.agent("head", both, {"say": "Done."}, agents=["tagger", "stubborn"])

    turn = await service.ended(await service.asked_of("head", approve=NOTHING_ASKED))

    [one, other] = service.paid("head")[-1]["results"]
    done = [record.tool_done for record in await service.records(turn.id) if record.HasField("tool_done")]
    ends = {each.tool: each.end for each in done}
    assert turn.output == "Done."
    assert one == RIGHT
    assert other.startswith("What stubborn handed back did not fit the output schema of its skill, 3 times.")
    assert (len(service.paid("tagger")), len(service.paid("stubborn"))) == (2, 3)
    assert ends == {"tagger.tag": journal_pb2.TOOL_END_RETURNED, "stubborn.tag": journal_pb2.TOOL_END_FAILED}


async def test_tools_may_be_called_in_between(service: Service) -> None:
    """Tries are counted over the whole call."""
    await service.agent("adviser", {"say": "Tulip."})
    ask = calls(("adviser", {"input": "Which?"}), when="step == 1")
    await service.agent(
        "tagger", {"when": "step == 0", "say": "?"}, ask, *says(RIGHT), skills=[SKILL], agents=["adviser"]
    )

    turn = await service.ended(await service.asked_of("tagger", approve=NOTHING_ASKED))

    assert (turn.state, turn.output) == (turns_pb2.TURN_STATE_DONE, RIGHT)
    assert service.paid("tagger")[-1]["results"] == ["Tulip."]


@pytest.mark.parametrize(
    ("written", "output"),
    [
        (f"```json\n{RIGHT}\n```", RIGHT),
        (f"\n```\n{RIGHT}\n```\n", RIGHT),
        (RIGHT, RIGHT),
        (f"Here:\n```json\n{RIGHT}\n```", f"Here:\n```json\n{RIGHT}\n```"),
    ],
)
def test_a_fence_around_json_is_no_part_of_it(written: str, output: str) -> None:
    """Models write JSON as they would show it to a person; of a skill that hands back text it is text."""
    assert handed_back(Skill(output_schema_json="{}"), written) == output
    assert handed_back(Skill(), written) == written


async def test_an_input_that_does_not_fit_is_refused_or_told(service: Service) -> None:
    """`INPUT_DOES_NOT_FIT` with each field to a caller; the model that calls it as a tool is told (R12, R4)."""
    skill = agents_pb2.Skill(name="dig", input_schema_json=json.dumps(PLACE))
    await service.agent("digger", {"say": "Dug."}, skills=[skill])
    asks = calls(("digger.dig", {"bed": "two"}), ("digger.dig", {"bed": 2}))
    await service.agent("head", asks, {"say": "Done."}, agents=["digger"])
    work = turns_pb2.Work(input='{"bed": "two"}')

    called = await refusal(service["gus"].turns.CallAgent(turns_pb2.CallAgentRequest(agent="digger", work=work)))
    turn = await service.ended(await service.asked_of("head", approve=NOTHING_ASKED))

    wrong, right = service.paid("head")[-1]["results"]
    assert (called.reason, [path for path, _ in called.fields]) == ("INPUT_DOES_NOT_FIT", ["bed"])
    assert wrong.startswith("The input does not fit, so this call did not run:\n- bed: ")
    assert right == "Dug."
    assert [asked["messages"][0]["text"] for asked in service.paid("digger")] == ['{"bed":2}']
    assert turn.output == "Done."


@pytest.mark.parametrize("schema", ['{"type": 7}', "{", "[]", '{"$ref": "http://x.example/s"}', '{"pattern": "(?=a)"}'])
async def test_a_schema_that_cannot_be_used_is_refused_as_it_is_put(service: Service, schema: str) -> None:
    """Also one whose check would take too long (R12)."""
    spec = agents_pb2.AgentSpec(name="tagger", hosted=agents_pb2.HostedLoop(model="scripted:tagger"))
    spec.skills.add(output_schema_json=schema)

    error = await refusal(service["ana"].agents.PutAgent(agents_pb2.PutAgentRequest(spec=spec)))

    assert (error.reason, [path for path, _ in error.fields]) == (
        "INVALID_FIELD",
        ["spec.skills[0].output_schema_json"],
    )


async def test_what_a_skill_hands_back_need_not_be_an_object(service: Service) -> None:
    """A text as JSON is told to a calling model as its characters (R4)."""
    skill = agents_pb2.Skill(output_schema_json='{"enum": ["water", "wait"]}')
    await service.agent("adviser", *says("Water.", '"water"'), skills=[skill])
    await service.agent("head", calls(("adviser", {"input": "?"})), {"say": "Done."}, agents=["adviser"])

    turn = await service.ended(await service.asked_of("adviser"))
    await service.ended(await service.asked_of("head", approve=NOTHING_ASKED))

    assert turn.output == '"water"'
    assert service.paid("head")[-1]["results"] == ["water"]
