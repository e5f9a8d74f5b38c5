"""Teaching is away: nothing runs untaught, nothing that needs it is decided, and all goes on by itself later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tutelage import TutelageError
from tutelage.runtime.v1 import approvals_pb2, turns_pb2

from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, DEADLINE_SECONDS, calls, refusal
from tests.services.wire_host import wire_host
from tests.taught.both import (
    COMMON_FIRST,
    DONE,
    IN_BRACKETS,
    READ,
    SKILL,
    TOLD_TO_PROPOSE_AGAIN,
    WRITE,
    Both,
    asked_about,
    prompt,
    proposes,
)

hosted = pytest.mark.usefixtures("host")

CAUSE = "The teaching service does not answer"


@hosted
async def test_a_new_turn_waits_and_goes_on_by_itself(both: Both) -> None:
    """INTERRUPTED with its cause; no model is asked; then it runs with its block (point 4, R3.6, R6.7)."""
    await both.teaching.teach(COMMON_FIRST)
    await both.tagger(DONE)
    await both.teaching.stop()

    turn_id = await both.runtime.asked_of("Tagger")
    stopped = await both.interrupted(turn_id, CAUSE)
    sent = both.prompts()
    await both.teaching.start()
    turn = await both.runtime.ended(turn_id)

    assert (stopped.state, list(stopped.unfinished)) == (turns_pb2.TURN_STATE_INTERRUPTED, [])
    assert sent == []
    assert both.prompts() == [prompt(COMMON_FIRST)]
    assert turn.receipts[0].instruction_set == 1


@hosted
async def test_a_turn_that_waits_for_teaching_lives_through_a_restart_and_two_tries(both: Both) -> None:
    """It is tried again, later each time, also by the next process; nobody has to resume it (R6.7)."""
    await both.tagger(DONE)
    await both.teaching.stop()
    turn_id = await both.runtime.asked_of("Tagger")
    await both.interrupted(turn_id, CAUSE)
    await both.runtime.restart()
    since = len(both.runtime.logged.events)
    await both.runtime.logged.heard("turn.let_go", since, turn=turn_id)
    sent = both.prompts()
    await both.teaching.start()

    await both.runtime.ended(turn_id)

    assert (sent, both.prompts()) == ([], [prompt()])


@hosted
@pytest.mark.parametrize("restarted", [False, True])
async def test_after_a_long_absence_what_waits_goes_on_as_teaching_is_back(both: Both, restarted: bool) -> None:
    """Not at its own next try, which is minutes away by then; also in a process that never saw it go (R6.7)."""
    await both.tagger(DONE)
    await both.teaching.stop()
    turn_id, cursor = await both.runtime.asked_of("Tagger"), ""
    for _ in range(7):
        shown = await both.runtime.events(turn_id, lambda event: event.HasField("interrupted"), cursor)
        cursor = shown[-1].cursor
        [(tries,)] = both.runtime.rows("select tries from turns")
        if tries < 7:
            await both.runtime["gus"].turns.ResumeTurn(turns_pb2.ResumeTurnRequest(turn_id=turn_id))
    if restarted:
        await both.runtime.restart()
    await both.teaching.start()

    turn = await both.runtime.ended(turn_id)

    # By itself it would have been tried after 2 to the power of so many seconds.
    assert tries == 7
    assert turn.output == "Done."


@hosted
async def test_a_yes_decides_nothing_and_works_later(both: Both, book: Book) -> None:
    """PART_UNAVAILABLE with when to try again; the question waits on (R3.6, point 4)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.stop()

    error = await refusal(both.runtime.yes(asked))
    instead: dict[str, Any] = {"decision": approvals_pb2.DECISION_ANSWER, "answer_json": '"there"'}
    other = await refusal(both.runtime.decide(asked, **instead))
    request = approvals_pb2.DecideTurnRequest(
        turn_id=turn_id, decision=approvals_pb2.DECISION_APPROVE, fingerprints=[asked.fingerprint]
    )
    whole = await refusal(both.runtime["gus"].approvals.DecideTurn(request))
    now = await both.runtime.approval(asked.id)
    await both.teaching.start()

    assert [one.reason for one in (error, other, whole)] == ["PART_UNAVAILABLE"] * 3
    assert error.metadata["part"] == "teaching service"
    assert (now.state, list(now.answers)) == (approvals_pb2.APPROVAL_STATE_PENDING, [])
    assert (book.runs(), len(both.prompts())) == ([], 1)
    assert await until_seen_back(both, asked) is None
    await both.runtime.ended(turn_id)
    assert len(book.runs()) == 1
    assert both.prompts() == [prompt(), prompt()]


async def until_seen_back(both: Both, asked: approvals_pb2.Approval) -> TutelageError | None:
    """Say yes as the contract has it: again after the time that the refusal names; return another refusal, if any."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await both.runtime.yes(asked)
            except TutelageError as error:
                if error.reason != "PART_UNAVAILABLE" or error.retry_after is None:
                    return error
                await asyncio.sleep(error.retry_after)
            else:
                return None


@hosted
async def test_a_no_is_taken_and_the_work_goes_on_under_its_set_once_teaching_is_back(both: Both, book: Book) -> None:
    """A no is always taken, also while teaching is away, and though the set changed before (R3.6)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)
    await both.teaching.stop()

    denied = await both.runtime.no(asked, reason="Not now.")
    await both.interrupted(turn_id, CAUSE)
    sent = len(both.prompts())
    await both.teaching.start()
    await both.runtime.ended(turn_id)

    assert denied.state == approvals_pb2.APPROVAL_STATE_DENIED
    assert sent == 1
    assert both.prompts() == [prompt(), prompt()]
    assert both.runtime.paid("Tagger")[-1]["results"] == ["The person did not allow this call. Reason: Not now."]
    assert book.runs() == []


@hosted
async def test_a_nested_call_that_begins_meanwhile_waits_too(both: Both, book: Book) -> None:
    """Its parent ran before; the nested agent's model is asked nothing until its block is known (point 4, R3.6)."""
    await both.agent("Hand", DONE)
    asks = calls(("slow_write", {"name": "bark"}))
    down = calls((f"Hand.{SKILL.name}", {"input": "Your turn."}), when="step == 1")
    async with both.runtime.host("slow", book.slow_write(), who="other-worker"):
        setting = asked_about("nothing")
        await both.agent("Tagger", asks, down, DONE, tools=["slow_write"], agents=["Hand"], approve=setting)
        await both.teaching.teach(COMMON_FIRST, agent="Hand")
        turn_id = await both.runtime.asked_of("Tagger")
        await book.slow_began.wait()
        await both.teaching.stop()
        book.slow_may_end.set()
        await both.interrupted(turn_id, CAUSE)
        sent = both.prompts("Hand"), len(both.prompts())
        await both.teaching.start()
        await both.runtime.ended(turn_id)

    assert sent == ([], 2)
    assert both.prompts("Hand") == [prompt(COMMON_FIRST)]
    assert both.prompts() == [prompt()] * 3
    assert len(book.runs("slow_write")) == 1


@hosted
async def test_a_take_up_waits_too(both: Both, book: Book) -> None:
    """The instructions changed and teaching went: the next request is not made under the old block (R3.6, R6.7)."""
    async with both.runtime.host("slow", book.slow_write(), who="other-worker"):
        asks = proposes(WRITE, ("slow_write", {"name": "bark"}))
        later = {"when": "step == 1", "say": "Done."}
        setting = asked_about("write_note")
        await both.agent("Tagger", later, asks, tools=["write_note", "slow_write"], approve=setting)
        turn_id = await both.runtime.asked_of("Tagger")
        [asked] = await both.runtime.questions(turn_id)
        await book.slow_began.wait()
        await both.teaching.teach(COMMON_FIRST)
        await both.changed(asked)
        await both.teaching.stop()
        book.slow_may_end.set()
        await both.interrupted(turn_id, CAUSE)
        sent = both.prompts()
        await both.teaching.start()
        await both.runtime.ended(turn_id)

    assert sent == [prompt()]
    assert both.prompts() == [prompt(), prompt(COMMON_FIRST)]
    assert both.runtime.paid("Tagger")[-1]["results"] == [TOLD_TO_PROPOSE_AGAIN, "wrote bark slowly"]
    assert [one.number for one in await both.take_ups(turn_id)] == [1]


@hosted
async def test_a_yes_given_before_teaching_went_starts_nothing_until_it_is_back(both: Both) -> None:
    """The writer asks as it starts the call; where it gets no answer, the call waits with its yes (D1, R3.6, R6.7)."""
    async with wire_host(both.runtime):
        await both.tagger(proposes(("wire_write", {"n": 1})), DONE, tools=["wire_write"])
        turn_id, asked = await both.waiting()
    await both.runtime.yes(asked)
    await both.interrupted(turn_id, "no connected host offers wire_write")
    await both.teaching.stop()

    async with wire_host(both.runtime) as host:
        await both.interrupted(turn_id, CAUSE)
        assert not await host.was_sent("calls")
        assert await both.state(asked) == "APPROVED"
        await both.teaching.start()
        call = await host.call()
        host.say(call, output_json='"written"')
        await both.runtime.ended(turn_id)

    assert both.prompts() == [prompt(), prompt()]


@hosted
async def test_a_yes_that_waits_for_teaching_falls_with_the_set(both: Both, book: Book) -> None:
    """Held by a call that runs beside it, it hears of its fall, and the model proposes again (B13, R3.6)."""
    async with both.runtime.host("slow", book.slow_write(), who="other-worker"):
        later = {"when": "step == 1", "say": "Done."}
        async with wire_host(both.runtime):
            tools = ["write_note", "poke", "slow_write", "wire_write"]
            asks = proposes(("wire_write", {"n": 1}), ("poke", {"name": "spring"}), ("slow_write", {"name": "bark"}))
            setting = asked_about("wire_write", "poke")
            await both.agent("Tagger", later, asks, tools=tools, approve=setting)
            turn_id = await both.runtime.asked_of("Tagger")
            given, waits = await both.runtime.questions(turn_id, 2)
            await book.slow_began.wait()
        await both.runtime.yes(given)
        proposed = await both.teaching.propose(COMMON_FIRST, "hale")
        await both.teaching.stop()
        async with wire_host(both.runtime):
            await both.runtime.logged.heard("teaching.no_answer", rpc="CheckSetsRequest")
            await both.teaching.start()
            await both.teaching.activate(proposed)
            error = await until_seen_back(both, waits)
            book.slow_may_end.set()
            await both.runtime.ended(turn_id)

    assert error is not None
    assert error.reason == "INSTRUCTIONS_CHANGED"
    assert [await both.state(one) for one in (given, waits)] == ["SUPERSEDED"] * 2
    assert both.prompts() == [prompt(), prompt(COMMON_FIRST)]


@hosted
async def test_a_result_that_comes_meanwhile_is_kept_for_when_teaching_is_back(both: Both) -> None:
    """The turn is let go of with the word that it cannot get to, and finds it later (R3.1, R6.6, R6.7)."""
    async with wire_host(both.runtime) as host:
        await both.tagger(
            proposes(("wire_write", {"n": 1})), DONE, tools=["wire_write"], approve=asked_about("nothing")
        )
        turn_id = await both.runtime.asked_of("Tagger")
        call = await host.call()
        await both.teaching.stop()
        await both.runtime.stop()
        await both.runtime.start()
    async with wire_host(both.runtime, incarnation=host.incarnation, holding=[call.call_id]) as back:
        await both.interrupted(turn_id, CAUSE)
        back.say(call, output_json='"written"')
        await back.hear("taken")
        await both.runtime.at_rest(turn_id)
        sent = len(both.prompts())
        await both.teaching.start()
        await both.runtime.ended(turn_id)
        assert not await back.was_sent("calls")

    assert sent == 1
    assert both.runtime.paid("Tagger")[-1]["results"] == ["written"]


@hosted
async def test_reads_and_listings_need_no_teaching(both: Both) -> None:
    """What people look at in the runtime is there, whoever is away (point 4)."""
    await both.tagger(proposes(READ, WRITE), DONE, tools=["read_note", "write_note"], approve=CHANGES_ASKED)
    turn_id, asked = await both.waiting()
    await both.teaching.stop()

    assert [one.task_id for one in (await both.runtime.get(turn_id)).receipts] == [f"{turn_id}/Tagger"]
    assert (await both.runtime.approval(asked.id)).id == asked.id
    assert await both.runtime.records(turn_id)
    await both.teaching.start()


@hosted
async def test_twenty_turns_wait_for_teaching_and_all_go_on(both: Both) -> None:
    """Nobody is forgotten, and nobody asks a model meanwhile (R6.7, D7)."""
    await both.teaching.teach(COMMON_FIRST)
    await both.tagger(DONE)
    await both.teaching.stop()
    turn_ids = [await both.runtime.asked_of("Tagger") for _ in range(20)]
    for turn_id in turn_ids:
        await both.interrupted(turn_id, CAUSE)
    sent = both.prompts()
    await both.teaching.start()
    await both.teaching.teach(IN_BRACKETS)

    for turn_id in turn_ids:
        await both.runtime.ended(turn_id)

    assert sent == []
    assert len(both.prompts()) == 20
    assert set(both.prompts()) <= {prompt(COMMON_FIRST), prompt(COMMON_FIRST, IN_BRACKETS)}


@hosted
async def test_work_that_was_taught_does_not_go_on_without_teaching(both: Both, book: Book) -> None:
    """A runtime started without the address runs none of it untaught; with it again, it goes on (point 4, R3.6)."""
    address = both.runtime.settings["teaching_address"]
    await both.teaching.teach(COMMON_FIRST)
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.runtime.restart(teaching_address="")

    await both.runtime.yes(asked)
    await both.interrupted(turn_id, CAUSE)
    sent, ran = both.prompts(), book.runs()
    await both.runtime.restart(teaching_address=address)
    await both.runtime.ended(turn_id)

    assert (sent, ran) == ([prompt(COMMON_FIRST)], [])
    assert both.prompts() == [prompt(COMMON_FIRST)] * 2
    assert len(book.runs()) == 1


@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_work_that_began_while_nobody_taught_is_told_what_its_receipts_say(
    idle: Both, book: Book, answer: str
) -> None:
    """Its no goes on under set 0; its yes is under another set, so it takes up what stands now (B9, B13, T6.1)."""
    address = idle.runtime.settings["teaching_address"]
    await idle.runtime.start(teaching_address="")
    async with idle.runtime.host("notebook", *book.tools()):
        await idle.tagger()
        turn_id, asked = await idle.waiting()
        await idle.teaching.teach(COMMON_FIRST)
        await idle.runtime.restart(teaching_address=address)
        if answer == "no":
            await idle.runtime.no(asked)
        else:
            await idle.changed(asked)
            await idle.runtime.yes(await idle.runtime.question(turn_id))
        turn = await idle.runtime.ended(turn_id)

    taken_up = answer == "yes"
    assert idle.prompts() == ([prompt()] + [prompt(COMMON_FIRST)] * 2 if taken_up else [prompt()] * 2)
    assert [(one.take_up, one.instruction_set) for one in turn.receipts] == [(0, 0), (1, 1)][: 1 + taken_up]
    assert len(book.runs()) == taken_up
