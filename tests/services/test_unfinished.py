"""Calls that may have run, and hosts that come back: what is told apart, and what needs a person (A14, A16, D4, D9)."""

from __future__ import annotations

import time

import pytest
from tutelage import Tutelage
from tutelage.runtime.v1 import tools_pb2, turns_pb2
from tutelage.runtime.v1.journal_pb2 import TOOL_END_RESOLVED
from tutelage.runtime.v1.tools_pb2 import NotRun
from tutelage.runtime.v1.turns_pb2 import Resolution, RunAgain
from tutelage.tools import CHANGES

from tests.services.book import Book
from tests.services.service import NOTHING_ASKED, Service, calls, refusal, whats
from tests.services.wire_host import ANY_INPUT, WIRE_TOOLS, wire_host

# How long a host that went is waited for here.
RECONNECT = 0.6


@pytest.fixture
async def brisk(service: Service) -> Service:
    """A service that does not wait long for a host that went, and asks nothing."""
    await service.restart(reconnect_seconds=RECONNECT, approve="nothing")
    return service


async def begins(service: Service, *inputs: str, tool: str = "wire_write") -> str:
    """Start a turn whose model calls a tool, once for each input in one reply; return its id."""
    asked = [(tool, {"n": text}) for text in inputs or ("1",)]
    await service.agent("gardener", calls(*asked), {"say": "Done."}, tools=[tool])
    return await service.asked_of("gardener")


async def loses_host(service: Service, *inputs: str) -> tuple[str, list[tools_pb2.ToolCall]]:
    """Have a host receive calls and go without a word; return the turn, interrupted, and the calls."""
    async with wire_host(service) as host:
        turn_id = await begins(service, *inputs)
        received: list[tools_pb2.ToolCall] = []
        while len(received) < max(1, len(inputs)):
            received += (await host.hear("calls")).calls
    await service.interrupted(turn_id)
    return turn_id, received


async def resume(client: Tutelage, turn_id: str, *resolutions: Resolution, request_id: str = "") -> turns_pb2.Turn:
    request = turns_pb2.ResumeTurnRequest(turn_id=turn_id, resolutions=resolutions, request_id=request_id)
    return (await client.turns.ResumeTurn(request)).turn


async def test_what_may_have_run_is_listed_and_does_not_run_again_by_itself(brisk: Service) -> None:
    """Not by another host, not by a restart (A14, R6.5, scenario 3)."""
    turn_id, [call] = await loses_host(brisk)
    async with wire_host(brisk, incarnation="another") as another:
        assert not await another.was_sent("calls")
    await brisk.restart()
    async with wire_host(brisk, incarnation="third") as third:
        turn = await brisk.get(turn_id)

        [listed] = turn.unfinished
        assert turn.state == turns_pb2.TURN_STATE_INTERRUPTED
        assert (listed.call_id, listed.tool, listed.host) == (call.call_id, "wire_write", "wire")
        assert (listed.address, listed.input_json) == ("gardener/wire_write#1", '{"n":"1"}')
        assert listed.start_time.ToDatetime() <= turn.update_time.ToDatetime()
        assert "wire_write" in turn.cause

        await resume(brisk["gus"], turn_id, Resolution(call_id=call.call_id, output_json='"fine"'))
        await brisk.ended(turn_id)
        assert not await third.was_sent("calls")

    records = await brisk.records(turn_id)
    assert whats(records).count("tool_started") == 1
    assert len(brisk.paid("gardener")) == 2


async def test_a_person_says_what_it_returned(brisk: Service) -> None:
    """The model is told the output as if the tool had returned it; the record says who said so (A14, R6.5)."""
    turn_id, [call] = await loses_host(brisk)

    await resume(brisk["hale"], turn_id, Resolution(call_id=call.call_id, output_json='{"sent": 7}'))
    turn = await brisk.ended(turn_id)

    assert turn.output == "Done."
    assert not turn.unfinished
    assert brisk.paid("gardener")[-1]["results"] == ['{"sent": 7}']
    resolved = await brisk.record(turn_id, "unfinished_resolved")
    done = await brisk.record(turn_id, "tool_done")
    assert (resolved.call_id, resolved.by.id, resolved.output_json) == (call.call_id, "hale", '{"sent": 7}')
    assert resolved.proof.token_sha256
    assert done.end == TOOL_END_RESOLVED
    started = [one.writer_started.why for one in await brisk.records(turn_id) if one.HasField("writer_started")]
    assert started == ["given", "resumed"]


async def test_a_person_says_that_it_failed(brisk: Service) -> None:
    """The model is told the error (A14, R6.5)."""
    turn_id, [call] = await loses_host(brisk)

    await resume(brisk["gus"], turn_id, Resolution(call_id=call.call_id, error="The post office was shut."))
    await brisk.ended(turn_id)

    assert brisk.paid("gardener")[-1]["results"] == ["The post office was shut."]


async def test_run_again_is_a_new_attempt_of_the_same_call(brisk: Service) -> None:
    """A new call_id, attempt 2, the same idempotency key; it is on disk before it is sent (A14, D9, R6.5)."""
    turn_id, [first] = await loses_host(brisk)

    async with wire_host(brisk) as host:
        await resume(brisk["gus"], turn_id, Resolution(call_id=first.call_id, run_again=RunAgain()))
        second = await host.call()
        host.say(second, output_json='"this time"')
        await brisk.ended(turn_id)

    assert (first.attempt, second.attempt) == (1, 2)
    assert first.call_id != second.call_id
    assert first.idempotency_key == second.idempotency_key
    assert brisk.paid("gardener")[-1]["results"] == ["this time"]
    assert len(brisk.paid("gardener")) == 2


async def test_wrong_resolutions_are_refused_whole_and_every_one_named(brisk: Service) -> None:
    """Missing, twice, of no such call, without an outcome, no JSON (R12, settled 13)."""
    turn_id, [one, two] = await loses_host(brisk, "1", "2")
    known = Resolution(call_id=one.call_id, output_json="1")

    missing = await refusal(resume(brisk["gus"], turn_id, known))
    none = await refusal(resume(brisk["gus"], turn_id))
    several = await refusal(
        resume(brisk["gus"], turn_id, known, known, Resolution(call_id="nobody's", output_json="1"))
    )
    of_form = await refusal(
        resume(brisk["gus"], turn_id, Resolution(call_id=one.call_id), Resolution(call_id=two.call_id, output_json="{"))
    )

    assert {error.reason for error in (missing, none, several, of_form)} == {"INVALID_FIELD"}
    assert two.call_id in dict(missing.fields)["resolutions"]
    assert [path for path, _ in none.fields] == ["resolutions"]
    assert {path for path, _ in several.fields} == {
        "resolutions[1].call_id",
        "resolutions[2].call_id",
        "resolutions",
    }
    assert [path for path, _ in of_form.fields] == ["resolutions[0]", "resolutions[1].output_json"]
    assert len((await brisk.get(turn_id)).unfinished) == 2


async def test_only_a_person_may_say_what_became_of_a_call(brisk: Service) -> None:
    """Resolutions need a person (R6.5, R10); who may not see the turn is told of none."""
    turn_id, [call] = await loses_host(brisk)
    word = Resolution(call_id=call.call_id, output_json="1")

    for who in ("robot", "gateway"):
        assert (await refusal(resume(brisk[who], turn_id, word))).reason == "PERSON_REQUIRED"
    assert (await refusal(resume(brisk["audra"], turn_id, word))).reason == "NOT_ADMITTED"
    assert (await refusal(resume(brisk["stranger"], turn_id, word))).reason == "NO_SUCH_THING"
    assert len((await brisk.get(turn_id)).unfinished) == 1


async def test_a_turn_that_is_not_stopped_is_returned_as_it_is(brisk: Service, book: Book) -> None:
    """ResumeTurn of a RUNNING or a QUEUED turn (settled 13)."""
    async with brisk.host("slow", book.slow_write()):
        await brisk.agent("gardener", calls(("slow_write", {"name": "x"})), {"say": "Done."}, tools=["slow_write"])
        conversation = await brisk.conversation("gardener")
        running = await brisk.turn(conversation)
        queued = await brisk.turn(conversation)
        await book.slow_began.wait()

        assert (await resume(brisk["gus"], running.id)).state == turns_pb2.TURN_STATE_RUNNING
        assert (await resume(brisk["gus"], queued.id)).state == turns_pb2.TURN_STATE_QUEUED
        book.slow_may_end.set()
        await brisk.ended(queued.id)

    assert (await refusal(resume(brisk["gus"], running.id))).reason == "TURN_ENDED"


async def test_a_changing_tool_past_its_deadline_is_unfinished_and_no_error_to_the_model(brisk: Service) -> None:
    """A changing call never gets an end without its host's or a person's word (R6.5, scenario 24e)."""
    slow = tools_pb2.Tool(name="wire_write", input_schema_json=ANY_INPUT, effects=CHANGES)
    slow.timeout.FromMilliseconds(300)
    async with wire_host(brisk, [slow]) as host:
        turn_id = await begins(brisk)
        call = await host.call()
        turn = await brisk.interrupted(turn_id)
        assert [one.call_id for one in turn.unfinished] == [call.call_id]
        assert call.call_id in (await host.hear("cancelled")).call_ids
        assert len(brisk.paid("gardener")) == 1

        host.say(call, output_json='"late, but here"')
        await brisk.ended(turn_id)

    assert brisk.paid("gardener")[-1]["results"] == ["late, but here"]


# What is on disk before what is sent


async def test_a_change_is_on_disk_with_host_incarnation_and_session_before_it_is_sent(brisk: Service) -> None:
    """`ToolStarted` stands before the host has the call; `ToolDone` after it (A16, R5.2)."""
    async with wire_host(brisk) as host:
        turn_id = await begins(brisk)
        call = await host.call()
        before = await brisk.records(turn_id)
        host.say(call, output_json="1")
        await brisk.ended(turn_id)

    started = before[-1].tool_started
    assert (started.call_id, started.attempt, started.tool) == (call.call_id, 1, "wire_write")
    assert (started.host, started.incarnation, started.session) == ("wire", host.incarnation, 1)
    after = whats(await brisk.records(turn_id))
    assert after.index("tool_started") < after.index("tool_done")
    assert call.idempotency_key == f"{turn_id}/gardener/wire_write#1"
    assert (call.turn_id, call.address) == (turn_id, "gardener/wire_write#1")


async def test_a_read_leaves_no_start_and_no_row(brisk: Service) -> None:
    """Only a tool that changes things waits for the disk; a read has its result alone (A16, R5.2, R5.3)."""
    async with wire_host(brisk) as host:
        turn_id = await begins(brisk, tool="wire_read")
        call = await host.call()
        assert brisk.rows("select count(*) from calls") == [(0,)]
        host.say(call, output_json='"seen"')
        await brisk.ended(turn_id)

    records = whats(await brisk.records(turn_id))
    assert "tool_started" not in records
    assert records.count("tool_done") == 1


async def test_a_read_whose_host_goes_is_run_again(brisk: Service) -> None:
    """A read whose result was lost runs again, by whoever offers it (R5.3)."""
    async with wire_host(brisk) as gone:
        turn_id = await begins(brisk, tool="wire_read")
        await gone.call()
    async with wire_host(brisk) as host:
        call = await host.call()
        host.say(call, output_json='"seen"')
        turn = await brisk.ended(turn_id)

    assert turn.output == "Done."
    assert not turn.unfinished


# Sessions: what never arrived is told from what may have run


async def test_a_call_that_never_arrived_is_sent_again_under_its_id(brisk: Service) -> None:
    """The next hello does not name it in `holding`: it did not run (D9, R6.6)."""
    async with wire_host(brisk) as first:
        turn_id = await begins(brisk)
        call = await first.call()
    async with wire_host(brisk, incarnation=first.incarnation) as second:
        again = await second.call()
        second.say(again, output_json="1")
        await brisk.ended(turn_id)

    assert (first.welcome.session, second.welcome.session) == (1, 2)
    assert (again.call_id, again.attempt) == (call.call_id, 1)
    assert whats(await brisk.records(turn_id)).count("tool_started") == 1


async def test_a_call_that_the_host_holds_is_waited_for_and_not_sent_again(brisk: Service) -> None:
    """The host names it in `holding`, and its result settles it (D4, D9, R6.6, scenario 24a)."""
    async with wire_host(brisk) as first:
        turn_id = await begins(brisk)
        call = await first.call()
    async with wire_host(brisk, incarnation=first.incarnation, holding=[call.call_id]) as second:
        second.say(call, output_json='"kept"')
        assert list((await second.hear("taken")).call_ids) == [call.call_id]
        await brisk.ended(turn_id)
        assert not await second.was_sent("calls")

    assert brisk.paid("gardener")[-1]["results"] == ["kept"]


async def test_a_result_that_was_taken_and_comes_again_is_taken_again_and_counts_once(brisk: Service) -> None:
    """The stream broke before `taken` was read (D9, scenario 24a)."""
    async with wire_host(brisk) as first:
        turn_id = await begins(brisk)
        call = await first.call()
        first.say(call, output_json='"once"')
        await brisk.ended(turn_id)
    async with wire_host(brisk, incarnation=first.incarnation, holding=[call.call_id]) as second:
        second.say(call, output_json='"once"')
        assert list((await second.hear("taken")).call_ids) == [call.call_id]

    records = whats(await brisk.records(turn_id))
    assert (records.count("tool_done"), records.count("late_result")) == (1, 0)


async def test_a_host_that_says_it_did_not_run_gets_or_leaves_a_new_attempt(brisk: Service) -> None:
    """`not_run`: a new attempt, a new id, the same key (D9, R6.5)."""
    async with wire_host(brisk) as host:
        turn_id = await begins(brisk)
        first = await host.call()
        host.say(first, not_run=NotRun())
        second = await host.call()
        host.say(second, output_json="1")
        await brisk.ended(turn_id)

    assert (first.attempt, second.attempt) == (1, 2)
    assert first.call_id != second.call_id
    assert first.idempotency_key == second.idempotency_key


async def test_a_host_that_returns_after_all_settles_what_was_unfinished(brisk: Service) -> None:
    """However late, and the turn goes on by itself (D4, R6.6)."""
    async with wire_host(brisk) as host:
        turn_id = await begins(brisk)
        call = await host.call()
    await brisk.interrupted(turn_id)

    async with wire_host(brisk, incarnation=host.incarnation, holding=[call.call_id]) as returned:
        returned.say(call, output_json='"after all"')
        turn = await brisk.ended(turn_id)

    assert not turn.unfinished
    assert brisk.paid("gardener")[-1]["results"] == ["after all"]
    started = [one.writer_started.why for one in await brisk.records(turn_id) if one.HasField("writer_started")]
    assert started == ["given", "settled"]


async def test_a_result_reported_without_a_stream_settles_too(brisk: Service) -> None:
    """`ReportResults`, by the account that opened the incarnation alone (D4, R6.6, R10)."""
    async with wire_host(brisk) as host:
        turn_id = await begins(brisk)
        call = await host.call()
    await brisk.interrupted(turn_id)
    report = tools_pb2.ReportResultsRequest(
        incarnation=host.incarnation, results=[tools_pb2.CallResult(call_id=call.call_id, output_json='"by post"')]
    )

    error = await refusal(brisk["other-worker"].tools.ReportResults(report))
    assert len((await brisk.get(turn_id)).unfinished) == 1
    taken = await brisk["worker"].tools.ReportResults(report)
    await brisk.ended(turn_id)

    assert error.reason == "NOT_ADMITTED"
    assert list(taken.taken_call_ids) == [call.call_id]
    assert brisk.paid("gardener")[-1]["results"] == ["by post"]


async def test_a_result_of_the_first_attempt_while_the_second_runs_is_evidence(brisk: Service) -> None:
    """It settles nothing: `LateResult` (D9, R6.6, scenario 24c)."""
    async with wire_host(brisk) as first_host:
        turn_id = await begins(brisk)
        first = await first_host.call()
    await brisk.interrupted(turn_id)
    async with wire_host(brisk) as second_host:
        await resume(brisk["gus"], turn_id, Resolution(call_id=first.call_id, run_again=RunAgain()))
        second = await second_host.call()
        async with wire_host(brisk, incarnation=first_host.incarnation, holding=[first.call_id]) as returned:
            returned.say(first, output_json='"first"')
            await returned.hear("taken")
            second_host.say(second, output_json='"second"')
            await brisk.ended(turn_id)

    late = await brisk.record(turn_id, "late_result")
    assert (late.call_id, late.output_json, late.failed) == (first.call_id, '"first"', False)
    assert brisk.paid("gardener")[-1]["results"] == ["second"]


async def test_another_account_cannot_speak_for_an_incarnation(brisk: Service) -> None:
    """R10: results only from the account that opened the incarnation."""
    async with wire_host(brisk) as host:
        stranger = wire_host(brisk, incarnation=host.incarnation, who="other-worker")
        error = await refusal(stranger.__aenter__())

    assert error.reason == "NOT_ADMITTED"


async def test_a_host_through_a_restart_of_the_service_loses_nothing(brisk: Service, book: Book) -> None:
    """The tool runs on while the service is away; its result is taken by the next process (A11, D4, R6.6)."""
    await brisk.restart(reconnect_seconds=20.0)
    async with brisk.host("slow", book.slow_write()):
        await brisk.agent("gardener", calls(("slow_write", {"name": "x"})), {"say": "Done."}, tools=["slow_write"])
        turn_id = await brisk.asked_of("gardener")
        await book.slow_began.wait()
        await brisk.stop()
        book.slow_may_end.set()
        await brisk.start()
        turn = await brisk.ended(turn_id)

    assert turn.writer == 2
    assert not turn.unfinished
    assert len(book.runs()) == 1
    assert brisk.paid("gardener")[-1]["results"] == ["wrote x slowly"]


async def test_an_approved_call_without_a_host_waits_for_one_and_keeps_its_yes(brisk: Service) -> None:
    """The turn is interrupted with its cause, burns nothing, and goes on when a host is back (R6.7, scenario 21)."""
    await brisk.restart(approve="changes")
    async with wire_host(brisk):
        turn_id = await begins(brisk)
        asked = await brisk.question(turn_id)
    await brisk.yes(asked)

    stopped = await brisk.events(turn_id, lambda event: event.HasField("interrupted"))
    assert "no connected host offers wire_write" in stopped[-1].interrupted.cause
    async with wire_host(brisk) as host:
        call = await host.call()
        host.say(call, output_json="1")
        turn = await brisk.ended(turn_id)

    assert turn.output == "Done."
    assert whats(await brisk.records(turn_id)).count("approval_asked") == 1


async def test_a_host_of_as_many_tools_as_there_may_be_wakes_what_waits_for_one(brisk: Service) -> None:
    """A hello has 1,000 tools at most; whichever a turn waits for, it goes on (R6.7)."""
    await brisk.restart(approve="changes")
    async with wire_host(brisk):
        turn_id = await begins(brisk)
        asked = await brisk.question(turn_id)
    await brisk.yes(asked)
    await brisk.events(turn_id, lambda event: event.HasField("interrupted"))

    others = [tools_pb2.Tool(name=f"tool-{n}", input_schema_json=ANY_INPUT) for n in range(998)]
    async with wire_host(brisk, [*others, *WIRE_TOOLS]) as host:
        host.say(await host.call(), output_json="1")
        turn = await brisk.ended(turn_id)

    assert turn.output == "Done."


async def test_an_approved_call_without_its_host_rests_while_another_is_still_asked(brisk: Service) -> None:
    """The turn rests and burns nothing; each goes on by its own word (R3.1, R6.7, scenario 24g)."""
    await brisk.restart(approve="changes")
    async with wire_host(brisk):
        turn_id = await begins(brisk, "1", "2")
        one, two = await brisk.questions(turn_id, 2)
        await brisk.at_rest(turn_id)
    await brisk.yes(one)
    stopped = await brisk.events(turn_id, lambda event: event.HasField("interrupted"))
    at_rest = stopped[-1].interrupted
    assert (at_rest.state, at_rest.waiting_count) == (turns_pb2.TURN_STATE_INTERRUPTED, 1)

    await brisk.no(two)
    async with wire_host(brisk) as host:
        host.say(await host.call(), output_json="1")
        turn = await brisk.ended(turn_id)

    assert brisk.paid("gardener")[-1]["results"] == ["1", "The person did not allow this call."]
    assert turn.writer <= 5


async def test_begin_by_is_at_most_half_of_reconnect_within_from_the_send(brisk: Service) -> None:
    """R6.6: counted from the hello of this session."""
    before = time.monotonic()
    async with wire_host(brisk) as host:
        turn_id = await begins(brisk)
        call = await host.call()
        since_hello = time.monotonic() - before
        host.say(call, output_json="1")
        await brisk.ended(turn_id)

    within = host.welcome.reconnect_within.ToTimedelta().total_seconds()
    assert within == pytest.approx(RECONNECT)
    assert RECONNECT / 2 <= call.begin_by.ToTimedelta().total_seconds() <= RECONNECT / 2 + since_hello


async def test_nothing_asked_means_that_nothing_is_asked(brisk: Service) -> None:
    """`nothing` at every level (A4, R2.1)."""
    async with wire_host(brisk) as host:
        await brisk.agent("gardener", calls(("wire_write", {})), {"say": "Done."}, tools=["wire_write"])
        turn_id = await brisk.asked_of("gardener", approve=NOTHING_ASKED)
        host.say(await host.call(), output_json="1")
        await brisk.ended(turn_id)

    assert "approval_asked" not in whats(await brisk.records(turn_id))
