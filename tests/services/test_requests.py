"""Requests that come again after a lost response: one turn, one answer (R9, scenario 6)."""

from __future__ import annotations

from typing import Any

import pytest
from tutelage.runtime.v1 import approvals_pb2, turns_pb2
from tutelage.runtime.v1.turns_pb2 import IF_BUSY_BRANCH, Resolution, RunAgain

from tests.postgres import both_databases
from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, Service, calls, refusal, whats
from tests.services.wire_host import wire_host

pytestmark = both_databases

WRITE = ("write_note", {"name": "spring", "text": "tulips"})


async def test_the_same_start_is_the_same_turn(service: Service) -> None:
    """By tenant, account and rpc; another request under its id is refused; a restart forgets nothing."""
    await service.agent("gardener", {"say": "Done."})
    conversation = await service.conversation("gardener", by="hale")

    first = await service.turn(conversation, "One.", by="hale", request_id="r1")
    await service.restart()
    again = await service.turn(conversation, "One.", by="hale", request_id="r1")
    other = await refusal(service.turn(conversation, "Two.", by="hale", request_id="r1"))
    somebody_elses = await service.turn(conversation, "Two.", by="ivy", request_id="r1", if_busy=IF_BUSY_BRANCH)

    assert again.id == first.id
    assert other.reason == "REQUEST_ID_REUSED"
    assert somebody_elses.id != first.id
    await service.ended(first.id, by="hale")
    listed = await service["hale"].turns.ListTurns(turns_pb2.ListTurnsRequest(conversation_id=conversation))
    assert len(listed.turns) == 2


@pytest.mark.usefixtures("host")
async def test_the_same_decision_is_taken_once(service: Service, book: Book) -> None:
    """Also once it is settled; another decision under its id is refused."""
    await service.agent("gardener", calls(WRITE), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    asked = await service.question(turn_id)

    await service.yes(asked, request_id="d1")
    await service.ended(turn_id)
    again = await service.yes(asked, request_id="d1")
    other = await refusal(service.no(asked, request_id="d1"))

    assert again.state == approvals_pb2.APPROVAL_STATE_APPROVED
    assert len(again.answers) == 1
    assert other.reason == "REQUEST_ID_REUSED"
    assert len(book.runs()) == 1


@pytest.mark.usefixtures("host")
async def test_the_same_answer_to_a_whole_turn_is_taken_once(service: Service, book: Book) -> None:
    """`DecideTurn` repeated returns what it settled, also after the turn has ended."""
    await service.agent("gardener", calls(WRITE, WRITE), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    seen = [asked.fingerprint for asked in await service.questions(turn_id, 2)]
    request = approvals_pb2.DecideTurnRequest(
        turn_id=turn_id, decision=approvals_pb2.DECISION_APPROVE, fingerprints=seen, request_id="t1"
    )

    first = await service["gus"].approvals.DecideTurn(request)
    await service.ended(turn_id)
    again = await service["gus"].approvals.DecideTurn(request)

    assert [one.id for one in again.approvals] == [one.id for one in first.approvals]
    assert len(book.runs()) == 2


async def test_the_same_resolution_is_taken_once(service: Service) -> None:
    """A retry of `ResumeTurn` neither resolves twice nor runs again twice."""
    await service.restart(reconnect_seconds=0.5, approve="nothing")
    await service.agent("gardener", calls(("wire_write", {})), {"say": "Done."}, tools=["wire_write"])
    async with wire_host(service) as lost:
        turn_id = await service.asked_of("gardener")
        call = await lost.call()
    await service.interrupted(turn_id)

    def request(**outcome: Any) -> turns_pb2.ResumeTurnRequest:
        word = Resolution(call_id=call.call_id, **outcome)
        return turns_pb2.ResumeTurnRequest(turn_id=turn_id, resolutions=[word], request_id="u1")

    async with wire_host(service) as host:
        await service["gus"].turns.ResumeTurn(request(run_again=RunAgain()))
        second = await host.call()
        await service["gus"].turns.ResumeTurn(request(run_again=RunAgain()))
        other = await refusal(service["gus"].turns.ResumeTurn(request(output_json="1")))
        host.say(second, output_json="1")
        await service.ended(turn_id)
        after = await service["gus"].turns.ResumeTurn(request(run_again=RunAgain()))

    assert other.reason == "REQUEST_ID_REUSED"
    assert after.turn.state == turns_pb2.TURN_STATE_DONE
    assert whats(await service.records(turn_id)).count("tool_started") == 2


async def test_a_request_id_that_is_none_is_refused(service: Service) -> None:
    """Any text without NUL, at most 256 bytes (settled 16)."""
    await service.agent("gardener", {"say": "Done."})
    conversation = await service.conversation("gardener")

    for request_id in ("a\0b", "é" * 129):
        error = await refusal(service.turn(conversation, request_id=request_id))
        assert [path for path, _ in error.fields] == ["request_id"]
    assert (await service.turn(conversation, request_id="é" * 128)).id
