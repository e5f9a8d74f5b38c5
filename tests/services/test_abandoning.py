"""Stopping a turn from anywhere (A19, R5.1)."""

from __future__ import annotations

from typing import Any

from tutelage.runtime.v1 import approvals_pb2, turns_pb2
from tutelage.runtime.v1.journal_pb2 import TURN_END_ABANDONED

from tests.services.service import CHANGES_ASKED, Service, calls, kinds, refusal, whats
from tests.services.wire_host import wire_host

ASKS = calls(("wire_write", {"n": 1}))


async def abandon(service: Service, turn_id: str, why: str = "", by: str = "gus", **more: Any) -> turns_pb2.Turn:
    request = turns_pb2.AbandonTurnRequest(turn_id=turn_id, why=why, **more)
    return (await service[by].turns.AbandonTurn(request)).turn


async def test_a_running_turn_stops_and_what_it_had_not_written_is_not_kept(service: Service) -> None:
    """The fence's simplest test: who stops a turn is its next writer (A12, A19, R5.1, point 7)."""
    await service.agent("gardener", {"say": "Too late.", "delay_ms": 60_000})
    turn_id = await service.asked_of("gardener")
    await service.events(turn_id, lambda event: event.record.HasField("task_started"))

    turn = await abandon(service, turn_id, "I changed my mind.")
    await service.logged.heard("turn.superseded", turn=turn_id)

    assert (turn.state, turn.writer) == (turns_pb2.TURN_STATE_ABANDONED, 2)
    assert turn.cause == "I changed my mind."
    records = await service.records(turn_id)
    assert whats(records)[-2:] == ["writer_started", "turn_ended"]
    assert (records[-2].writer_started.why, records[-2].writer) == ("stopped", 2)
    ended = records[-1].turn_ended
    assert (ended.end, ended.by.id, ended.cause) == (TURN_END_ABANDONED, "gus", "I changed my mind.")
    assert "model_replied" not in whats(records)


async def test_a_waiting_turn_withdraws_its_question_and_takes_no_yes(service: Service) -> None:
    """WITHDRAWN, told to who watches; a yes afterwards: TURN_ENDED (A19, scenario 24)."""
    async with wire_host(service) as host:
        await service.agent("gardener", ASKS, {"say": "Done."}, tools=["wire_write"])
        turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
        asked = await service.question(turn_id)

        turn = await abandon(service, turn_id, by="hale")
        late = await refusal(service.yes(asked))
        no = await refusal(service.no(asked))
        assert not await host.was_sent("calls")

    assert (turn.state, turn.waiting_count) == (turns_pb2.TURN_STATE_ABANDONED, 0)
    assert (await service.approval(asked.id)).state == approvals_pb2.APPROVAL_STATE_WITHDRAWN
    assert (late.reason, late.code.name) == ("TURN_ENDED", "FAILED_PRECONDITION")
    assert no.reason == "TURN_ENDED"
    assert len(service.paid("gardener")) == 1


async def test_a_tool_that_runs_is_told_and_its_late_result_is_evidence(service: Service) -> None:
    """The call is listed and cancelled; what it returns is a `LateResult` behind `TurnEnded` (A19, scenario 24)."""
    async with wire_host(service) as host:
        await service.agent("gardener", ASKS, {"say": "Done."}, tools=["wire_write"])
        turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
        asked = await service.question(turn_id)
        await service.yes(asked)
        call = await host.call()

        turn = await abandon(service, turn_id)
        assert [one.call_id for one in turn.unfinished] == [call.call_id]
        assert list((await host.hear("cancelled")).call_ids) == [call.call_id]
        yes = await service.yes(asked)
        host.say(call, output_json='"it was sent"')
        assert list((await host.hear("taken")).call_ids) == [call.call_id]

    records = await service.records(turn_id)
    assert whats(records)[-2:] == ["turn_ended", "late_result"]
    late = records[-1]
    assert (late.late_result.call_id, late.late_result.output_json) == (call.call_id, '"it was sent"')
    assert late.writer == records[-2].writer + 1
    after = await service.get(turn_id)
    assert (after.state, list(after.unfinished)) == (turns_pb2.TURN_STATE_ABANDONED, [])
    assert yes.state == approvals_pb2.APPROVAL_STATE_APPROVED
    assert len(service.paid("gardener")) == 1


async def test_an_interrupted_turn_is_abandoned_with_what_may_have_run_listed(service: Service) -> None:
    """Or abandon: the other way out for what is unfinished (A14, A19)."""
    await service.restart(reconnect_seconds=0.5, approve="nothing")
    async with wire_host(service) as host:
        await service.agent("gardener", ASKS, {"say": "Done."}, tools=["wire_write"])
        turn_id = await service.asked_of("gardener")
        call = await host.call()
    await service.interrupted(turn_id)

    turn = await abandon(service, turn_id)

    assert turn.state == turns_pb2.TURN_STATE_ABANDONED
    assert [one.call_id for one in turn.unfinished] == [call.call_id]


async def test_a_queued_turn_is_abandoned_before_it_began_with_its_first_line(service: Service) -> None:
    """Its journal says what was asked, and that it was stopped (A19, R5.4)."""
    await service.agent("gardener", {"say": "Too late.", "delay_ms": 60_000})
    conversation = await service.conversation("gardener")
    first = await service.turn(conversation)
    queued = await service.turn(conversation, "Later.")
    assert queued.state == turns_pb2.TURN_STATE_QUEUED

    await abandon(service, queued.id)
    await abandon(service, first.id)

    records = await service.records(queued.id)
    assert whats(records) == ["turn_given", "writer_started", "turn_ended"]
    assert records[0].turn_given.input == "Later."
    assert "turn_given" in kinds(await service.events(queued.id, lambda event: event.HasField("ended")))


async def test_who_may_stop_a_turn(service: Service) -> None:
    """For whom it is, who gave it, who supervises (R10); to a stranger there is no such turn."""
    await service.agent("gardener", {"say": "Too late.", "delay_ms": 60_000})
    turn_id = await service.asked_of("gardener")

    assert (await refusal(abandon(service, turn_id, by="stranger"))).reason == "NO_SUCH_THING"
    assert (await refusal(abandon(service, turn_id, by="audra"))).reason == "NOT_ADMITTED"
    assert (await abandon(service, turn_id, by="ivy")).state == turns_pb2.TURN_STATE_ABANDONED


async def test_a_turn_that_has_ended_is_not_ended_again(service: Service) -> None:
    """TURN_ENDED, but for the same request_id (settled 14)."""
    await service.agent("gardener", {"say": "Too late.", "delay_ms": 60_000})
    turn_id = await service.asked_of("gardener")
    first = await abandon(service, turn_id, request_id="once")

    again = await abandon(service, turn_id, request_id="once")
    other = await refusal(abandon(service, turn_id, request_id="twice"))
    reused = await refusal(abandon(service, turn_id, "Why not?", request_id="once"))

    assert again == first
    assert other.reason == "TURN_ENDED"
    assert reused.reason == "REQUEST_ID_REUSED"
