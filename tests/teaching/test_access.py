"""Who may call what (`runtime.md` R10): every RPC of the contract, every kind of caller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from tutelage.errors import TutelageError
from tutelage.teaching.v1 import (
    corrections_pb2,
    events_pb2,
    instructions_pb2,
    privacy_pb2,
    tasks_pb2,
)

from tests.teaching.service import Teaching, named, refusal

FILES = (corrections_pb2, events_pb2, instructions_pb2, privacy_pb2, tasks_pb2)
TEACH = {
    "ReviseInstruction",
    "ActivateInstruction",
    "RejectInstruction",
    "RetireInstruction",
    "RollBackInstructions",
}
RUNTIME = {"BeginTask", "CheckSets", "TakeUpInstructions", "RecordProposals"}
READ = {
    "GetInstruction",
    "ListInstructions",
    "GetInstructionSet",
    "ListInstructionSets",
    "PreviewBlock",
    "GetEffect",
    "DraftInstruction",
}
# Whose work it is decides, or their own: the guard lets everybody signed in through.
BY_THE_THING = {
    "CorrectWork",
    "WithdrawCorrection",
    "GetCorrection",
    "ListCorrections",
    "GetTask",
    "ListTasks",
    "ExplainTask",
    "WatchTeaching",
    "ExportPerson",
    "ErasePerson",
}
LATER = {"DraftInstruction", "ExportPerson", "ErasePerson"}

# By caller: whether they read, and what they are told where they would teach or be the runtime; empty: let through.
CALLERS: dict[str, tuple[bool, str, str]] = {
    "gus": (True, "NOT_ADMITTED", "NOT_ADMITTED"),
    "hale": (True, "", "NOT_ADMITTED"),
    "audra": (True, "NOT_ADMITTED", "NOT_ADMITTED"),
    "nobody": (False, "NOT_ADMITTED", "NOT_ADMITTED"),
    "pretender": (False, "NOT_ADMITTED", "NOT_ADMITTED"),
    "robot": (True, "PERSON_REQUIRED", "NOT_ADMITTED"),
    "gateway": (True, "PERSON_REQUIRED", "NOT_ADMITTED"),
    "runtime": (False, "PERSON_REQUIRED", ""),
}


def _methods() -> Iterator[MethodDescriptor]:
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            yield from service.methods


METHODS = {method.name: method for method in _methods()}


def test_the_tables_here_have_every_rpc_of_the_contract_once() -> None:
    kinds = (TEACH, RUNTIME, READ, BY_THE_THING, {"ProposeInstruction"})
    assert sorted(METHODS) == sorted(name for kind in kinds for name in kind)


def _expected(who: str, rpc: str) -> str:
    reads, teaching, being_the_runtime = CALLERS[who]
    if rpc in TEACH:
        return teaching
    if rpc in RUNTIME:
        return being_the_runtime
    if rpc in READ:
        return "" if reads else "NOT_ADMITTED"
    if rpc == "ProposeInstruction":
        return "" if reads or who == "runtime" else "NOT_ADMITTED"
    return ""


async def _told(teaching: Teaching, who: str, rpc: str) -> str:
    """Call an RPC with nothing in its request, and return the reason of its refusal."""
    method = METHODS[rpc]
    path = f"/{method.containing_service.full_name}/{rpc}"
    request = GetMessageClass(method.input_type)()
    channel: Any = teaching[who].channel
    kinds = (lambda message: message.SerializeToString(), GetMessageClass(method.output_type).FromString)
    try:
        if method.server_streaming:
            call = channel.unary_stream(path, *kinds)(request, metadata=named())
            await anext(aiter(call))
            call.cancel()
        else:
            await channel.unary_unary(path, *kinds)(request, metadata=named())
    except TutelageError as error:
        return error.reason
    return ""


@pytest.mark.parametrize("who", CALLERS)
async def test_every_rpc_admits_who_may_call_it_and_tells_the_others_why(teaching: Teaching, who: str) -> None:
    """R10, T2.2: the kind before the role."""
    told = {rpc: await _told(teaching, who, rpc) for rpc in METHODS}

    refused = {rpc: reason if reason in ("NOT_ADMITTED", "PERSON_REQUIRED") else "" for rpc, reason in told.items()}
    assert refused == {rpc: _expected(who, rpc) for rpc in METHODS}
    assert {rpc for rpc, reason in told.items() if reason == "NOT_IN_THIS_RELEASE"} == {
        rpc for rpc in LATER if not _expected(who, rpc)
    }


async def test_what_a_caller_says_of_themselves_beside_their_token_is_ignored(teaching: Teaching) -> None:
    """Settled 2, scenario 34."""
    proposal = await teaching.propose("Be brief.")
    request = instructions_pb2.ActivateInstructionRequest(
        instruction_id=proposal.id, guidance_hash=proposal.guidance_hash
    )
    for metadata in (
        [("x-user", "hale"), ("x-roles", "teaches"), ("tutelage-roles", "teaches")],
        [("tutelage-tenant", "elsewhere")],
    ):
        refused = await refusal(teaching["gus"].instructions.ActivateInstruction(request, metadata=metadata))
        assert refused.reason == "NOT_ADMITTED"


async def test_one_tenant_sees_nothing_of_another(teaching: Teaching) -> None:
    """R10: whatever the role; what is the same in both is two things."""
    task_id, _ = await teaching.begin()
    correction = await teaching.correct(task_id)
    active = await teaching.teach("Here.")
    other = teaching.client(
        teaching.token("hale", tenant="elsewhere", roles=["teaches", "supervises", "audits", "uses"])
    )

    refused = [
        await refusal(call)
        for call in (
            other.tasks.GetTask(tasks_pb2.GetTaskRequest(task_id=task_id)),
            other.corrections.GetCorrection(corrections_pb2.GetCorrectionRequest(correction_id=correction.id)),
            other.instructions.GetInstruction(instructions_pb2.GetInstructionRequest(instruction_id=active.id)),
            other.instructions.RetireInstruction(
                instructions_pb2.RetireInstructionRequest(instruction_id=active.id, why="Mine.")
            ),
            other.instructions.GetInstructionSet(instructions_pb2.GetInstructionSetRequest(agent="Tagger", number=1)),
        )
    ]
    listed = await other.instructions.ListInstructions(instructions_pb2.ListInstructionsRequest())
    newest = await other.instructions.GetInstructionSet(instructions_pb2.GetInstructionSetRequest(agent="Tagger"))

    assert {one.reason for one in refused} == {"NO_SUCH_THING"}
    assert list(listed.instructions) == []
    assert newest.set.number == 0
