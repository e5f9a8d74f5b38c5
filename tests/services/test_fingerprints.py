"""A yes is for one thing: the published fingerprint, taken again as the tool starts (D1, R3.5)."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from tutelage.runtime.v1 import approvals_pb2 as pb
from tutelage.runtime.v1 import tools_pb2
from tutelage.runtime.v1.effects_pb2 import EFFECTS_CHANGES, EFFECTS_READS
from tutelage.tools import CHANGES

from tests.services.service import CHANGES_ASKED, Service, whats
from tests.services.wire_host import wire_host

INPUT = '{ "b": 1.0, "a": "é\\u0301 🌷", "a2": 9007199254740993 }'


def declared(description: str = "Writes.", effects: Any = CHANGES, **properties: Any) -> tools_pb2.Tool:
    """A tool as a host of this test declares it."""
    schema = json.dumps({"type": "object", "properties": properties})
    return tools_pb2.Tool(name="wire_write", description=description, input_schema_json=schema, effects=effects)


async def asks(service: Service, input_json: str = INPUT) -> pb.Approval:
    """Have an agent ask to call the tool."""
    call = {"tool": "wire_write", "input_json": input_json}
    rules = ({"when": "step == 0", "calls": [call]}, {"say": "Done."})
    await service.agent("gardener", *rules, tools=["wire_write"])
    return await service.question(await service.asked_of("gardener", approve=CHANGES_ASKED))


def lp(*fields: str | int) -> bytes:
    """Each field behind its length, as docs/fingerprints.md has it."""
    encoded = [str(field).encode() for field in fields]
    return b"".join(len(field).to_bytes(4, "big") + field for field in encoded)


def digest(name: str, covered: bytes) -> str:
    return sha256(name.encode() + b"\0" + covered).hexdigest()


async def test_anybody_can_compute_the_fingerprint_from_what_the_contract_shows(service: Service) -> None:
    """The published encoding, over the fields of the approval's record and its declaration alone (D1, R3.5)."""
    tool = declared(text={"type": "string"})
    async with wire_host(service, [tool]):
        asked = await asks(service)
    shown = await service.record(asked.turn_id, "approval_asked")

    schema = json.dumps(json.loads(tool.input_schema_json), sort_keys=True, separators=(",", ":"))
    declaration = digest("tutelage.declaration.v1", lp(tool.name, schema, "CHANGES"))
    rule = '{"approvals_needed":1,"changes":{},"put_to":["gus","role:supervises"]}'
    covered = lp(
        asked.turn_id,
        asked.address,
        asked.tool,
        declaration,
        INPUT,
        "CHANGES",
        rule,
        (await service.get(asked.turn_id)).agent_version,
        shown.skill_version,
        0,
        sha256(b"").hexdigest(),
    )

    assert asked.input_json == INPUT
    assert shown.declaration_hash == declaration
    assert (shown.block_sha256, shown.instruction_set) == (sha256(b"").hexdigest(), 0)
    assert asked.fingerprint == shown.fingerprint == digest("tutelage.fingerprint.v1", covered)


async def test_what_is_shown_is_what_runs_to_the_letter(service: Service) -> None:
    """White space, number forms, escapes and letters stay as the model wrote them (R2.7, scenario 10)."""
    async with wire_host(service, [declared()]) as host:
        asked = await asks(service)
        await service.yes(asked)
        call = await host.call()
        host.say(call, output_json="1e2")
        await service.ended(asked.turn_id)

    assert call.input_json == asked.input_json == INPUT
    assert service.paid("gardener")[-1]["results"] == ["1e2"]


async def test_another_description_while_a_call_waits_asks_nothing_anew(service: Service) -> None:
    """A host may be redeployed with better words (D1, R1.4, scenario 24f)."""
    async with wire_host(service, [declared("Writes.")]):
        asked = await asks(service)

    async with wire_host(service, [declared("Writes, and well.")]) as host:
        await service.yes(asked)
        call = await host.call()
        host.say(call, output_json="true")
        await service.ended(asked.turn_id)

    assert whats(await service.records(asked.turn_id)).count("approval_asked") == 1


async def test_another_schema_while_a_call_waits_asks_anew_and_the_old_yes_is_not_used(service: Service) -> None:
    """The yes was for something else (D1, R1.4, R3.5, scenario 24f)."""
    await service.restart(reconnect_seconds=0.5)
    async with wire_host(service, [declared()]):
        asked = await asks(service)

    async with wire_host(service, [declared(b={"type": "number"})]) as host:
        await service.yes(asked)
        [anew] = await service.questions(asked.turn_id)
        assert anew.supersedes == asked.id
        assert anew.fingerprint != asked.fingerprint
        assert (anew.input_json, anew.address) == (asked.input_json, asked.address)
        assert (await service.approval(asked.id)).state == pb.APPROVAL_STATE_WITHDRAWN
        await service.yes(anew)
        call = await host.call()
        host.say(call, output_json="true")
        await service.ended(asked.turn_id)

    assert call.attempt == 1
    assert whats(await service.records(asked.turn_id)).count("tool_started") == 1


async def test_where_the_input_no_longer_fits_the_model_is_told_and_nobody_is_asked(service: Service) -> None:
    """R3.5: the recorded input is checked against the schema by which it would run."""
    await service.restart(reconnect_seconds=0.5)
    async with wire_host(service, [declared()]):
        asked = await asks(service)

    async with wire_host(service, [declared(b={"type": "string"})]):
        await service.yes(asked)
        turn = await service.ended(asked.turn_id)

    [told] = service.paid("gardener")[-1]["results"]
    assert "b" in told
    assert turn.output == "Done."
    records = whats(await service.records(asked.turn_id))
    assert (records.count("approval_asked"), records.count("tool_started")) == (1, 0)


async def test_a_tool_counts_as_changing_if_any_connected_host_says_so(service: Service) -> None:
    """Two hosts declare the same tool otherwise: the more careful one holds (A1, R1.4)."""
    async with (
        wire_host(service, [declared(effects=EFFECTS_CHANGES)], name="one"),
        wire_host(service, [declared(effects=EFFECTS_READS)], name="two"),
    ):
        asked = await asks(service)

    assert asked.effects == EFFECTS_CHANGES
