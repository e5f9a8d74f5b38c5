"""What callers are told when something is wrong: by its reason, with every wrong field (points 1, 8, 9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tutelage.errors import STATUS_DETAILS, TutelageError, error_of
from tutelage.runtime.v1 import (
    agents_pb2,
    approvals_pb2,
    conversations_pb2,
    programs_pb2,
    tools_pb2,
    turns_pb2,
)
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalRule, ApprovalSetting, ChangesRule

from runtime_service.api.access import TABLE
from tests.services.service import DEADLINE_SECONDS, Service, refusal
from tests.services.wire_host import wire_host

CONTRACT = (agents_pb2, approvals_pb2, conversations_pb2, programs_pb2, tools_pb2, turns_pb2)
NOT_YET = {
    "ConversationService": {"EraseConversation"},
    "GrantService": {"GiveGrant", "ListGrants", "RevokeGrant"},
    "ProgramService": set(TABLE["ProgramService"]),
}
EVERY_ROLE = ("uses", "supervises", "audits", "teaches", "privacy", "builds", "hosts", "programs")


def methods() -> Iterator[Any]:
    """Every RPC of the runtime's part of the contract."""
    for module in CONTRACT:
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


async def told(address: str, method: Any, *metadata: tuple[str, str]) -> tuple[TutelageError | None, str]:
    """Call an RPC with an empty request; return what the caller was told, and the error's domain."""

    async def requests() -> AsyncIterator[bytes]:
        yield b""

    path = f"/{method.containing_service.full_name}/{method.name}"
    shape = ("stream" if method.client_streaming else "unary") + ("_stream" if method.server_streaming else "_unary")
    async with grpc.aio.insecure_channel(address) as channel:
        request = requests() if method.client_streaming else b""
        call = getattr(channel, shape)(path)(request, metadata=metadata, timeout=DEADLINE_SECONDS)
        try:
            if method.server_streaming:
                await call.read()
                call.cancel()
            else:
                await call
        except grpc.aio.AioRpcError as failure:
            details = dict(failure.trailing_metadata() or ())
            domain = "runtime.tutelage" if b"runtime.tutelage" in bytes(details.get(STATUS_DETAILS, b"")) else ""
            return error_of(failure), domain
    return None, ""


def bearer(token: str) -> tuple[str, str]:
    return "authorization", f"Bearer {token}"


def test_the_table_of_who_may_call_has_every_rpc_of_the_contract_and_no_other() -> None:
    """R10 as one table in code (point 8): what it does not name is refused to everybody."""
    contract: dict[str, set[str]] = {}
    for method in methods():
        contract.setdefault(method.containing_service.name, set()).add(method.name)

    assert {service: set(rows) for service, rows in TABLE.items()} == contract


async def test_no_rpc_is_answered_without_one_good_token(service: Service) -> None:
    """NOT_SIGNED_IN with `ErrorInfo`: none, garbage, another key, expired, two, another scheme (point 8, settled 2)."""
    good = service.token("hale")
    header, payload, signature = good.split(".")
    forged = f"{header}.{payload}.{signature[:-8]}AAAAAAAA"
    attempts: dict[str, list[tuple[str, str]]] = {
        "none": [],
        "garbage": [bearer("garbage")],
        "forged": [bearer(forged)],
        "expired": [bearer(service.token("hale", expires_in=-60))],
        "two": [bearer(good), bearer(good)],
        "another scheme": [("authorization", f"Basic {good}")],
        "elsewhere": [("x-user", "hale"), ("token", good)],
        "for somebody else": [bearer(service.token("hale", claims={"aud": "another"}))],
    }

    for method in methods():
        for how, metadata in attempts.items():
            error, domain = await told(service.address, method, *metadata)
            where = f"{method.full_name} with {how}"
            assert error is not None, where
            assert (error.reason, error.code) == ("NOT_SIGNED_IN", grpc.StatusCode.UNAUTHENTICATED), where
            assert domain == "runtime.tutelage", where


async def test_what_this_release_does_not_do_says_so(service: Service) -> None:
    """Every service is registered; nothing pretends: UNIMPLEMENTED, NOT_IN_THIS_RELEASE (point 1)."""
    person = service.token("hale", roles=EVERY_ROLE)
    program = service.token("worker", roles=EVERY_ROLE)
    not_yet: dict[str, set[str]] = {}

    for method in methods():
        kind = TABLE[method.containing_service.name][method.name].kind
        error, _ = await told(service.address, method, bearer(program if kind == "SERVICE" else person))
        assert error is None or error.reason, f"{method.full_name} failed without a reason: {error}"
        assert error is None or error.reason not in ("NOT_ADMITTED", "PERSON_REQUIRED", "DEFECT"), method.full_name
        if error is not None and error.code is grpc.StatusCode.UNIMPLEMENTED:
            assert error.reason == "NOT_IN_THIS_RELEASE"
            not_yet.setdefault(method.containing_service.name, set()).add(method.name)

    assert not_yet == NOT_YET


async def test_roles_are_asked_for_before_anything_else(service: Service) -> None:
    """A caller without the role, or of another kind, is refused whatever it asks (R10)."""
    nobody = service.token("stranger", roles=())
    posing_host = service.token("hale", roles=EVERY_ROLE)
    agents_host = service.token("robot", roles=EVERY_ROLE)

    for method in methods():
        admits = TABLE[method.containing_service.name][method.name]
        if admits.roles:
            error, _ = await told(service.address, method, bearer(nobody))
            assert error is not None
            assert error.reason == "NOT_ADMITTED", method.full_name
        if admits.kind == "SERVICE":
            for token in (posing_host, agents_host):
                error, _ = await told(service.address, method, bearer(token))
                assert error is not None
                assert error.reason == "NOT_ADMITTED", method.full_name


async def test_health_is_told_without_a_token(service: Service) -> None:
    """Health (v1) and reflection answer anybody (point 11, settled 29)."""
    async with grpc.aio.insecure_channel(service.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        whole = await health.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_SECONDS)
        turns = await health.Check(
            health_pb2.HealthCheckRequest(service="tutelage.runtime.v1.TurnService"), timeout=DEADLINE_SECONDS
        )

    assert whole.status == turns.status == health_pb2.HealthCheckResponse.SERVING


# Every wrong field at once


def never_met() -> ApprovalSetting:
    return ApprovalSetting(rule=ApprovalRule(changes=ChangesRule(), put_to=["hale"], approvals_needed=3))


async def test_every_wrong_field_of_an_agent_is_named_at_once(service: Service) -> None:
    """R12, point 9."""
    spec = agents_pb2.AgentSpec(
        name="a gardener",
        purpose="a\0b",
        hosted=agents_pb2.HostedLoop(model="no-such-provider:x"),
        skills=[
            agents_pb2.Skill(name="tend", input_schema_json='{"type": 7}'),
            agents_pb2.Skill(name="tend"),
            agents_pb2.Skill(name="no good", version="v" * 300),
        ],
        tools=[
            agents_pb2.ToolUse(tool="no good"),
            agents_pb2.ToolUse(),
            agents_pb2.ToolUse(tool="read"),
            agents_pb2.ToolUse(tool="read"),
        ],
        approve=never_met(),
    )
    request = agents_pb2.PutAgentRequest(spec=spec, request_id="r" * 300)

    error = await refusal(service["ana"].agents.PutAgent(request))

    assert (error.reason, error.code) == ("INVALID_FIELD", grpc.StatusCode.INVALID_ARGUMENT)
    assert sorted(path for path, _ in error.fields) == sorted(
        [
            *("spec.name", "spec.purpose", "spec.hosted.model", "spec.approve.rule.approvals_needed", "request_id"),
            *("spec.skills[0].input_schema_json", "spec.skills[1].name", "spec.skills[2].name"),
            *("spec.skills[2].version", "spec.tools[0].tool", "spec.tools[1]", "spec.tools[3]"),
        ]
    )
    assert all(sentence.endswith((".", "`")) for _, sentence in error.fields), error.fields
    assert not (await service["ana"].agents.ListAgents(agents_pb2.ListAgentsRequest())).agents


async def test_an_agent_that_nobody_runs_is_refused(service: Service) -> None:
    """A program is not in this release; neither of the two is a wrong field."""
    neither = agents_pb2.PutAgentRequest(spec=agents_pb2.AgentSpec(name="x"))
    program = agents_pb2.PutAgentRequest(spec=agents_pb2.AgentSpec(name="x", program=agents_pb2.CallerProgram()))

    nobody = await refusal(service["ana"].agents.PutAgent(neither))
    later = await refusal(service["ana"].agents.PutAgent(program))

    assert "spec.runs" in dict(nobody.fields)
    assert (later.reason, later.code) == ("NOT_IN_THIS_RELEASE", grpc.StatusCode.UNIMPLEMENTED)


async def test_every_wrong_field_of_a_turn_is_named_at_once(service: Service) -> None:
    """R12, point 9."""
    request = turns_pb2.StartTurnRequest(
        work=turns_pb2.Work(input="a\0b", scope="s" * 300, work_for="no body"),
        approve=never_met(),
        request_id="r" * 300,
        if_busy=9,  # type: ignore[arg-type]
    )

    error = await refusal(service["gus"].turns.StartTurn(request))

    assert error.reason == "INVALID_FIELD"
    assert sorted(path for path, _ in error.fields) == sorted(
        [
            *("conversation_id", "request_id", "work.input", "work.scope", "work.work_for"),
            *("approve.rule.approvals_needed", "if_busy"),
        ]
    )


async def test_every_wrong_field_of_a_hello_is_named_at_once(service: Service) -> None:
    """R12, point 9."""
    tools = [
        tools_pb2.Tool(name="no good", input_schema_json="{"),
        tools_pb2.Tool(name="same"),
        tools_pb2.Tool(name="same", description="a\0b"),
    ]
    tools[1].timeout.FromSeconds(-1)
    host = wire_host(service, tools, name="", incarnation="no good")

    error = await refusal(host.__aenter__())

    assert error.reason == "INVALID_FIELD"
    assert sorted(path for path, _ in error.fields) == sorted(
        [
            *("hello.host", "hello.incarnation", "hello.tools"),
            *("hello.tools[0].name", "hello.tools[0].input_schema_json"),
            *("hello.tools[1].timeout", "hello.tools[2].description"),
        ]
    )


async def test_a_stream_that_does_not_begin_with_a_hello_is_refused(service: Service) -> None:
    """The first message of `Serve` must be `hello`."""

    async def said() -> AsyncIterator[tools_pb2.ServeRequest]:
        yield tools_pb2.ServeRequest(draining=tools_pb2.HostDraining())

    error = await refusal(anext(aiter(service["worker"].tools.Serve(said()))))

    assert (error.reason, [path for path, _ in error.fields]) == ("INVALID_FIELD", ["hello"])


async def test_a_message_past_its_limit_is_refused_by_reason(service: Service) -> None:
    """Servers take messages up to 8 MiB and refuse those over 4 MiB by reason (R12, settled 20)."""
    work = turns_pb2.Work(input="x" * (5 * 1024 * 1024))
    request = turns_pb2.StartTurnRequest(conversation_id="any", work=work)

    error = await refusal(service["gus"].turns.StartTurn(request))

    assert (error.reason, error.code) == ("INVALID_FIELD", grpc.StatusCode.INVALID_ARGUMENT)


@pytest.mark.parametrize("approve", [ApprovalSetting(expression="true"), ApprovalSetting(decider="cautious")])
async def test_a_setting_that_is_not_in_this_release_is_never_half_taken(
    service: Service, approve: ApprovalSetting
) -> None:
    """Nothing pretends (point 1)."""
    await service.agent("gardener", {"say": "Done."})
    error = await refusal(service.conversation("gardener", approve))

    assert error.reason == "NOT_IN_THIS_RELEASE"
    listed = await service["gus"].conversations.ListConversations(conversations_pb2.ListConversationsRequest())
    assert not listed.conversations


# Who may see what


@asynccontextmanager
async def strangers(service: Service) -> AsyncIterator[dict[str, Any]]:
    """Connections of those who look: by who, or by what is special about them."""
    other_tenant = service.token("hale", tenant="elsewhere", roles=EVERY_ROLE)
    yield {
        "stranger": service["stranger"],
        "builder": service["ana"],
        "host": service["worker"],
        "other tenant": service.client(other_tenant),
    }


async def test_what_somebody_may_not_see_is_not_there_for_them(service: Service) -> None:
    """NO_SUCH_THING to strangers and to other tenants, whatever their roles (R10)."""
    await service.agent("gardener", {"say": "Done."})
    conversation = await service.conversation("gardener")
    turn = await service.ended((await service.turn(conversation)).id)

    async with strangers(service) as clients:
        for who, client in clients.items():
            calls = [
                client.turns.GetTurn(turns_pb2.GetTurnRequest(turn_id=turn.id)),
                client.turns.ListRecords(turns_pb2.ListRecordsRequest(turn_id=turn.id)),
                client.turns.ResumeTurn(turns_pb2.ResumeTurnRequest(turn_id=turn.id)),
                client.turns.AbandonTurn(turns_pb2.AbandonTurnRequest(turn_id=turn.id)),
                client.conversations.GetConversation(
                    conversations_pb2.GetConversationRequest(conversation_id=conversation)
                ),
            ]
            for call in calls:
                assert (await refusal(call)).reason == "NO_SUCH_THING", who
            assert not (await client.turns.ListTurns(turns_pb2.ListTurnsRequest())).turns, who
    for who in ("gus", "hale", "audra"):
        assert (await service.get(turn.id, by=who)).id == turn.id
        assert [one.id for one in (await service[who].turns.ListTurns(turns_pb2.ListTurnsRequest())).turns] == [turn.id]


async def test_tenants_do_not_meet(service: Service) -> None:
    """The same names and ids in two tenants are two things (R10)."""
    elsewhere = service.client(service.token("gus", tenant="elsewhere", roles=EVERY_ROLE))
    mine = await service.agent("gardener", {"say": "Done."}, purpose="Here.")
    spec = agents_pb2.AgentSpec(
        name="gardener", purpose="There.", hosted=agents_pb2.HostedLoop(model="scripted:gardener")
    )
    theirs = (await elsewhere.agents.PutAgent(agents_pb2.PutAgentRequest(spec=spec))).agent
    opened = conversations_pb2.OpenConversationRequest(agent="gardener", conversation_id="one")
    here = await service["gus"].conversations.OpenConversation(opened)
    there = await elsewhere.conversations.OpenConversation(opened)
    work = turns_pb2.Work(input="Hi.")
    asked = turns_pb2.StartTurnRequest(conversation_id="one", work=work, request_id="same")
    first = (await service["gus"].turns.StartTurn(asked)).turn
    second = (await elsewhere.turns.StartTurn(asked)).turn

    assert mine.version != theirs.version
    assert here.conversation.create_time != there.conversation.create_time
    assert first.id != second.id
    assert (first.agent_version, second.agent_version) == (mine.version, theirs.version)
    listed = await elsewhere.turns.ListTurns(turns_pb2.ListTurnsRequest())
    assert [turn.id for turn in listed.turns] == [second.id]
    assert (await refusal(elsewhere.turns.GetTurn(turns_pb2.GetTurnRequest(turn_id=first.id)))).reason == (
        "NO_SUCH_THING"
    )
    await service.ended(first.id)


async def test_hosts_of_another_tenant_are_no_hosts_here(service: Service) -> None:
    """A tool is called on a host of the turn's own tenant alone, and listed to it alone."""
    client = service.client(service.token("worker", tenant="elsewhere"))
    never = asyncio.Event()

    async def said() -> AsyncIterator[tools_pb2.ServeRequest]:
        hello = tools_pb2.HostHello(host="far", incarnation="far", tools=[tools_pb2.Tool(name="read_note")])
        yield tools_pb2.ServeRequest(hello=hello)
        await never.wait()

    stream = client.tools.Serve(said())
    await anext(aiter(stream))
    listed = await service["gus"].tools.ListTools(tools_pb2.ListToolsRequest())
    stream.cancel()

    assert not listed.tools


async def test_work_for_somebody_else_needs_who_supervises(service: Service) -> None:
    """R10: `uses` gives work for themselves alone."""
    await service.agent("gardener", {"say": "Done."})
    conversation = await service.conversation("gardener", by="hale")
    for_gus = turns_pb2.StartTurnRequest(conversation_id=conversation, work=turns_pb2.Work(input="Hi.", work_for="gus"))
    own = await service.conversation("gardener", by="stranger")
    by_stranger = turns_pb2.StartTurnRequest(conversation_id=own, work=turns_pb2.Work(input="Hi.", work_for="gus"))

    turn = (await service["hale"].turns.StartTurn(for_gus)).turn
    error = await refusal(service["stranger"].turns.StartTurn(by_stranger))

    assert (turn.work_for.id, turn.given_by.id) == ("gus", "hale")
    assert error.reason == "NOT_ADMITTED"
    assert (await service.get(turn.id, by="gus")).id == turn.id
    await service.ended(turn.id)
