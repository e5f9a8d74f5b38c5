"""Instructions that change while a call waits: the yes is refused, the work takes them up and asks again (B13)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tutelage.runtime.v1 import approvals_pb2, turns_pb2
from tutelage.runtime.v1.approval_setting_pb2 import AllRule, ApprovalRule, ApprovalSetting, ChangesRule

from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, calls, refusal, whats
from tests.services.wire_host import wire_host
from tests.taught.both import (
    COMMON_FIRST,
    DONE,
    IN_BRACKETS,
    NO_PRICES,
    READ,
    SKILL,
    TOLD_TO_PROPOSE_AGAIN,
    WRITE,
    Both,
    asked_about,
    prompt,
    proposes,
)
from tests.teaching.service import text_of

pytestmark = pytest.mark.usefixtures("host")

NOTE = "write_note", {"name": "autumn", "text": "asters"}
POKE = "poke", {"name": "spring"}
WIRE = "wire_write", {"n": 1}
HELPER = f"Hand.{SKILL.name}"


async def test_a_yes_under_another_set_is_refused_and_the_work_asks_again(both: Both, book: Book) -> None:
    """The refused yes decides nothing; the next request carries the new block; a person is asked anew (B13, R3.6, R4,
    scenario 38).
    """
    await both.tagger()
    turn_id, asked = await both.waiting()
    taught = await both.teaching.teach(COMMON_FIRST)

    error = await both.changed(asked)

    # Nothing was decided, and nothing ran.
    assert (error.code.name, error.metadata["approval_id"]) == ("ABORTED", asked.id)
    assert await both.state(asked) == "SUPERSEDED"
    assert not (await both.runtime.approval(asked.id)).answers
    again = await both.runtime.question(turn_id)
    assert book.runs() == []
    # The model was told why, with the new block last in its prompt, and proposed again.
    first, second = both.runtime.paid("Tagger")
    assert (first["results"], second["results"]) == ([], [TOLD_TO_PROPOSE_AGAIN])
    assert [first["system"], second["system"]] == [prompt(), prompt(COMMON_FIRST)]
    # A person is asked anew: another question, to another fingerprint, under the new set.
    assert again.id != asked.id
    assert again.fingerprint != asked.fingerprint
    assert (asked.instruction_set, again.instruction_set) == (0, 1)
    assert (again.address, again.input_json) == ("Tagger/write_note#2", asked.input_json)
    [taken] = await both.take_ups(turn_id)
    assert (taken.task_id, taken.number, taken.from_set) == (f"{turn_id}/Tagger", 1, 0)
    assert (taken.block.instruction_set, list(taken.block.instruction_ids)) == (1, [taught.id])
    assert taken.block.sha256 == hashlib.sha256(text_of(COMMON_FIRST).encode()).hexdigest()

    # That one is yes, and it runs.
    await both.runtime.yes(again)
    turn = await both.runtime.ended(turn_id)
    assert [run["address"] for run in book.runs()] == ["Tagger/write_note#2"]
    assert [(one.take_up, one.instruction_set) for one in turn.receipts] == [(0, 0), (1, 1)]
    assert turn.receipts[1].instructions_hash == taken.block.sha256
    sent = (await both.teaching.task(taken.task_id)).sent
    assert [(one.set_number, one.text) for one in sent] == [(0, ""), (1, text_of(COMMON_FIRST))]
    assert turn.usage.model_requests == 3


async def test_what_was_superseded_stands_in_the_record_in_its_order(both: Both) -> None:
    """The question's end, the call's, the take-up, then the reply under the new block (R3.6, R5.1)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)
    await both.changed(asked)
    await both.runtime.question(turn_id)

    records = await both.runtime.records(turn_id)

    shown = whats(records)
    after = shown[shown.index("approval_asked") + 1 :]
    assert after == [
        "writer_started",
        "approval_recorded",
        "tool_done",
        "instructions_taken_up",
        "model_replied",
        "approval_asked",
    ]
    recorded = next(one.approval_recorded for one in records if one.HasField("approval_recorded"))
    assert recorded.state == approvals_pb2.APPROVAL_STATE_SUPERSEDED
    done = next(one.tool_done for one in records if one.HasField("tool_done"))
    assert done.output_json == f'"{TOLD_TO_PROPOSE_AGAIN}"'


async def test_changed_twice_in_a_row_is_taken_up_twice(both: Both, book: Book) -> None:
    """The how-manieth take-up is counted; each has its receipt, from the set before it (B13, R3.6)."""
    await both.tagger()
    turn_id, first = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)
    await both.changed(first)
    second = await both.runtime.question(turn_id)
    await both.teaching.teach(IN_BRACKETS)

    await both.changed(second)
    third = await both.runtime.question(turn_id)
    await both.runtime.yes(third)
    turn = await both.runtime.ended(turn_id)

    taken = await both.take_ups(turn_id)
    assert [(one.number, one.from_set, one.block.instruction_set) for one in taken] == [(1, 0, 1), (2, 1, 2)]
    assert [one.instruction_set for one in turn.receipts] == [0, 1, 2]
    told = prompt(COMMON_FIRST, IN_BRACKETS)
    assert both.prompts() == [prompt(), prompt(COMMON_FIRST), told, told]
    assert [run["address"] for run in book.runs()] == ["Tagger/write_note#3"]


async def test_two_changes_before_one_yes_are_one_take_up(both: Both) -> None:
    """What is taken up is what stands then, not each set on the way (R3.6)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)
    await both.teaching.teach(IN_BRACKETS)

    await both.changed(asked)
    again = await both.runtime.question(turn_id)

    assert again.instruction_set == 2
    [taken] = await both.take_ups(turn_id)
    assert (taken.number, taken.from_set, taken.block.instruction_set) == (1, 0, 2)


async def rollback(both: Both, taught: str) -> None:
    await both.teaching.roll_back(0)


async def retirement(both: Both, taught: str) -> None:
    await both.teaching.retire(taught)


async def for_another_person(both: Both, taught: str) -> None:
    await both.teaching.teach(IN_BRACKETS, for_person="ana")


@pytest.mark.parametrize(("change", "guided"), [(rollback, []), (retirement, []), (for_another_person, [COMMON_FIRST])])
async def test_each_next_set_of_the_agent_counts_as_a_change(
    both: Both, change: Callable[[Both, str], Awaitable[None]], guided: list[str]
) -> None:
    """A rollback, a retirement, and what is for other work: the set's number is what stands or not (B12, B13, R3.6)."""
    taught = await both.teaching.teach(COMMON_FIRST)
    await both.tagger()
    turn_id, asked = await both.waiting()
    await change(both, taught.id)

    await both.changed(asked)
    again = await both.runtime.question(turn_id)

    assert (asked.instruction_set, again.instruction_set) == (1, 2)
    assert both.prompts() == [prompt(COMMON_FIRST), prompt(*guided)]


async def test_what_makes_no_set_of_this_agent_changes_nothing(both: Both, book: Book) -> None:
    """Another agent's activation, a proposal, a revision, a rejection, a correction: the yes stands (B13, T1.3)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST, agent="Hand")
    proposed = await both.teaching.propose(COMMON_FIRST)
    await both.teaching.revise(proposed.id, IN_BRACKETS)
    await both.teaching.reject(proposed.id)
    await both.teaching.correct(f"{turn_id}/Tagger")

    await both.runtime.yes(asked)
    turn = await both.runtime.ended(turn_id)

    assert len(book.runs()) == 1
    assert [(one.take_up, one.instruction_set) for one in turn.receipts] == [(0, 0)]
    assert both.prompts() == [prompt(), prompt()]


async def test_a_no_is_taken_whatever_changed(both: Both, book: Book) -> None:
    """A no needs no set: it decides, the model is told it, and the work goes on under its own set (B13, R3.6)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)

    await both.runtime.no(asked, reason="Not in spring.")
    await both.runtime.ended(turn_id)

    assert await both.state(asked) == "DENIED"
    told = both.runtime.paid("Tagger")[-1]["results"]
    assert told == ["The person did not allow this call. Reason: Not in spring."]
    assert both.prompts() == [prompt(), prompt()]
    assert await both.take_ups(turn_id) == []
    assert book.runs() == []


async def test_an_answer_in_its_stead_needs_the_set_too(both: Both, book: Book) -> None:
    """Under another set it decides nothing; under the one that stands it is what the model is told (C1, R3.6)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)
    in_its_stead: dict[str, Any] = {"decision": approvals_pb2.DECISION_ANSWER, "answer_json": '"already there"'}

    error = await refusal(both.runtime.decide(asked, **in_its_stead))
    again = await both.runtime.question(turn_id)
    await both.runtime.decide(again, **in_its_stead)
    await both.runtime.ended(turn_id)

    assert error.reason == "INSTRUCTIONS_CHANGED"
    assert (await both.state(asked), await both.state(again)) == ("SUPERSEDED", "ANSWERED")
    assert both.runtime.paid("Tagger")[-1]["results"] == [TOLD_TO_PROPOSE_AGAIN, "already there"]
    assert book.runs() == []


async def test_a_yes_to_a_superseded_question_is_refused_again(both: Both, book: Book) -> None:
    """Whoever still has the old page open is told the same, and nothing else is superseded by it (R3.6, settled 38)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)
    await both.changed(asked)
    again = await both.runtime.question(turn_id)

    await both.changed(asked, by="hale")

    assert await both.state(again) == "PENDING"
    await both.runtime.yes(again)
    await both.runtime.ended(turn_id)
    assert len(book.runs()) == 1
    assert len(await both.take_ups(turn_id)) == 1


async def test_siblings_keep_their_results_or_fall_with_the_question(both: Both, book: Book) -> None:
    """One that ran keeps its result, a denied one stays denied; what waits falls, and an unused yes (B13, R3.6,
    settled 38).
    """
    asks = proposes(READ, WRITE, POKE, WIRE, NOTE)
    async with wire_host(both.runtime):
        await both.tagger(asks, DONE, tools=["read_note", "write_note", "poke", "wire_write"], approve=CHANGES_ASKED)
        turn_id = await both.runtime.asked_of("Tagger")
        ran, denied, given, waits = await both.runtime.questions(turn_id, 4)
    await both.runtime.yes(ran)
    await both.runtime.events(turn_id, lambda event: event.record.tool_done.tool == "write_note")
    await both.runtime.no(denied, reason="No poking.")
    await both.runtime.yes(given)
    await both.interrupted(turn_id, "no connected host offers wire_write")
    await both.teaching.teach(COMMON_FIRST)

    await both.changed(waits)
    again = await both.runtime.questions(turn_id, 4)

    states = [await both.state(one) for one in (ran, denied, given, waits)]
    assert states == ["APPROVED", "DENIED", "SUPERSEDED", "SUPERSEDED"]
    assert [answer.by.id for answer in (await both.runtime.approval(given.id)).answers] == ["gus"]
    assert both.runtime.paid("Tagger")[-1]["results"] == [
        "spring: water on Mondays",
        "wrote spring",
        "The person did not allow this call. Reason: No poking.",
        TOLD_TO_PROPOSE_AGAIN,
        TOLD_TO_PROPOSE_AGAIN,
    ]
    assert [run["address"] for run in book.runs("write_note", "poke")] == ["Tagger/write_note#2"]
    assert len(await both.take_ups(turn_id)) == 1
    assert {one.instruction_set for one in again} == {1}


async def test_an_unused_yes_falls_also_while_its_host_is_waited_for(both: Both) -> None:
    """The writer that waits for the host is told: the model proposes again without that host (B13, R3.6)."""
    async with wire_host(both.runtime):
        await both.tagger(proposes(WIRE, WRITE), DONE, tools=["wire_write", "write_note"])
        turn_id = await both.runtime.asked_of("Tagger")
        given, waits = await both.runtime.questions(turn_id, 2)
        await both.runtime.at_rest(turn_id)
    await both.runtime.yes(given)
    await both.runtime.events(turn_id, lambda event: event.record.HasField("approval_recorded"))
    await both.teaching.teach(COMMON_FIRST)

    await both.changed(waits)
    [_, again] = await both.runtime.questions(turn_id, 2)

    assert (await both.state(given), await both.state(waits)) == ("SUPERSEDED", "SUPERSEDED")
    assert again.instruction_set == 1
    assert both.runtime.paid("Tagger")[-1]["results"] == [TOLD_TO_PROPOSE_AGAIN] * 2


async def test_a_nested_call_takes_up_alone(both: Both, book: Book) -> None:
    """That task alone takes the instructions up; those above it keep their sets and their prompts (B13, R3.6)."""
    await both.chain(proposes(WRITE), DONE)
    turn_id, asked = await both.waiting("Head")
    for agent in ("Head", "Hand", "Tagger"):
        await both.teaching.teach(COMMON_FIRST, agent=agent)

    await both.changed(asked)
    again = await both.runtime.question(turn_id)
    await both.runtime.yes(again)
    await both.runtime.ended(turn_id)

    hand = f"Head/Hand.{SKILL.name}"
    tagger = f"{hand}/Tagger.{SKILL.name}"
    assert await both.receipts(turn_id) == [("Head", 0, 0), (hand, 0, 0), (tagger, 0, 0), (tagger, 1, 1)]
    assert both.prompts("Tagger") == [prompt(), prompt(COMMON_FIRST), prompt(COMMON_FIRST)]
    assert both.prompts("Hand") == [prompt()] * 2
    assert both.prompts("Head") == [prompt()] * 2
    assert [run["address"] for run in book.runs()] == [f"{again.address}"]
    assert again.address == f"Head/Hand.{SKILL.name}#1/Tagger.{SKILL.name}#1/write_note#2"


async def test_a_nested_calls_yes_stands_whatever_its_parent_is_taught(both: Both, book: Book) -> None:
    """What is looked at is the task of the call that asked (R3.6)."""
    await both.chain(proposes(WRITE), DONE)
    turn_id, asked = await both.waiting("Head")
    await both.teaching.teach(COMMON_FIRST, agent="Head")
    await both.teaching.teach(COMMON_FIRST, agent="Hand")

    await both.runtime.yes(asked)
    await both.runtime.ended(turn_id)

    assert len(book.runs()) == 1
    assert await both.take_ups(turn_id) == []
    assert both.prompts("Head") == [prompt()] * 2


async def test_a_nested_agent_that_began_is_no_call_that_has_not_started(both: Both, book: Book) -> None:
    """Approved and under way, it keeps its result and its own questions, also over a restart (B13, R3.6)."""
    await both.agent("Hand", proposes(WRITE), DONE, tools=["write_note"])
    asks = proposes((HELPER, {"input": "Your turn."}), POKE)
    await both.agent("Tagger", asks, DONE, tools=["poke"], agents=["Hand"], approve=CHANGES_ASKED)
    turn_id = await both.runtime.asked_of("Tagger")
    helper, poke = await both.runtime.questions(turn_id, 2)
    await both.runtime.yes(helper)
    [_, below] = await both.runtime.questions(turn_id, 2)
    await both.runtime.at_rest(turn_id)
    await both.teaching.teach(COMMON_FIRST)

    await both.changed(poke)
    await both.runtime.events(turn_id, lambda event: event.record.tool_done.tool == "poke")
    await both.runtime.restart()

    assert (await both.state(helper), await both.state(below)) == ("APPROVED", "PENDING")
    await both.runtime.yes(below)
    await both.runtime.events(turn_id, lambda event: event.record.HasField("instructions_taken_up"))
    assert both.prompts("Hand") == [prompt()] * 2
    await both.runtime.questions(turn_id, 2)
    assert both.runtime.paid("Tagger")[-1]["results"] == ["Done.", TOLD_TO_PROPOSE_AGAIN]
    assert [run["tool"] for run in book.runs()] == ["write_note"]


async def test_a_nested_agent_is_not_begun_on_a_yes_under_another_set(both: Both) -> None:
    """An agent as a tool that was asked about needs the set of the task that calls it (R1.2, R3.6)."""
    await both.agent("Hand", proposes(WRITE), DONE, tools=["write_note"])
    await both.agent("Tagger", proposes((HELPER, {"input": "Your turn."})), DONE, agents=["Hand"])
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)

    await both.changed(asked)
    again = await both.runtime.question(turn_id)

    assert (asked.tool, again.tool, again.instruction_set) == (HELPER, HELPER, 1)
    assert both.runtime.paid("Hand") == []
    assert list(await both.started(turn_id)) == ["Tagger"]


async def test_one_answer_to_a_turn_is_all_or_nothing(both: Both, book: Book) -> None:
    """One fallen set among what waits: nothing is decided; what stands goes on waiting (C3, R3.6, point 4)."""
    await both.agent("Hand", proposes(WRITE), DONE, tools=["write_note"])
    asks = proposes((HELPER, {"input": "Your turn."}), POKE)
    setting = ApprovalSetting(rule=ApprovalRule(changes=ChangesRule(tools_alone=True)))
    await both.agent("Tagger", asks, DONE, tools=["poke"], agents=["Hand"], approve=setting)
    turn_id = await both.runtime.asked_of("Tagger")
    waiting = await both.runtime.questions(turn_id, 2)
    await both.runtime.at_rest(turn_id)
    by_tool = {one.tool: one for one in waiting}
    await both.teaching.teach(COMMON_FIRST, agent="Hand")

    async def decide(decision: approvals_pb2.Decision.ValueType) -> approvals_pb2.DecideTurnResponse:
        now = await both.runtime.get(turn_id)
        fingerprints = [one.fingerprint for one in now.waiting]
        request = approvals_pb2.DecideTurnRequest(turn_id=turn_id, decision=decision, fingerprints=fingerprints)
        return await both.runtime["gus"].approvals.DecideTurn(request)

    error = await refusal(decide(approvals_pb2.DECISION_APPROVE))
    again = await both.runtime.questions(turn_id, 2)
    states = await both.state(by_tool["poke"]), await both.state(by_tool["write_note"])
    ran = book.runs()
    await both.runtime.at_rest(turn_id)
    await decide(approvals_pb2.DECISION_APPROVE)
    await both.runtime.ended(turn_id)

    assert (error.reason, error.metadata["approval_id"]) == ("INSTRUCTIONS_CHANGED", by_tool["write_note"].id)
    assert states == ("PENDING", "SUPERSEDED")
    assert {(one.tool, one.instruction_set) for one in again} == {("poke", 0), ("write_note", 1)}
    assert ran == []
    assert sorted(run["tool"] for run in book.runs()) == ["poke", "write_note"]


async def test_a_no_to_a_whole_turn_is_taken_whatever_changed(both: Both, book: Book) -> None:
    """A no is always taken, to all that waits as well (R3.6)."""
    await both.tagger(proposes(WRITE, NOTE), DONE)
    turn_id = await both.runtime.asked_of("Tagger")
    await both.runtime.questions(turn_id, 2)
    await both.teaching.teach(COMMON_FIRST)

    request = approvals_pb2.DecideTurnRequest(turn_id=turn_id, decision=approvals_pb2.DECISION_DENY)
    await both.runtime["gus"].approvals.DecideTurn(request)
    await both.runtime.ended(turn_id)

    assert both.runtime.paid("Tagger")[-1]["results"] == ["The person did not allow this call."] * 2
    assert book.runs() == []


async def test_a_change_between_the_yes_and_the_start_is_seen_by_the_writer(both: Both) -> None:
    """The yes was given, the host came later: it is not run, it is superseded, a person is asked anew (D1, R3.5, R3.6,
    scenario 21).
    """
    async with wire_host(both.runtime):
        await both.tagger(proposes(WIRE), DONE, tools=["wire_write"])
        turn_id, asked = await both.waiting()
    await both.runtime.yes(asked)
    stopped = await both.interrupted(turn_id, "no connected host offers wire_write")
    await both.teaching.teach(COMMON_FIRST)
    assert stopped.state == turns_pb2.TURN_STATE_INTERRUPTED
    assert await both.state(asked) == "APPROVED"

    async with wire_host(both.runtime) as host:
        again = await both.runtime.question(turn_id)
        assert await both.state(asked) == "SUPERSEDED"
        assert [one.by.id for one in (await both.runtime.approval(asked.id)).answers] == ["gus"]
        assert not await host.was_sent("calls")
        assert (again.instruction_set, again.address) == (1, "Tagger/wire_write#2")
        await both.runtime.yes(again)
        call = await host.call()
        host.say(call, output_json='"written"')
        await both.runtime.ended(turn_id)

    assert call.address == "Tagger/wire_write#2"
    assert both.runtime.paid("Tagger")[-1]["results"] == [TOLD_TO_PROPOSE_AGAIN, "written"]
    assert "tool_started" in whats(await both.runtime.records(turn_id))
    assert len(await both.take_ups(turn_id)) == 1


async def test_an_edited_input_falls_with_its_yes(both: Both) -> None:
    """What the person wrote in is not run either, nor kept for the new question (C1, R3.6)."""
    async with wire_host(both.runtime):
        await both.tagger(proposes(WIRE), DONE, tools=["wire_write"])
        turn_id, asked = await both.waiting()
    await both.runtime.yes(asked, edited_input_json='{"n": 7}')
    await both.interrupted(turn_id, "no connected host offers wire_write")
    await both.teaching.teach(COMMON_FIRST)

    async with wire_host(both.runtime) as host:
        again = await both.runtime.question(turn_id)
        assert again.input_json == asked.input_json
        await both.runtime.yes(again)
        call = await host.call()
        host.say(call, output_json='"written"')
        await both.runtime.ended(turn_id)

    assert call.input_json == asked.input_json


async def test_a_read_that_was_asked_about_needs_the_set_too(both: Both, book: Book) -> None:
    """Whatever waits for a yes waits under its set, reads as well (R2.6, R3.6)."""
    await both.tagger(
        proposes(READ), DONE, tools=["read_note"], approve=ApprovalSetting(rule=ApprovalRule(all=AllRule()))
    )
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)

    await both.changed(asked)
    again = await both.runtime.question(turn_id)
    before = len(book.runs())
    await both.runtime.yes(again)
    await both.runtime.ended(turn_id)

    assert (before, len(book.runs())) == (0, 1)


async def test_the_second_yes_of_two_needs_the_set_as_well(both: Both, book: Book) -> None:
    """A yes that was one of two is no yes under another set; it stays in `answers` (D5, R3.6, settled 38)."""
    two = ApprovalRule(changes=ChangesRule(), approvals_needed=2)
    await both.tagger(approve=ApprovalSetting(rule=two))
    turn_id, asked = await both.waiting()
    await both.runtime.yes(asked)
    await both.teaching.teach(COMMON_FIRST)

    await both.changed(asked, by="hale")
    again = await both.runtime.question(turn_id)
    await both.runtime.yes(again)
    assert (await both.state(again), book.runs()) == ("PENDING", [])
    await both.runtime.yes(again, by="hale")
    await both.runtime.ended(turn_id)

    assert [one.by.id for one in (await both.runtime.approval(asked.id)).answers] == ["gus"]
    assert len(book.runs()) == 1


@pytest.mark.parametrize(
    ("who", "fingerprint", "reason"),
    [("robot", None, "PERSON_REQUIRED"), ("audra", None, "NOT_PUT_TO_YOU"), ("gus", "0" * 64, "FINGERPRINT_CHANGED")],
)
async def test_an_answer_that_is_none_supersedes_nothing(
    both: Both, who: str, fingerprint: str | None, reason: str
) -> None:
    """Whoever may not answer, or saw something else, is told that, and changes nothing (R3.4, R3.6)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)

    answer = {} if fingerprint is None else {"fingerprint": fingerprint}
    error = await refusal(both.runtime.yes(asked, by=who, **answer))

    assert error.reason == reason
    assert await both.state(asked) == "PENDING"
    assert (await both.runtime.get(turn_id)).writer == 1


async def test_fifty_yes_after_a_change_are_one_take_up(both: Both, book: Book) -> None:
    """Everybody is told the same; the model is asked once, and one new question stands (scenario 26, R3.6)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)

    errors = await asyncio.gather(
        *(refusal(both.runtime.yes(asked, by="gus" if number % 2 else "hale")) for number in range(50))
    )
    again = await both.runtime.question(turn_id)

    assert {error.reason for error in errors} == {"INSTRUCTIONS_CHANGED"}
    assert len(await both.take_ups(turn_id)) == 1
    assert len(both.runtime.paid("Tagger")) == 2
    assert (await both.runtime.get(turn_id)).waiting_count == 1
    assert (again.instruction_set, book.runs()) == (1, [])


async def test_the_news_of_it_reaches_whoever_watches(both: Both) -> None:
    """A watch shows the old question settled and the new one waiting (A8, A13, R11)."""
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)
    await both.changed(asked)
    again = await both.runtime.question(turn_id)

    listed = await both.runtime["gus"].approvals.ListApprovals(
        approvals_pb2.ListApprovalsRequest(filter=approvals_pb2.ApprovalFilter(turn_id=turn_id, put_to_me=True))
    )

    assert [one.id for one in listed.approvals] == [again.id]


async def test_every_task_of_a_reply_that_fell_is_asked_about_alone(both: Both, book: Book) -> None:
    """Questions of other tasks of the turn stand, though asked at the same time (R3.6)."""
    for name in ("Hand", "Head"):
        await both.agent(name, proposes(WRITE), DONE, tools=["write_note"])
    down = [(f"{name}.{SKILL.name}", {"input": "Your turn."}) for name in ("Hand", "Head")]
    await both.agent("Tagger", calls(*down), DONE, agents=["Hand", "Head"], approve=asked_about("write_note"))
    turn_id = await both.runtime.asked_of("Tagger")
    asked = {one.path.split("/")[1]: one for one in await both.runtime.questions(turn_id, 2)}
    await both.teaching.teach(NO_PRICES, agent="Hand")

    await both.changed(asked[HELPER])
    await both.runtime.yes(asked[f"Head.{SKILL.name}"])
    await both.runtime.yes(await both.runtime.question(turn_id))
    await both.runtime.ended(turn_id)

    states = [await both.state(asked[one]) for one in (HELPER, f"Head.{SKILL.name}")]
    assert states == ["SUPERSEDED", "APPROVED"]
    assert both.prompts("Hand") == [prompt(), prompt(NO_PRICES), prompt(NO_PRICES)]
    assert both.prompts("Head") == [prompt()] * 2
    assert len(book.runs()) == 2
