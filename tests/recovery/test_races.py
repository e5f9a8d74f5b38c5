"""Races: whatever comes at once has one outcome, is told to everyone, and leaves nothing that waits for ever."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from typing import TypeVar

import grpc
import pytest
from tutelage import TutelageError
from tutelage.journal_lines import state_name
from tutelage.runtime.v1.approvals_pb2 import (
    APPROVAL_STATE_APPROVED,
    DECISION_APPROVE,
    DECISION_DENY,
    DecideApprovalRequest,
    GetApprovalRequest,
)
from tutelage.runtime.v1.turns_pb2 import IF_BUSY_BRANCH, Resolution, RunAgain, StartTurnRequest, Work

from tests.recovery.conftest import HostMaker
from tests.recovery.hand_host import HandHost, changes, reads, returned
from tests.recovery.house import NOTHING, House, Rules

T = TypeVar("T")

# `TUTELAGE_ROUNDS` asks for more rounds (`make test-long`).
ROUNDS = int(os.environ.get("TUTELAGE_ROUNDS", "1"))

ONE_CALL: Rules = [{"when": "step == 0", "calls": [{"tool": "write"}]}, {"say": "Done."}]
READ_AND_WRITE: Rules = [{"when": "step == 0", "calls": [{"tool": "look"}, {"tool": "write"}]}, {"say": "Done."}]


async def _after(seconds: float, work: Awaitable[T]) -> T:
    await asyncio.sleep(seconds)
    return await work


async def _told(work: Awaitable[object], *refusals: str) -> bool:
    """Return whether it was done; False where it was refused for one of these reasons."""
    try:
        await work
    except TutelageError as problem:
        if problem.reason not in refusals:
            raise
        return False
    return True


async def _work(host: HandHost, *, at_once: bool) -> str:
    """Take a call, where one comes, and say what it returned at once or not at all; return its id."""
    try:
        call = await host.stream.call(0.2)
    except TimeoutError:
        return ""
    if at_once:
        await host.say(returned(call))
        await host.stream.hears("taken", call)
    return call.call_id


async def test_fifty_answers_at_once_have_one_outcome(here: House, host: HostMaker, stack: AsyncExitStack) -> None:
    """26: everyone else is told who and what."""
    one = await host(changes("write"))
    await here.agent("agent", ONE_CALL, ["write"])
    people = [await stack.enter_async_context(here.person(f"p{n}", "supervises")) for n in range(10)]
    for round_ in range(1 + ROUNDS):
        turn = await here.begin("agent")
        [approval] = await here.asked(turn)

        async def press(number: int, approval_id: str = approval.id, seen: str = approval.fingerprint) -> str:
            decision = DECISION_DENY if number % 2 else DECISION_APPROVE
            request = DecideApprovalRequest(approval_id=approval_id, decision=decision, fingerprint=seen)
            try:
                answer = await people[number % 10].approvals.DecideApproval(request)
            except TutelageError as problem:
                return problem.metadata["by"] if problem.reason == "ALREADY_DECIDED" else str(problem)
            return answer.approval.answers[-1].by.id

        pressed = await asyncio.gather(*(press(number) for number in random.Random(round_).sample(range(50), 50)))
        told = set(pressed)
        assert len(told) == 1, told
        stands = (await here.ann.approvals.GetApproval(GetApprovalRequest(approval_id=approval.id))).approval
        assert [answer.by.id for answer in stands.answers] == list(told)
        if stands.state == APPROVAL_STATE_APPROVED:
            await one.say(returned(await one.stream.call()))
        await here.comes_to(turn, "DONE")
        await one.stream.no_call(0.05)
        assert len(await here.of_kind(turn, "approval_recorded")) == 1


async def test_a_yes_in_the_moment_in_which_the_turn_would_wait(here: House, host: HostMaker) -> None:
    """24d: another call of the same reply ends, and the yes comes, in either order: nothing waits for ever."""
    one = await host(changes("write"), reads("look"))
    await here.agent("agent", READ_AND_WRITE, ["look", "write"])
    conversation = await here.conversation("agent")
    order = random.Random(24)
    for _ in range(25 * ROUNDS):
        request = StartTurnRequest(conversation_id=conversation, work=Work(input="go"), if_busy=IF_BUSY_BRANCH)
        turn = (await here.ann.turns.StartTurn(request)).turn.id
        look = await one.stream.call()
        [approval] = await here.asked(turn)

        yes, ends = here.decide(approval), one.say(returned(look))
        await asyncio.gather(_after(order.uniform(0, 0.006), yes), _after(order.uniform(0, 0.006), ends))
        await one.say(returned(await one.stream.call(5)))
        await here.comes_to(turn, "DONE", seconds=5)
    assert len(here.paid("agent")) == 50 * ROUNDS
    await here.assert_sound()


async def test_abandon_races_with_a_yes_a_result_and_a_start(here: House, host: HostMaker) -> None:
    """24, R5.1: the turn is abandoned; a call was started and listed, or was never sent; none goes on."""
    one = await host(changes("write"))
    await here.agent("agent", ONE_CALL, ["write"])
    order = random.Random(5)
    for _ in range(15 * ROUNDS):
        turn = await here.begin("agent")
        [approval] = await here.asked(turn)

        answered, stopped, call_id = await asyncio.gather(
            _after(order.uniform(0, 0.01), _told(here.decide(approval), "TURN_ENDED")),
            _after(order.uniform(0, 0.02), _told(here.abandon(turn), "TURN_ENDED")),
            _work(one, at_once=order.random() < 0.5),
        )
        assert answered or stopped
        ended = await here.comes_to(turn, "ABANDONED" if stopped else "DONE")
        started = await here.of_kind(turn, "tool_started")
        # What was never started was never sent. What was started and then stopped may not have been sent.
        assert not call_id or [start.call_id for start in started] == [call_id]
        if call_id and ended.unfinished:
            await one.say(returned(call_id))
            await one.stream.hears("taken", call_id)
            assert not (await here.turn(turn)).unfinished
        for kind, about in one.stream.seen:
            if kind == "cancelled":
                assert ("call", about) in one.stream.seen[: one.stream.seen.index((kind, about))]
    await here.assert_sound()


async def test_two_resumes_at_once_run_it_again_once(here: House, host: HostMaker) -> None:
    one = await host(changes("write"))
    await here.agent("agent", ONE_CALL, ["write"])
    turn = await here.begin("agent", NOTHING)
    call = await one.stream.call()
    one.stream.break_()
    await here.comes_to(turn, "INTERRUPTED")
    two = await host(changes("write"))
    word = Resolution(call_id=call.call_id, run_again=RunAgain())

    resumes = (_told(here.resume(turn, word), "INVALID_FIELD") for _ in range(20))
    assert sum(await asyncio.gather(*resumes)) == 1
    again = await two.stream.call()
    assert again.attempt == 2
    await two.stream.no_call()
    await two.say(returned(again))
    await here.comes_to(turn, "DONE")
    assert len(await here.of_kind(turn, "unfinished_resolved")) == 1


async def test_a_late_result_and_a_persons_word_at_once_settle_it_once(here: House, host: HostMaker) -> None:
    """R6.6: whichever is on disk first counts; the other is evidence, or is told so."""
    one = await host(changes("write"))
    two = await host(changes("other"))
    await here.agent("agent", ONE_CALL, ["write"])
    turns = [await here.begin("agent", NOTHING) for _ in range(20)]
    calls = [await one.stream.call() for _ in turns]
    by_turn = {call.turn_id: call for call in calls}
    one.stream.break_()
    for turn in turns:
        await here.comes_to(turn, "INTERRUPTED")

    async def both(turn: str) -> bool:
        word = Resolution(call_id=by_turn[turn].call_id, output_json='"person"')
        person = _told(here.resume(turn, word), "INVALID_FIELD", "TURN_ENDED")
        said, _ = await asyncio.gather(person, one.report(returned(by_turn[turn], '"host"')))
        return said

    for turn, said in zip(turns, await asyncio.gather(*(both(turn) for turn in turns)), strict=True):
        await here.comes_to(turn, "DONE")
        [done] = await here.of_kind(turn, "tool_done")
        assert done.output_json == ('"person"' if said else '"host"')
        if said:
            await here.recorded(turn, "late_result")
        assert not (await here.turn(turn)).unfinished
    await two.stream.no_call(0.1)
    await here.assert_sound()


async def test_a_storm_of_one_request_is_one_turn(here: House) -> None:
    """6: a retry of StartTurn is the same call."""
    await here.agent("agent", [{"say": "Done."}])
    conversation = await here.conversation("agent")
    ids = await asyncio.gather(*(here.start(conversation, request_id="the same") for _ in range(100)))
    assert len(set(ids)) == 1
    await here.comes_to(ids[0], "DONE")
    assert len(here.paid("agent")) == 1
    with pytest.raises(TutelageError) as reused:
        await here.start(conversation, "something else", request_id="the same")
    assert reused.value.reason == "REQUEST_ID_REUSED"


async def test_callers_that_hang_up_in_the_middle_leave_the_service_well(here: House, host: HostMaker) -> None:
    """What was asked for is done whole or not at all; everything else goes on."""
    one = await host(changes("write"))
    await here.agent("agent", ONE_CALL, ["write"])
    conversation = await here.conversation("agent")
    order = random.Random(9)

    async def cut(work: asyncio.Future[object]) -> None:
        await asyncio.sleep(order.uniform(0, 0.01))
        work.cancel()
        with suppress(asyncio.CancelledError, TutelageError, grpc.RpcError):
            await work

    def start(number: int) -> StartTurnRequest:
        work = Work(input=str(number))
        return StartTurnRequest(
            conversation_id=conversation, work=work, if_busy=IF_BUSY_BRANCH, request_id=f"start {number}"
        )

    numbers = range(30)
    await asyncio.gather(*(cut(asyncio.ensure_future(_started(here, start(number)))) for number in numbers))
    turns = [await _started(here, start(number)) for number in numbers]
    assert len(set(turns)) == 30
    assert here.sql("SELECT count(*) FROM turns") == [(30,)]
    approvals = [(await here.asked(turn))[0] for turn in turns]
    await asyncio.gather(*(cut(asyncio.ensure_future(here.decide(approval))) for approval in approvals))
    for approval in approvals:
        await here.decide(approval)
    for _ in turns:
        await one.say(returned(await one.stream.call()))
    for turn in turns:
        await here.comes_to(turn, "DONE")
        assert len(await here.of_kind(turn, "tool_started")) == 1
    assert len(here.paid("agent")) == 60
    await here.assert_sound()


async def _started(here: House, request: StartTurnRequest) -> str:
    return (await here.ann.turns.StartTurn(request)).turn.id


async def test_fifty_questions_of_one_turn_are_answered_by_ten_people(
    here: House, host: HostMaker, stack: AsyncExitStack
) -> None:
    """20: in any order, with the tools running meanwhile: every one once."""
    one = await host(changes("write"))
    calls = [{"tool": "write", "input": {"n": n}} for n in range(50)]
    await here.agent("agent", [{"when": "step == 0", "calls": calls}, {"say": "Done."}], ["write"])
    turn = await here.begin("agent")
    asked = await here.asked(turn, 50)
    people = [await stack.enter_async_context(here.person(f"p{n}", "supervises")) for n in range(10)]

    async def work() -> set[str]:
        ran: set[str] = set()
        for _ in range(50):
            call = await one.stream.call()
            assert call.address not in ran
            ran.add(call.address)
            await one.say(returned(call))
        return ran

    async def answer(number: int) -> None:
        for approval in asked[number::10]:
            await asyncio.sleep(random.Random(approval.id).uniform(0, 0.05))
            await people[number].approvals.DecideApproval(
                DecideApprovalRequest(
                    approval_id=approval.id, decision=DECISION_APPROVE, fingerprint=approval.fingerprint
                )
            )

    working = asyncio.create_task(work())
    await asyncio.gather(*(answer(number) for number in range(10)))
    assert len(await working) == 50
    ended = await here.comes_to(turn, "DONE")
    assert state_name(ended.state) == "DONE"
    assert len(here.paid("agent")) == 2
    await here.assert_sound()
