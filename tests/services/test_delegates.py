"""Delegates: agents as tools that remember, along a branch of a conversation and within a turn (A3, R9)."""

from __future__ import annotations

from typing import Any

import pytest
from tutelage.runtime.v1 import approvals_pb2, journal_pb2, turns_pb2
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalRule, ApprovalSetting, ChangesRule, NamesRule
from tutelage.runtime.v1.turns_pb2 import IF_BUSY_BRANCH

from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, NOTHING_ASKED, Service, calls

pytestmark = pytest.mark.usefixtures("host")

TOOLS_ALONE = ApprovalSetting(rule=ApprovalRule(changes=ChangesRule(tools_alone=True)))
SCOUTS_ASKED = ApprovalSetting(rule=ApprovalRule(names=NamesRule(names=["scout"])))
SAID_LAST = "messages[size(messages) - 1].text"
# What a delegate is asked here, and what it says to it. It writes a note where it is asked to.
FINDS = [{"when": f'{SAID_LAST} == "{one}"', "say": f"Found {one}."} for one in "ABC"]
WRITES = [
    calls(("write_note", {"name": "spring", "text": "tulips"}), when=f'{SAID_LAST} == "Write."'),
    {"when": f'{SAID_LAST} == "wrote spring"', "say": "Written."},
]
DONE = {"say": "Done."}


def asks(*questions: str, of: str = "scout", when: str) -> dict[str, Any]:
    """Return a rule: asked one thing, a model puts these to an agent, all in one reply."""
    return calls(*[(of, {"input": question}) for question in questions], when=f'{SAID_LAST} == "{when}"')


async def scout(service: Service, *rules: dict[str, Any], **spec: Any) -> None:
    """Register the delegate of these tests."""
    await service.agent("scout", *rules, *FINDS, *WRITES, tools=["write_note"], **spec)


async def done(service: Service, conversation: str, text: str, **request: Any) -> turns_pb2.Turn:
    """Ask something and wait until it is done."""
    turn = await service.ended((await service.turn(conversation, text, **request)).id)
    assert turn.state == turns_pb2.TURN_STATE_DONE, turn.cause
    return turn


def remembered(asked: dict[str, Any]) -> list[str]:
    """Return what a request shows before what was asked: inputs and outputs in turn, and no steps."""
    roles = [message["role"] for message in asked["messages"]]
    last_asked = len(roles) - 1 - roles[::-1].index("user")
    assert roles[:last_asked] == ["user", "assistant"] * (last_asked // 2)
    return [message["text"] for message in asked["messages"][:last_asked]]


def last_remembered(service: Service) -> list[str]:
    """Return what the delegate remembered as it was last asked."""
    return remembered(service.paid("scout")[-1])


async def task(service: Service, turn_id: str, address: str) -> journal_pb2.TaskStarted:
    """Return what a task of a turn began with."""
    records = await service.records(turn_id)
    [found] = [one.task_started for one in records if one.HasField("task_started") and one.address == address]
    return found


async def test_a_delegate_remembers_along_its_branch(service: Service) -> None:
    """Its calls in turns that are done; what another branch or conversation asked it is none of them (A3, R9)."""
    await scout(service)
    await service.agent(
        "lead", *[asks(one, when=one) for one in "ABC"], DONE, approve=NOTHING_ASKED, delegates=["scout"]
    )
    conversation = await service.conversation("lead")

    first = await done(service, conversation, "A")
    assert last_remembered(service) == []
    await done(service, conversation, "B")
    assert last_remembered(service) == ["A", "Found A."]
    await done(service, conversation, "C", after_turn_id=first.id)
    assert last_remembered(service) == ["A", "Found A."]
    await service.restart()
    await done(service, conversation, "B")
    assert last_remembered(service) == ["A", "Found A.", "C", "Found C."]
    await done(service, await service.conversation("lead"), "A")
    assert last_remembered(service) == []


async def test_what_an_agent_was_asked_when_it_was_no_delegate_is_not_remembered(service: Service) -> None:
    """An agent as a tool remembers nothing; its task's tools have another hash than a delegate's (A3, R6.2)."""
    await scout(service)
    rules = [asks(one, when=one) for one in "AB"]
    await service.agent("lead", *rules, DONE, approve=NOTHING_ASKED, agents=["scout"])
    conversation = await service.conversation("lead")
    first = await done(service, conversation, "A")
    await done(service, conversation, "B")
    assert last_remembered(service) == []
    await service.agent("lead", *rules, DONE, approve=NOTHING_ASKED, delegates=["scout"])

    last = await done(service, conversation, "A")

    assert last_remembered(service) == []
    as_a_tool, as_a_delegate = [await task(service, turn.id, "lead") for turn in (first, last)]
    assert as_a_tool.tools_hash != as_a_delegate.tools_hash


async def test_several_calls_of_a_delegate_in_one_reply_run_one_after_the_other(service: Service) -> None:
    """In the reply's order, each remembering those before it; what else was called does not wait for them (A3, R9)."""
    await scout(service)
    await service.agent("helper", DONE)
    together = calls(
        ("scout", {"input": "A"}), ("scout", {"input": "B"}), ("helper", {"input": "Help."}), ("scout", {"input": "C"})
    )
    await service.agent("lead", together, DONE, approve=NOTHING_ASKED, delegates=["scout"], agents=["helper"])

    turn_id = await service.asked_of("lead")
    await service.ended(turn_id)

    a, b = ["A", "Found A."], ["B", "Found B."]
    assert list(map(remembered, service.paid("scout"))) == [[], a, a + b]
    assert service.paid("lead")[-1]["results"] == ["Found A.", "Found B.", "Done.", "Found C."]
    records = await service.records(turn_id)
    begun = {one.address: one.line for one in records if one.HasField("task_started")}
    ended = {one.tool_done.invocation: one.line for one in records if one.HasField("tool_done")}
    assert begun["lead/helper#3"] < ended[1] < begun["lead/scout#2"] < ended[2] < begun["lead/scout#4"]


async def test_the_answer_to_one_that_stands_in_line_is_taken_and_the_turn_let_go_of(
    service: Service, book: Book
) -> None:
    """The second was approved first: nothing of the turn is held meanwhile, and each runs in its place (R3.1, R9)."""
    await scout(service)
    together = calls(("scout", {"input": "Write."}), ("scout", {"input": "A"}))
    await service.agent("lead", together, DONE, approve=SCOUTS_ASKED, delegates=["scout"])
    turn_id = await service.asked_of("lead")
    first, second = await service.questions(turn_id, 2)
    await service.at_rest(turn_id)

    since = len(service.logged.events)
    await service.yes(second)
    await service.logged.heard("turn.let_go", since, turn=turn_id)
    waiting = await service.get(turn_id)
    await service.restart()
    await service.yes(first)
    turn = await service.ended(turn_id)

    assert waiting.state == turns_pb2.TURN_STATE_WAITING
    assert turn.output == "Done."
    assert len(book.runs("write_note")) == 1
    assert last_remembered(service) == ["Write.", "Written."]
    assert service.paid("lead")[-1]["results"] == ["Written.", "Found A."]


async def test_what_a_delegate_remembers_stays_while_another_branch_goes_on(service: Service) -> None:
    """The loop is rebuilt after a stop and is told the same: a turn's ancestors never change (R6.2, R9)."""
    await scout(service)
    rules = [asks(one, when=one) for one in ("A", "B", "Write.")]
    await service.agent("lead", *rules, DONE, approve=TOOLS_ALONE, delegates=["scout"])
    conversation = await service.conversation("lead")
    first = await done(service, conversation, "A")
    waiting = await service.turn(conversation, "Write.")
    asked = await service.question(waiting.id)
    before = last_remembered(service)
    await done(service, conversation, "B", if_busy=IF_BUSY_BRANCH)
    await service.restart()

    await service.yes(asked)
    turn = await service.ended(waiting.id)

    assert turn.after_turn_id == first.id
    assert before == last_remembered(service) == ["A", "Found A."]
    await done(service, conversation, "B")
    assert last_remembered(service) == ["A", "Found A.", "Write.", "Written."]


async def test_callers_side_by_side_share_a_delegate_by_its_path(service: Service) -> None:
    """What a call remembers is what had returned where its task stands in the journal, also after a stop (R6.2, R9)."""
    await scout(service)
    rules = [asks(one, when=one) for one in ("A", "B", "Write.")]
    await service.agent("helper", *rules, DONE, delegates=["scout"])
    both, last = asks("Write.", "A", of="helper", when="Go on."), calls(("helper", {"input": "B"}), when="step == 1")
    await service.agent("lead", both, last, DONE, approve=TOOLS_ALONE, agents=["helper"])
    turn_id = await service.asked_of("lead")
    asked = await service.question(turn_id)
    await service.restart()

    await service.yes(asked)
    await service.ended(turn_id)

    requests = service.paid("scout")
    assert [request["step"] for request in requests] == [0, 0, 1, 0]
    to_write = [remembered(one) for one in requests if one["messages"][len(remembered(one))]["text"] == "Write."]
    assert len(to_write) == 2
    assert to_write[0] == to_write[1]
    assert remembered(requests[-1]) == ["A", "Found A.", "Write.", "Written."]


async def test_delegates_of_delegates_remember_each_their_own(service: Service) -> None:
    """Three deep; the same agent below another caller is another delegate (A3, R9)."""
    await scout(service)
    both = [calls(("scout", {"input": one}), ("guide", {"input": one}), when=f'{SAID_LAST} == "{one}"') for one in "AB"]
    guide = [asks(one, when=one) for one in "AB"]
    await service.agent("guide", *guide, DONE, delegates=["scout"])
    await service.agent("helper", *both, DONE, delegates=["scout", "guide"])
    await service.agent(
        "lead", *[asks(one, of="helper", when=one) for one in "AB"], DONE, approve=NOTHING_ASKED, delegates=["helper"]
    )
    conversation = await service.conversation("lead")

    await done(service, conversation, "A")
    await service.restart()
    await done(service, conversation, "B")

    for name in ("helper", "guide"):
        assert remembered(service.paid(name)[-1]) == ["A", "Done."]
    assert list(map(remembered, service.paid("scout"))) == [[], [], ["A", "Found A."], ["A", "Found A."]]


async def test_turns_that_are_not_done_and_calls_that_did_not_return_are_not_remembered(service: Service) -> None:
    """Errors never, nor a turn that was abandoned; one that failed once it is done after all (R9)."""
    await scout(service, {"when": f'{SAID_LAST} == "Fail."', "fail": {"status": 400}})
    fails = {"when": f'{SAID_LAST} == "Found B."', "fail": {"status": 400}}
    waits = calls(("write_note", {"name": "spring", "text": "tulips"}), when=f'{SAID_LAST} == "Found C."')
    rules = [asks(one, when=one) for one in "ABC"]
    both = asks("Fail.", "A", when="Both.")
    tools = {"tools": ["write_note"], "delegates": ["scout"]}
    await service.agent("lead", fails, waits, both, *rules, DONE, approve=TOOLS_ALONE, **tools)
    conversation = await service.conversation("lead")

    await done(service, conversation, "Both.")
    abandoned = await service.turn(conversation, "C")
    await service.question(abandoned.id)
    await service["gus"].turns.AbandonTurn(turns_pb2.AbandonTurnRequest(turn_id=abandoned.id))
    failed = await service.ended((await service.turn(conversation, "B")).id)
    assert failed.state == turns_pb2.TURN_STATE_FAILED
    assert last_remembered(service) == ["A", "Found A."]
    service.script("lead", *rules, DONE)
    await service["gus"].turns.ResumeTurn(turns_pb2.ResumeTurnRequest(turn_id=failed.id))
    await service.events(failed.id, lambda event: event.ended.state == turns_pb2.TURN_STATE_DONE)
    await done(service, conversation, "C")

    assert last_remembered(service) == ["A", "Found A.", "B", "Found B."]


async def test_people_settle_what_a_delegate_remembers_of_its_calls(service: Service) -> None:
    """An edited input as it ran; nothing of what was answered in its stead, or not allowed (R3.7, R9)."""
    await scout(service)
    await service.agent(
        "lead",
        asks("A", "B", "C", when="Ask."),
        asks("A", when="Again."),
        DONE,
        approve=CHANGES_ASKED,
        delegates=["scout"],
    )
    conversation = await service.conversation("lead")
    turn = await service.turn(conversation, "Ask.")
    edited, refused, answered = await service.questions(turn.id, 3)
    await service.no(refused)
    await service.decide(answered, approvals_pb2.DECISION_ANSWER, answer_json='"Nothing."')
    await service.yes(edited, edited_input_json='{"input":"C"}')
    await service.ended(turn.id)

    again = await service.turn(conversation, "Again.")
    [asked] = await service.questions(again.id)
    await service.yes(asked)
    await service.ended(again.id)

    assert list(map(remembered, service.paid("scout"))) == [[], ["C", "Found C."]]
