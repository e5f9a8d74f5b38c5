"""Turns of one conversation: what they see of each other, and what happens where one has not ended (A18, R9)."""

from __future__ import annotations

from typing import Any

import pytest
from tutelage.runtime.v1 import conversations_pb2, turns_pb2
from tutelage.runtime.v1.turns_pb2 import IF_BUSY_BRANCH, IF_BUSY_QUEUE, IF_BUSY_REFUSE, IF_BUSY_UNSPECIFIED

from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, Service, calls, refusal, whats

WRITE = ("write_note", {"name": "spring", "text": "tulips"})
SAID_LAST = "messages[size(messages) - 1].text"
# What is said to "Wait." is held until the test lets the tool return.
SLOW = calls(("slow_write", {"name": "x"}), when='step == 0 && messages[size(messages) - 1].text == "Wait."')
ANSWER = {"say": "Answered."}


async def resumed(service: Service, turn_id: str) -> None:
    await service["gus"].turns.ResumeTurn(turns_pb2.ResumeTurnRequest(turn_id=turn_id))


async def slow_gardener(service: Service) -> str:
    """Register an agent that takes its time when asked to, and open a conversation that asks nobody."""
    await service.restart(approve="nothing")
    await service.agent("gardener", SLOW, ANSWER, tools=["slow_write"])
    return await service.conversation("gardener")


async def listed(service: Service, **request: Any) -> tuple[list[str], list[str]]:
    """Page through a list of turns; return their ids, and the tokens of the pages behind the first."""
    ids: list[str] = []
    tokens: list[str] = []
    while True:
        asked = turns_pb2.ListTurnsRequest(page_token=tokens[-1] if tokens else "", **request)
        page = await service["gus"].turns.ListTurns(asked)
        ids += [turn.id for turn in page.turns]
        if not page.next_page_token:
            return ids, tokens
        tokens.append(page.next_page_token)


async def test_a_turn_sees_what_the_earlier_ones_were_asked_and_handed_back(service: Service) -> None:
    """Input and output of each ancestor, without steps (A18, R9)."""
    await service.agent("gardener", {"when": "size(messages) == 1", "say": "Hello."}, {"say": "Goodbye."})
    conversation = await service.conversation("gardener")
    first = await service.ended((await service.turn(conversation, "Hi.")).id)
    second = await service.ended((await service.turn(conversation, "Bye.")).id)

    said = [(message["role"], message["text"]) for message in service.paid("gardener")[-1]["messages"]]

    assert said == [("user", "Hi."), ("assistant", "Hello."), ("user", "Bye.")]
    assert (first.number, second.number) == (1, 2)
    assert (first.after_turn_id, second.after_turn_id) == ("", first.id)


@pytest.mark.parametrize("if_busy", [IF_BUSY_UNSPECIFIED, IF_BUSY_QUEUE])
async def test_behind_one_that_runs_a_turn_queues_and_then_follows_it(
    service: Service, book: Book, if_busy: turns_pb2.IfBusy.ValueType
) -> None:
    """It begins when that ended, and gets what it follows as it begins (A18, R9)."""
    conversation = await slow_gardener(service)
    async with service.host("slow", book.slow_write()):
        first = await service.turn(conversation, "Wait.")
        second = await service.turn(conversation, "Next.", if_busy=if_busy)
        third = await service.turn(conversation, "Last.", if_busy=if_busy)
        assert (second.state, third.state) == (turns_pb2.TURN_STATE_QUEUED, turns_pb2.TURN_STATE_QUEUED)
        await book.slow_began.wait()
        assert (await service.get(second.id)).state == turns_pb2.TURN_STATE_QUEUED
        book.slow_may_end.set()
        second, third = await service.ended(second.id), await service.ended(third.id)

    assert (second.after_turn_id, third.after_turn_id) == (first.id, second.id)
    texts = [message["text"] for message in service.paid("gardener")[-1]["messages"]]
    assert texts == ["Wait.", "Answered.", "Next.", "Answered.", "Last."]
    assert (await service.record(third.id, "turn_given")).after_turn_id == second.id


async def test_behind_one_that_was_abandoned_the_queued_turn_follows_what_that_followed(service: Service) -> None:
    """A turn follows one that is DONE (R9)."""
    await service.agent("gardener", {"when": 'messages[size(messages) - 1].text == "Wait."', **_never()}, ANSWER)
    conversation = await service.conversation("gardener")
    done = await service.ended((await service.turn(conversation, "Hi.")).id)
    running = await service.turn(conversation, "Wait.")
    queued = await service.turn(conversation, "Next.")

    await service["gus"].turns.AbandonTurn(turns_pb2.AbandonTurnRequest(turn_id=running.id))
    turn = await service.ended(queued.id)

    assert turn.after_turn_id == done.id
    assert [message["text"] for message in service.paid("gardener")[-1]["messages"]] == ["Hi.", "Answered.", "Next."]


def _never() -> dict[str, object]:
    return {"say": "Too late.", "delay_ms": 60_000}


async def test_refused_where_it_says_so(service: Service) -> None:
    """CONVERSATION_BUSY (A18, R9)."""
    await service.agent("gardener", _never())
    conversation = await service.conversation("gardener")
    await service.turn(conversation)

    error = await refusal(service.turn(conversation, if_busy=IF_BUSY_REFUSE))

    assert (error.reason, error.code.name) == ("CONVERSATION_BUSY", "FAILED_PRECONDITION")


@pytest.mark.usefixtures("host")
async def test_behind_one_that_waits_a_send_is_refused_unless_it_queues(service: Service) -> None:
    """The pending call never poisons the history (A18, R9, scenario 23)."""
    asks = calls(WRITE, when='step == 0 && messages[size(messages) - 1].text == "Write."')
    await service.agent("gardener", asks, ANSWER, tools=["write_note"])
    conversation = await service.conversation("gardener", CHANGES_ASKED)
    waiting = await service.turn(conversation, "Write.")
    asked = await service.question(waiting.id)

    refused = await refusal(service.turn(conversation, "Next."))
    queued = await service.turn(conversation, "Next.", if_busy=IF_BUSY_QUEUE)
    assert queued.state == turns_pb2.TURN_STATE_QUEUED
    beside = await service.ended((await service.turn(conversation, "Beside.", if_busy=IF_BUSY_BRANCH)).id)
    assert (await service.get(queued.id)).state == turns_pb2.TURN_STATE_QUEUED
    await service.yes(asked)
    turn = await service.ended(queued.id)

    assert refused.reason == "CONVERSATION_BUSY"
    assert beside.after_turn_id == ""
    assert turn.after_turn_id == waiting.id
    said = [message["text"] for message in service.paid("gardener")[-1]["messages"]]
    assert said == ["Write.", "Answered.", "Next."]


async def test_a_branch_begins_at_a_turn_that_is_done(service: Service) -> None:
    """`after_turn_id` names it; one that is not done, or of another conversation, is refused (A18, R9)."""
    await service.agent("gardener", ANSWER)
    conversation = await service.conversation("gardener")
    first = await service.ended((await service.turn(conversation, "One.")).id)
    await service.ended((await service.turn(conversation, "Two.")).id)
    elsewhere = await service.ended((await service.turn(await service.conversation("gardener"), "Else.")).id)

    branch = await service.ended((await service.turn(conversation, "Three.", after_turn_id=first.id)).id)
    other = await refusal(service.turn(conversation, "Four.", after_turn_id=elsewhere.id))

    assert [message["text"] for message in service.paid("gardener")[-1]["messages"]] == ["One.", "Answered.", "Three."]
    assert (branch.after_turn_id, branch.number) == (first.id, 3)
    assert other.reason == "NO_SUCH_THING"


async def test_opening_a_conversation_again_returns_it_as_it_is(service: Service) -> None:
    """Of that id: the one there is. Of another agent, or one that the caller may not see: refused (settled 16)."""
    await service.agent("gardener", ANSWER)
    await service.agent("cook", ANSWER)
    opened = conversations_pb2.OpenConversationRequest(
        agent="gardener", conversation_id="garden:1", approve=CHANGES_ASKED
    )

    first = await service["gus"].conversations.OpenConversation(opened)
    again = await service["gus"].conversations.OpenConversation(
        conversations_pb2.OpenConversationRequest(agent="gardener", conversation_id="garden:1")
    )
    other_agent = await refusal(service.conversation("cook", conversation_id="garden:1"))
    other_person = await refusal(service.conversation("gardener", conversation_id="garden:1", by="stranger"))

    assert again == first
    assert first.conversation.opened_by.id == "gus"
    assert first.conversation.approve.rule.HasField("changes")
    assert {other_agent.reason, other_person.reason} == {"REQUEST_ID_REUSED"}


async def test_a_failed_turn_is_resumed_only_while_nothing_began_after_it(service: Service) -> None:
    """CONVERSATION_BUSY once another did; else what was done stays done (R9)."""
    await service.agent("gardener", {"when": "size(messages) == 1", "fail": {"status": 400}}, ANSWER)
    conversation = await service.conversation("gardener")
    failed = await service.ended((await service.turn(conversation, "One.")).id)
    assert failed.state == turns_pb2.TURN_STATE_FAILED
    assert failed.cause
    service.script("gardener", ANSWER)

    await resumed(service, failed.id)
    events = await service.events(failed.id, lambda event: event.ended.state == turns_pb2.TURN_STATE_DONE)

    assert events[-1].ended.output == "Answered."
    assert whats(await service.records(failed.id)).count("turn_ended") == 2


async def test_a_failed_turn_stays_failed_once_another_took_its_place(service: Service) -> None:
    """However that one ended; what went on along another branch takes nothing from it (R9)."""
    fails = {"when": f"{SAID_LAST}.startsWith('Fail')", "fail": {"status": 400}}
    await service.agent("gardener", fails, ANSWER)
    conversation = await service.conversation("gardener")
    await service.ended((await service.turn(conversation, "Root.")).id)
    first = await service.ended((await service.turn(conversation, "Fail, first.")).id)
    second = await service.ended((await service.turn(conversation, "Fail, second.")).id)
    beside = await service.ended((await service.turn(conversation, "Beside.", if_busy=IF_BUSY_BRANCH)).id)
    branch = await service.ended((await service.turn(conversation, "Branch.", after_turn_id=beside.id)).id)
    failed = await service.ended((await service.turn(conversation, "Fail, last.", after_turn_id=beside.id)).id)
    await service.ended((await service.turn(conversation, "Along.", after_turn_id=branch.id)).id)
    service.script("gardener", ANSWER)

    refused = [await refusal(resumed(service, one.id)) for one in (first, second)]
    await resumed(service, failed.id)
    events = await service.events(failed.id, lambda event: event.ended.state == turns_pb2.TURN_STATE_DONE)

    assert [error.reason for error in refused] == ["CONVERSATION_BUSY"] * 2
    assert [error.metadata["turn_id"] for error in refused] == [second.id, beside.id]
    assert events[-1].ended.after_turn_id == beside.id


@pytest.mark.usefixtures("host")
async def test_a_queued_turn_stands_behind_one_turn_and_no_branch_beside_it(service: Service) -> None:
    """It begins when that one ended, though a branch beside it still waits for a person (R9, scenario 23)."""
    asks = calls(WRITE, when=f'step == 0 && {SAID_LAST}.startsWith("Write")')
    await service.agent("gardener", asks, ANSWER, tools=["write_note"])
    conversation = await service.conversation("gardener", CHANGES_ASKED)
    first = await service.turn(conversation, "Write, first.")
    asked = await service.question(first.id)
    queued = await service.turn(conversation, "Next.", if_busy=IF_BUSY_QUEUE)
    beside = await service.turn(conversation, "Write, beside.", if_busy=IF_BUSY_BRANCH)
    beside_asked = await service.question(beside.id)
    behind_it = await service.turn(conversation, "Last.", if_busy=IF_BUSY_QUEUE)

    await service.no(asked)
    followed = await service.ended(queued.id)
    still = await service.get(behind_it.id)
    await service.no(beside_asked)
    last = await service.ended(behind_it.id)

    assert followed.after_turn_id == first.id
    assert still.state == turns_pb2.TURN_STATE_QUEUED
    assert last.after_turn_id == beside.id


@pytest.mark.usefixtures("host")
async def test_one_that_is_abandoned_in_the_line_lets_nobody_pass(service: Service) -> None:
    """Those behind it stand behind what it stood behind (R9, scenario 23)."""
    await service.agent(
        "gardener", calls(WRITE, when=f'step == 0 && {SAID_LAST} == "Write."'), ANSWER, tools=["write_note"]
    )
    conversation = await service.conversation("gardener", CHANGES_ASKED)
    first = await service.turn(conversation, "Write.")
    asked = await service.question(first.id)
    gone, last = [await service.turn(conversation, text, if_busy=IF_BUSY_QUEUE) for text in ("Gone.", "Last.")]

    await service["gus"].turns.AbandonTurn(turns_pb2.AbandonTurnRequest(turn_id=gone.id))
    in_line = await service.get(last.id)
    await service.no(asked)
    followed = await service.ended(last.id)

    assert in_line.state == turns_pb2.TURN_STATE_QUEUED
    assert followed.after_turn_id == first.id
    assert [message["text"] for message in service.paid("gardener")[-1]["messages"]] == ["Write.", "Answered.", "Last."]


async def test_behind_one_that_is_interrupted_a_send_is_refused_unless_it_queues(service: Service) -> None:
    """As behind one that waits: it may stay so for long (A18, scenario 23)."""
    away = {"when": f'{SAID_LAST} == "Wait."', "fail": {"status": 503, "retry_after": 3600}}
    await service.agent("gardener", away, ANSWER)
    conversation = await service.conversation("gardener")
    first = await service.turn(conversation, "Wait.")
    await service.at_rest(first.id)

    refused = await refusal(service.turn(conversation, "Next."))
    not_done = await refusal(service.turn(conversation, "Next.", after_turn_id=first.id))
    queued = await service.turn(conversation, "Next.", if_busy=IF_BUSY_QUEUE)
    behind_it = await service.turn(conversation, "Last.")
    await service["gus"].turns.AbandonTurn(turns_pb2.AbandonTurnRequest(turn_id=first.id))
    last = await service.ended(behind_it.id)

    assert refused.reason == "CONVERSATION_BUSY"
    assert [path for path, _ in not_done.fields] == ["after_turn_id"]
    assert behind_it.state == turns_pb2.TURN_STATE_QUEUED
    assert last.after_turn_id == queued.id


async def test_lists_page_without_a_gap_newest_first(service: Service) -> None:
    """Every row once; a token of another request is refused (settled 17, scenario 37)."""
    await service.agent("gardener", ANSWER)
    conversation = await service.conversation("gardener")
    made = [(await service.turn(conversation, if_busy=IF_BUSY_QUEUE)).id for _ in range(7)]
    turns = service["gus"].turns

    all_of_them, tokens = await listed(service, conversation_id=conversation, page_size=3)
    others = await refusal(turns.ListTurns(turns_pb2.ListTurnsRequest(page_size=3, page_token=tokens[-1])))
    negative = await refusal(turns.ListTurns(turns_pb2.ListTurnsRequest(page_size=-1)))

    assert all_of_them == made[::-1]
    assert len(tokens) == 2
    assert [path for path, _ in others.fields] == ["page_token"]
    assert [path for path, _ in negative.fields] == ["page_size"]


async def test_of_a_conversation_that_is_too_long_the_newest_is_shown_and_the_model_is_told(service: Service) -> None:
    """4 Mi characters fit; `before_turn_id` lists what was shown, and nothing else (R9)."""
    await service.agent("gardener", ANSWER)
    conversation = await service.conversation("gardener")
    made = [(await service.ended((await service.turn(conversation, "x" * 2**20)).id)).id for _ in range(6)]

    paid = service.paid("gardener")
    shown, _ = await listed(service, before_turn_id=made[5])

    assert [len(asked["messages"]) // 2 for asked in paid] == [0, 1, 2, 3, 4, 4]
    assert ["its beginning is left out" in asked["system"] for asked in paid] == [False] * 5 + [True]
    assert shown == made[4:0:-1]
