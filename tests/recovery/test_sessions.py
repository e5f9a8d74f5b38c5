"""Sessions and results (R6.6; D4, D9): what never arrived is told from what may have run, and no result is lost."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from tutelage.runtime.v1.tools_pb2 import HostHello, ServeRequest, Tool, ToolCall
from tutelage.runtime.v1.turns_pb2 import Resolution, RunAgain

from tests.recovery.conftest import HostMaker
from tests.recovery.hand_host import HandHost, Stream, changes, failed, not_run, reads, returned
from tests.recovery.house import NOTHING, House, Rules, until

ONE_CALL: Rules = [
    {"when": "step == 0", "calls": [{"tool": "write"}]},
    {"say": "Done."},
]
TWO_CALLS: Rules = [
    {"when": "step == 0", "calls": [{"tool": "write", "input": {"n": 1}}, {"tool": "write", "input": {"n": 2}}]},
    {"say": "Done."},
]
ONE_READ: Rules = [
    {"when": "step == 0", "calls": [{"tool": "look"}]},
    {"when": "step == 1 && results[0] != 'seen'", "say": "Not seen."},
    {"say": "Done."},
]


async def begun(here: House, rules: Rules = ONE_CALL, tool: str = "write") -> str:
    await here.agent("agent", rules, [tool])
    return await here.begin("agent", NOTHING)


async def test_a_call_that_never_arrived_is_sent_again_under_its_id(here: House, host: HostMaker) -> None:
    """D9: `holding` does not name it, so it did not run, and no new attempt is needed."""
    one = await host(changes("write"))
    turn = await begun(here)
    call = await one.stream.call()
    first = one.stream
    stream = await one.connect(holding=())
    again = await stream.call()
    assert (again.call_id, again.attempt, again.idempotency_key) == (call.call_id, 1, call.idempotency_key)
    assert (first.welcome.session, stream.welcome.session) == (1, 2)
    await one.say(returned(again))
    await stream.hears("taken", again)
    await here.comes_to(turn, "DONE")
    assert len(await here.of_kind(turn, "tool_started")) == 1
    await here.assert_sound()


async def test_a_call_that_is_held_is_not_sent_again(here: House, host: HostMaker) -> None:
    """D9: `holding` names it, so it goes on where it is."""
    one = await host(changes("write"))
    turn = await begun(here)
    call = await one.stream.call()
    one.stream.break_()
    stream = await one.connect(holding=[call.call_id])
    await stream.no_call()
    await one.say(returned(call))
    await stream.hears("taken", call)
    await here.comes_to(turn, "DONE")
    assert [done.call_id for done in await here.of_kind(turn, "tool_done")] == [call.call_id]


async def test_a_result_that_was_not_taken_is_sent_again_and_counts_once(here: House, host: HostMaker) -> None:
    """24a: the stream breaks between the result and `taken`; the tool is not run again."""
    one = await host(changes("write"))
    turn = await begun(here)
    call = await one.stream.call()
    await one.say(returned(call, '"first"'))
    one.stream.break_()
    stream = await one.connect(holding=[call.call_id])
    await one.say(returned(call, '"first"'))
    await stream.hears("taken", call)
    await stream.no_call()
    await here.comes_to(turn, "DONE")
    assert [done.output_json for done in await here.of_kind(turn, "tool_done")] == ['"first"']
    assert await here.of_kind(turn, "late_result") == []


async def test_a_result_comes_without_a_stream(here: House, host: HostMaker) -> None:
    """ReportResults counts as the stream does; another account's does not."""
    one = await host(changes("write"))
    turn = await begun(here)
    call = await one.stream.call()
    one.stream.break_()
    async with HandHost(here, account="mallory") as other:
        other.incarnation = one.incarnation
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await other.report(returned(call, '"forged"'))
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert await one.report(returned(call)) == [call.call_id]
    await here.comes_to(turn, "DONE")
    assert [done.output_json for done in await here.of_kind(turn, "tool_done")] == ['"ok"']


async def test_a_result_after_a_person_said_is_evidence(here: House, host: HostMaker) -> None:
    """24c: it becomes a LateResult, settles nothing, and the call is off the list."""
    one = await host(changes("write"))
    two_steps = [ONE_CALL[0], {"when": "step == 1", "calls": [{"tool": "write"}]}, {"say": "Done."}]
    turn = await begun(here, two_steps)
    call = await one.stream.call()
    one.stream.break_()
    listed = await here.unfinished(turn)
    assert [one_call.call_id for one_call in listed.unfinished] == [call.call_id]
    two = await host(changes("write"))
    await here.resume(turn, Resolution(call_id=call.call_id, output_json='"a person saw it"'))
    second = await two.stream.call()
    stream = await one.connect(holding=[call.call_id])
    await one.say(returned(call, '"late"'))
    await stream.hears("taken", call)
    [late] = await here.recorded(turn, "late_result")
    assert (late.call_id, late.output_json) == (call.call_id, '"late"')
    assert not (await here.turn(turn)).unfinished
    await two.say(returned(second))
    await here.comes_to(turn, "DONE")
    assert [done.output_json for done in await here.of_kind(turn, "tool_done")] == ['"a person saw it"', '"ok"']
    await here.assert_sound()


async def test_a_late_result_settles_an_unfinished_call_without_a_person(here: House, host: HostMaker) -> None:
    """D4: nobody has said what became of it, so its host's word counts however late, and the turn goes on."""
    one = await host(changes("write"))
    turn = await begun(here)
    call = await one.stream.call()
    one.stream.break_()
    stopped = await here.comes_to(turn, "INTERRUPTED")
    assert [one_call.call_id for one_call in stopped.unfinished] == [call.call_id]
    assert await one.report(returned(call, '"late but true"')) == [call.call_id]
    assert await one.report(returned(call, '"late but true"')) == []
    await here.comes_to(turn, "DONE")
    assert [done.output_json for done in await here.of_kind(turn, "tool_done")] == ['"late but true"']
    assert await here.of_kind(turn, "unfinished_resolved") == []
    assert await here.of_kind(turn, "late_result") == []


async def test_the_last_of_several_late_results_lets_the_turn_go_on(here: House, host: HostMaker) -> None:
    """R6.6: READY when it was the last; before that nothing moves."""
    one = await host(changes("write"))
    turn = await begun(here, TWO_CALLS)
    first, second = await one.stream.call(), await one.stream.call()
    one.stream.break_()
    await here.unfinished(turn, 2)
    await here.comes_to(turn, "INTERRUPTED")
    await one.report(returned(first))
    left = await here.turn(turn)
    assert [call.call_id for call in left.unfinished] == [second.call_id]
    assert left.writer == 1
    await one.report(failed(second, "no ink"))
    await here.comes_to(turn, "DONE")
    assert len(await here.of_kind(turn, "tool_started")) == 2


async def test_not_run_is_assigned_anew(here: House, host: HostMaker) -> None:
    """A new attempt: one more, a new call_id, the same idempotency_key."""
    one = await host(changes("write"))
    turn = await begun(here)
    call = await one.stream.call()
    await one.say(not_run(call))
    await one.stream.hears("taken", call)
    again = await one.stream.call()
    assert (again.attempt, again.idempotency_key) == (2, call.idempotency_key)
    assert again.call_id != call.call_id
    await one.say(returned(again))
    await here.comes_to(turn, "DONE")
    started = await here.of_kind(turn, "tool_started")
    assert [(one_start.call_id, one_start.attempt) for one_start in started] == [(call.call_id, 1), (again.call_id, 2)]


async def test_a_late_not_run_starts_it_again_without_a_person(here: House, host: HostMaker) -> None:
    """It certainly did not run: that settles what was unfinished, and the call may be sent to another."""
    one = await host(changes("write"))
    turn = await begun(here)
    call = await one.stream.call()
    one.stream.break_()
    await here.comes_to(turn, "INTERRUPTED")
    two = await host(changes("write"))
    await one.report(not_run(call))
    again = await two.stream.call()
    assert again.attempt == 2
    await two.say(returned(again))
    await here.comes_to(turn, "DONE")


async def test_a_second_hello_ends_the_stream_before(here: House, host: HostMaker) -> None:
    """Nothing more comes over the old stream, though the host never broke it."""
    one = await host(changes("write"))
    old = one.stream
    new = await one.connect()
    await old.ends()
    turn = await begun(here)
    call = await new.call()
    assert [kind for kind, _ in old.seen] == ["welcome"]
    await one.say(returned(call))
    await here.comes_to(turn, "DONE")


async def _only_one_left(streams: list[Stream]) -> Stream:
    async def look() -> Stream | None:
        left = [stream for stream in streams if not stream.over.is_set()]
        return left[0] if len(left) == 1 and left[0].welcome.session else None

    found: Stream = await until(look, "all streams but one end")
    return found


async def test_hellos_at_once_leave_one_session(here: House, host: HostMaker) -> None:
    """Whichever hello was read last has the incarnation; a call comes over that stream alone."""
    for _ in range(5):
        one = await host(changes("write"))
        turn = await begun(here)
        await one.stream.call()
        streams = await asyncio.gather(*(one.open() for _ in range(5)))
        newest = await _only_one_left(streams)
        assert newest.welcome.session == 6
        one.stream = newest
        await one.say(returned(await newest.call()))
        await here.comes_to(turn, "DONE")
        newest.break_()


async def test_another_account_cannot_speak_for_an_incarnation(here: House, host: HostMaker) -> None:
    """Refused, and the true host's stream lives on."""
    one = await host(changes("write"))
    async with HandHost(here, changes("write"), account="mallory") as other:
        other.incarnation = one.incarnation
        stream = await other.open()
        await stream.ends()
        assert stream.problem is not None
        assert stream.problem.code() is grpc.StatusCode.PERMISSION_DENIED
    turn = await begun(here)
    await one.say(returned(await one.stream.call()))
    await here.comes_to(turn, "DONE")


async def test_a_second_hello_on_one_stream_is_refused(here: House, host: HostMaker) -> None:
    one = await host(changes("write"))
    await one.stream.write(ServeRequest(hello=HostHello(host="again", incarnation=one.incarnation)))
    await one.stream.ends()
    assert one.stream.problem is not None
    assert one.stream.problem.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_hello_between_the_start_and_the_send(here: House, host: HostMaker) -> None:
    """Hellos come while calls are being started: each runs once, and none is lost (R6.6)."""
    rules: Rules = [
        {"when": "step < 15", "calls": [{"tool": "write"}]},
        {"say": "Done."},
    ]
    one = await host(changes("write"))
    turn = await begun(here, rules)
    ran: list[str] = []

    async def work() -> None:
        while True:
            stream = one.stream
            try:
                call = await stream.call(0.02)
            except TimeoutError:
                await one.connect()  # a hello at any moment, holding nothing
                continue
            ran.append(call.call_id)
            await one.say(returned(call))
            await one.connect(holding=[call.call_id])
            await one.say(returned(call))

    working = asyncio.create_task(work())
    await here.comes_to(turn, "DONE", seconds=60)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    started = [start.call_id for start in await here.of_kind(turn, "tool_started")]
    assert ran == started
    assert len(started) == 15
    await here.assert_sound()


@pytest.mark.parametrize("here", [{"reconnect_seconds": 4.0}], indirect=True)
async def test_a_call_may_begin_for_half_of_reconnect_within(here: House, host: HostMaker) -> None:
    """`begin_by` counts from the hello, and is at most half of `reconnect_within` from the send."""
    one = await host(changes("write"))
    assert one.stream.welcome.reconnect_within.seconds == 4
    await asyncio.sleep(0.5)
    turn = await begun(here)
    before = time.monotonic()
    call = await one.stream.call()
    begin_until = one.stream.hello_sent + call.begin_by.ToTimedelta().total_seconds()
    assert begin_until <= one.stream.came[call.call_id] + 2.0
    assert begin_until >= before + 1.5
    stream = await one.connect()
    again = await stream.call()
    begin_until = stream.hello_sent + again.begin_by.ToTimedelta().total_seconds()
    assert begin_until <= stream.came[call.call_id] + 2.0
    await one.say(returned(again))
    await here.comes_to(turn, "DONE")


@pytest.mark.parametrize("tool", [changes("tool"), reads("tool")], ids=["changes", "reads"])
async def test_a_host_is_sent_no_more_than_it_takes(here: House, host: HostMaker, tool: Tool) -> None:
    """`capacity`: the calls of one reply come one after the other to a host that takes one at a time."""
    rules: Rules = [
        {"when": "step == 0", "calls": [{"tool": "tool"}, {"tool": "tool"}, {"tool": "tool"}]},
        {"say": "Done."},
    ]
    one = await host(tool, capacity=1)
    turn = await begun(here, rules, "tool")
    for _ in range(3):
        call = await one.stream.call()
        assert call.attempt == 1
        await one.stream.no_call()
        await one.say(returned(call))
    await here.comes_to(turn, "DONE")


async def test_a_draining_host_is_sent_no_more(here: House, host: HostMaker) -> None:
    """It finishes what it holds, another host gets the rest."""
    rules: Rules = [ONE_CALL[0], {"when": "step == 1", "calls": [{"tool": "write"}]}, {"say": "Done."}]
    one = await host(changes("write"))
    turn = await begun(here, rules)
    call = await one.stream.call()
    await one.drain()
    two = await host(changes("write"))
    await one.say(returned(call))
    await one.stream.hears("taken", call)
    await two.say(returned(await two.stream.call()))
    await here.comes_to(turn, "DONE")
    await one.stream.no_call()


async def test_a_host_that_drains_and_has_not_run_it_leaves_it_to_another(here: House, host: HostMaker) -> None:
    one = await host(changes("write"))
    turn = await begun(here)
    call = await one.stream.call()
    await one.drain()
    await one.say(not_run(call))
    await one.stream.hears("taken", call)
    await one.stream.done()
    await one.stream.ends()
    two = await host(changes("write"))
    again = await two.stream.call()
    assert again.attempt == 2
    await two.say(returned(again))
    await here.comes_to(turn, "DONE")


async def test_a_deadline_that_passes_leaves_the_call_unfinished(here: House, host: HostMaker) -> None:
    """24e: the host is told CallsCancelled; the model is told nothing; a person says what became of it."""
    one = await host(changes("write", timeout=0.5))
    turn = await begun(here)
    call = await one.stream.call()
    await one.stream.hears("cancelled", call)
    stopped = await here.comes_to(turn, "INTERRUPTED")
    assert [listed.call_id for listed in stopped.unfinished] == [call.call_id]
    assert await here.of_kind(turn, "tool_done") == []
    await here.resume(turn, Resolution(call_id=call.call_id, error="it hung"))
    await here.comes_to(turn, "DONE")
    assert [done.output_json for done in await here.of_kind(turn, "tool_done")] == ['"it hung"']


async def test_a_read_that_takes_too_long_is_told_to_the_model(here: House, host: HostMaker) -> None:
    """R4: a read alone may be given up; its host is told."""
    one = await host(reads("look", timeout=0.4))
    turn = await begun(here, ONE_READ, "look")
    call = await one.stream.call()
    await one.stream.hears("cancelled", call)
    done = await here.comes_to(turn, "DONE")
    assert done.output == "Not seen."
    assert [one_done.output_json for one_done in await here.of_kind(turn, "tool_done")] == [
        '"This tool took too long."'
    ]
    await one.say(returned(call))
    await one.stream.hears("taken", call)


async def test_a_read_that_is_lost_with_its_stream_runs_elsewhere(here: House, host: HostMaker) -> None:
    """R5.3: it changes nothing, so nobody waits for the host that went."""
    one = await host(reads("look"))
    turn = await begun(here, ONE_READ, "look")
    call = await one.stream.call()
    two = await host(reads("look"))
    one.stream.break_()
    again = await two.stream.call()
    await two.say(returned(again, '"seen"'))
    await two.stream.hears("taken", again)
    done = await here.comes_to(turn, "DONE")
    assert done.output == "Done."
    stream = await one.connect(holding=[call.call_id])
    await one.say(returned(call, '"seen"'))
    await stream.hears("taken", call)
    assert len(await here.of_kind(turn, "tool_done")) == 1


async def _sent_to(*hosts: HandHost) -> tuple[HandHost, ToolCall]:
    """Wait for the next call that any of them is sent."""

    async def look() -> HandHost | None:
        return next((each for each in hosts if each.stream.unread), None)

    holder: HandHost = await until(look, "a call")
    return holder, await holder.stream.call()


async def test_run_again_waits_for_the_last_word_of_a_connected_host(here: House, host: HostMaker) -> None:
    """R6.6: CallsCancelled first; the next attempt only after the first one's `not_run` or result."""
    one = await host(changes("write", timeout=0.5))
    two = await host(changes("write", timeout=0.5))
    turn = await begun(here)
    holder, call = await _sent_to(one, two)
    other = two if holder is one else one
    await here.comes_to(turn, "INTERRUPTED")
    await here.resume(turn, Resolution(call_id=call.call_id, run_again=RunAgain()))
    await holder.stream.hears("cancelled", call)
    await other.stream.no_call(0.6)
    await holder.stream.no_call(0.1)
    await holder.say(returned(call, '"it ran"'))
    await holder.stream.hears("taken", call)
    holder, again = await _sent_to(one, two)
    assert (again.attempt, again.idempotency_key) == (2, call.idempotency_key)
    [late] = await here.recorded(turn, "late_result")
    assert late.output_json == '"it ran"'
    await holder.say(returned(again))
    await here.comes_to(turn, "DONE")


async def test_a_host_that_never_says_is_waited_for_no_longer_than_reconnect_within(
    here: House, host: HostMaker
) -> None:
    """24h: its event loop is blocked; run again comes after `reconnect_within`, as the next attempt."""
    one = await host(changes("write", timeout=0.3))
    turn = await begun(here)
    call = await one.stream.call()
    await here.comes_to(turn, "INTERRUPTED")
    since = time.monotonic()
    await here.resume(turn, Resolution(call_id=call.call_id, run_again=RunAgain()))
    again = await one.stream.call()
    assert time.monotonic() - since >= 1.4
    assert again.attempt == 2
    # Attempt 1 answers while attempt 2 runs: evidence alone (24c).
    await one.say(returned(call, '"one"'))
    await one.stream.hears("taken", call)
    await one.say(returned(again, '"two"'))
    await here.comes_to(turn, "DONE")
    assert [done.output_json for done in await here.of_kind(turn, "tool_done")] == ['"two"']
    assert [late.output_json for late in await here.of_kind(turn, "late_result")] == ['"one"']


async def test_the_result_of_an_abandoned_turn_is_evidence(here: House, host: HostMaker) -> None:
    """24: abandon while a tool runs; its late result is recorded after the end, and the call is off the list."""
    one = await host(changes("write"))
    turn = await begun(here)
    call = await one.stream.call()
    await here.abandon(turn)
    await one.stream.hears("cancelled", call)
    assert [listed.call_id for listed in (await here.turn(turn)).unfinished] == [call.call_id]
    await one.say(returned(call, '"it ran"'))
    await one.stream.hears("taken", call)
    ended = await here.turn(turn)
    assert not ended.unfinished
    kinds = [record.WhichOneof("what") for record in await here.records(turn)]
    assert kinds[-2:] == ["turn_ended", "late_result"]
    await here.assert_sound()


async def test_a_tool_whose_host_is_unknown_at_the_start_is_waited_for_and_then_not_to_be_had(
    here: House, host: HostMaker
) -> None:
    """R4: not yet asked, and no host for `reconnect_within`."""
    one = await host(changes("write"))
    one.stream.break_()
    since = time.monotonic()
    turn = await begun(here)
    await here.comes_to(turn, "DONE")
    assert time.monotonic() - since >= 1.0
    [done] = await here.of_kind(turn, "tool_done")
    assert done.output_json == '"This tool is not to be had now."'


async def test_results_of_nobody_knows_what_are_taken_and_change_nothing(here: House, host: HostMaker) -> None:
    one = await host(changes("write"))
    async with HandHost(here, account="hand") as another:
        await another.connect()
        turn = await begun(here)
        call = await one.stream.call()
        await another.say(returned(call, '"forged"'), returned("no-such-call"))
        await another.stream.hears("taken", "no-such-call")
    await one.say(returned(call))
    await here.comes_to(turn, "DONE")
    assert [done.output_json for done in await here.of_kind(turn, "tool_done")] == ['"ok"']
