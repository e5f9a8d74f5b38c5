"""The record: its chain, what it holds and what it keeps apart, so that it can be proven by anybody (D2, D6, R5.4)."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from tutelage.runtime.v1 import turns_pb2
from tutelage.runtime.v1.journal_pb2 import Record
from tutelage.runtime.v1.turns_pb2 import Resolution

from runtime_service.domain.journal import first_chain, is_sound
from runtime_service.domain.turns import TurnId
from runtime_service.store.reading import Reading
from service_kit.database import Database
from tests.services.service import CHANGES_ASKED, Service, calls, whats
from tests.services.wire_host import WIRE_TOOLS, wire_host

SECRETS = {
    "input": "the-input-of-the-turn",
    "purpose": "the-purpose-of-the-agent",
    "said": "what-the-model-said",
    "tool input": "the-input-of-the-tool",
    "edit": "the-input-as-edited",
    "answer's reason": "the-reason-of-the-yes",
    "refusal's reason": "the-reason-of-the-no",
    "tool output": "the-output-of-the-tool",
    "resolution": "what-a-person-says-it-returned",
    "output": "what-the-turn-hands-back",
}


def lp(*fields: str | int | bytes) -> bytes:
    """Each field behind its length, as docs/fingerprints.md has it."""
    encoded = [field if isinstance(field, bytes) else str(field).encode() for field in fields]
    return b"".join(len(field).to_bytes(4, "big") + field for field in encoded)


def chain_of(record: Record, before: bytes) -> bytes:
    """A record's chain by docs/journal.md, from what the contract shows of it."""
    time = record.time.ToDatetime().isoformat(timespec="microseconds") + "Z"
    head = lp(record.line, record.writer, time, record.address, str(record.WhichOneof("what")))
    return sha256(b"tutelage.record.v1\0" + before + head + bytes.fromhex(record.content_digest)).digest()


async def eventful_turn(service: Service) -> str:
    """Have one turn meet nearly everything: a yes with an edit, a no, a run, an unfinished call, a restart."""
    await service.restart(reconnect_seconds=0.5)
    asked = [("wire_write", {"what": SECRETS["tool input"], "n": n}) for n in range(3)]
    await service.agent(
        "gardener",
        calls(*asked, ("wire_read", {}), say=SECRETS["said"]),
        {"say": SECRETS["output"]},
        tools=["wire_write", "wire_read"],
        purpose=SECRETS["purpose"],
    )
    async with wire_host(service) as host:
        turn_id = await service.asked_of("gardener", SECRETS["input"], CHANGES_ASKED)
        host.say(await host.call(), output_json=json.dumps(SECRETS["tool output"]))
        edited, refused, lost = await service.questions(turn_id, 3)
        await service.at_rest(turn_id)
        await service.yes(edited, edited_input_json=json.dumps({"what": SECRETS["edit"]}))
        host.say(await host.call(), output_json=json.dumps(SECRETS["tool output"]))
        await service.no(refused, reason=SECRETS["refusal's reason"])
        await service.yes(lost, reason=SECRETS["answer's reason"])
        call = await host.call()
    await service.interrupted(turn_id)
    await service.restart()
    word = Resolution(call_id=call.call_id, output_json=json.dumps(SECRETS["resolution"]))
    await service["gus"].turns.ResumeTurn(turns_pb2.ResumeTurnRequest(turn_id=turn_id, resolutions=[word]))
    await service.ended(turn_id)
    return turn_id


async def test_anybody_can_follow_the_chain_from_what_the_contract_shows(service: Service) -> None:
    """Lines without a gap, writers that only grow, each chain over the one before and the content's digest (D6)."""
    turn_id = await eventful_turn(service)

    records = await service.records(turn_id)

    assert [record.line for record in records] == list(range(1, len(records) + 1))
    writers = [record.writer for record in records]
    assert writers == sorted(writers)
    assert set(writers) == set(range(1, writers[-1] + 1))
    chain = sha256(b"tutelage.turn.v1\0" + lp("default", turn_id)).digest()
    for record in records:
        chain = chain_of(record, chain)
        assert record.chain == chain.hex(), record.line
    assert whats(records)[0] == "turn_given"
    assert {"model_replied", "approval_recorded", "tool_started", "tool_done", "unfinished_resolved", "turn_ended"} <= (
        set(whats(records))
    )


async def test_what_is_stored_is_what_was_sealed(service: Service) -> None:
    """Facts, words, salt and digests of every row in the database's file (D6, R5.4)."""
    turn_id = await eventful_turn(service)
    await service.stop()

    database = Database(f"sqlite:///{service.folder}/runtime.db")
    try:
        stored = await Reading(database).records(TurnId(turn_id))
    finally:
        await database.close()

    chain = first_chain("default", turn_id)
    for record in stored:
        assert is_sound(record, chain), record.line
        assert bool(record.words) == (len(record.words_salt) == 16)
        chain = record.chain
    salts = [record.words_salt for record in stored if record.words]
    assert len(set(salts)) == len(salts) > 5
    [(kept,)] = service.rows("select chain from turns")
    assert kept == chain


async def test_facts_feeds_and_requests_hold_no_words(service: Service) -> None:
    """Words are stored apart from facts; feeds hold keys (R5.4, point 6)."""
    await eventful_turn(service)

    facts = " ".join(text for (text,) in service.rows("select facts from records"))
    words = " ".join(text for (text,) in service.rows("select words from records"))
    elsewhere = [service.rows(f"select * from {table}") for table in ("approval_feed", "turn_feed", "requests")]

    for what, secret in SECRETS.items():
        assert secret not in facts, what
        assert secret not in str(elsewhere), what
        assert secret in words or what == "purpose", what
    for (text,) in service.rows("select facts from records"):
        assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


async def test_every_row_carries_its_tenant(service: Service) -> None:
    """Of every table that is about somebody (point 6)."""
    service.tenant = "nursery"
    await eventful_turn(service)

    tables = {name for (name,) in service.rows("select name from sqlite_master where type = 'table'")}
    of_nobody = {"alembic_version", "database_facts", "leases", "sqlite_sequence"}
    for table in tables - of_nobody:
        tenants = {tenant for (tenant,) in service.rows(f"select distinct tenant from {table}")}
        none_here = table in ("requests", "reads", "delegate_calls")
        assert tenants == {"nursery"} or (none_here and not tenants), table


async def test_a_tasks_record_is_whole(service: Service) -> None:
    """Its id is derived; agent, version, block and the tools that the model was shown are fixed (R6.2, R6.4)."""
    async with wire_host(service):
        agent = await service.agent("gardener", {"say": "Done."}, tools=["wire_write", "wire_read"])
        turn = await service.ended(await service.asked_of("gardener"))

    started = await service.record(turn.id, "task_started")
    shown = {tool.name: tool for tool in WIRE_TOOLS}
    declared = b""
    for name, effects in (("wire_write", "CHANGES"), ("wire_read", "READS")):
        one = sha256(b"tutelage.declaration.v1\0" + lp(name, shown[name].input_schema_json, effects)).hexdigest()
        declared += lp(one, shown[name].description, "", "", "")
    assert started.task_id == f"{turn.id}/gardener"
    assert (started.agent, started.agent_version) == ("gardener", agent.version)
    assert started.tools_hash == sha256(b"tutelage.tools.v1\0" + declared).hexdigest()
    assert (started.block.instruction_set, started.block.sha256) == (0, sha256(b"").hexdigest())
    [receipt] = turn.receipts
    assert (receipt.task_id, receipt.instruction_set) == (started.task_id, 0)
    assert receipt.instructions_hash == sha256(b"").hexdigest()


async def test_line_one_says_what_was_asked_by_whom_and_under_which_settings(service: Service) -> None:
    """`TurnGiven` (R5.4, point 6)."""
    await service.agent("gardener", {"say": "Done."})
    conversation = await service.conversation("gardener", CHANGES_ASKED)
    work = turns_pb2.Work(input="Tidy up.", scope="team:42")
    request = turns_pb2.StartTurnRequest(conversation_id=conversation, work=work)
    turn = (await service["gus"].turns.StartTurn(request)).turn
    await service.ended(turn.id)

    [first, *_] = await service.records(turn.id)

    given = first.turn_given
    assert (first.line, first.writer, first.address) == (1, 1, "gardener")
    assert (given.conversation_id, given.agent, given.agent_version) == (conversation, "gardener", turn.agent_version)
    assert (given.input, given.scope) == ("Tidy up.", "team:42")
    assert (given.work_for.id, given.given_by.id) == ("gus", "gus")
    assert [setting.level for setting in given.settings] == ["conversation", "service"]


@pytest.mark.parametrize("page_size", [1, 4])
async def test_records_page_in_order(service: Service, page_size: int) -> None:
    """Every record once, whatever the page's size."""
    await service.agent("gardener", {"say": "Done."})
    turn = await service.ended(await service.asked_of("gardener"))
    whole = await service.records(turn.id)

    found: list[Record] = []
    token = ""
    while True:
        request = turns_pb2.ListRecordsRequest(turn_id=turn.id, page_size=page_size, page_token=token)
        page = await service["gus"].turns.ListRecords(request)
        found += page.records
        token = page.next_page_token
        if not token:
            break

    assert found == whole


async def test_an_agent_keeps_the_version_that_its_turn_began_with(service: Service) -> None:
    """A deploy changes nothing of what was begun (R6.2); the same spec has the same version."""
    async with wire_host(service) as host:
        rules = (calls(("wire_write", {})), {"say": "Done."})
        first = await service.agent("gardener", *rules, tools=["wire_write"], purpose="One.")
        turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
        asked = await service.question(turn_id)
        second = await service.agent("gardener", *rules, tools=["wire_write"], purpose="Two.")
        again = await service.agent("gardener", *rules, tools=["wire_write"], purpose="Two.")
        await service.yes(asked)
        host.say(await host.call(), output_json="1")
        turn = await service.ended(turn_id)

    assert first.version != second.version == again.version
    assert turn.agent_version == first.version
    assert [request["system"] for request in service.paid("gardener")] == ["One.", "One."]
