"""Going on after a stop: nothing is paid for twice, nothing runs twice, at any depth."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from tutelage.runtime.v1 import agents_pb2, approvals_pb2, conversations_pb2, turns_pb2
from tutelage.runtime.v1.approval_setting_pb2 import AllRule, ApprovalRule, ApprovalSetting, ChangesRule, NamesRule

from tests.postgres import both_databases
from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, NOTHING_ASKED, Service, calls, refusal, whats

pytestmark = [both_databases, pytest.mark.usefixtures("host")]

WRITE = ("write_note", {"name": "spring", "text": "tulips"})
READ = ("read_note", {"name": "spring"})
TOOLS_ALONE = ApprovalSetting(rule=ApprovalRule(changes=ChangesRule(tools_alone=True)))


async def chain(service: Service, depth: int, *innermost: dict[str, Any]) -> list[str]:
    """Register agents that use each other as tools, `depth` deep; the innermost says these rules.

    The root's setting asks about tools alone.
    """
    names = [f"agent{level}" for level in range(depth + 1)]
    await service.agent(names[-1], *innermost, tools=["read_note", "write_note"])
    for name, below in reversed(list(pairwise(names))):
        down = calls((below, {"input": "Your turn."}))
        setting = TOOLS_ALONE if name == names[0] else None
        done = {"when": "step == 1", "say": f"{name} is done."}
        await service.agent(name, down, done, agents=[below], approve=setting)
    return names


async def test_what_was_read_before_the_wait_is_not_read_again(service: Service, book: Book) -> None:
    """One reply holds a read and a gated write; resumed, the read's result is replayed (A11, scenario 1)."""
    await service.agent("gardener", calls(READ, WRITE), {"say": "Done."}, tools=["read_note", "write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    asked = await service.question(turn_id)
    assert len(book.runs("read_note")) == 1
    await service.restart()

    await service.yes(asked)
    turn = await service.ended(turn_id)

    assert [run["tool"] for run in book.runs()] == ["read_note", "write_note"]
    assert service.paid("gardener")[-1]["results"] == ["spring: water on Mondays", "wrote spring"]
    assert len(service.paid("gardener")) == 2
    assert turn.usage.model_requests == 2


async def test_another_process_goes_on_as_the_next_writer(service: Service) -> None:
    """Writers are numbered 1, 2, …, and each record names its own (A8, A12, R6.1, settled 22)."""
    await service.agent("gardener", calls(WRITE), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    asked = await service.question(turn_id)
    before = len(await service.records(turn_id))
    await service.restart()

    await service.yes(asked, by="hale")
    turn = await service.ended(turn_id)

    records = await service.records(turn_id)
    assert turn.writer == 2
    assert [record.writer for record in records] == [1] * before + [2] * (len(records) - before)
    started = [record.writer_started for record in records if record.HasField("writer_started")]
    assert [one.why for one in started] == ["given", "answered"]
    assert started[0].process != started[1].process
    assert [record.line for record in records] == list(range(1, len(records) + 1))


async def test_a_turn_stopped_in_the_middle_is_taken_up_by_the_next_process(service: Service, book: Book) -> None:
    """A graceful stop hands the turn back; the reply that was paid for is replayed (A11, A12, R6.2)."""
    await service.agent(
        "gardener",
        calls(READ),
        {"when": "step == 1", "delay_ms": 60_000, "say": "Too late."},
        tools=["read_note"],
    )
    turn_id = await service.asked_of("gardener")
    await service.events(turn_id, lambda event: event.record.HasField("tool_done"))
    await service.stop()
    service.script("gardener", calls(READ), {"say": "Done."})

    await service.start()
    turn = await service.ended(turn_id)

    assert turn.output == "Done."
    assert turn.writer == 2
    assert len(book.runs()) == 1
    assert [asked["step"] for asked in service.paid("gardener")] == [0, 1, 1]


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
async def test_a_question_far_down_is_asked_once_and_its_call_runs_once(
    service: Service, book: Book, depth: int
) -> None:
    """A rule set on the root holds at any depth; only the open call goes on (A11, R2.2, scenarios 2, 17, 18)."""
    names = await chain(service, depth, calls(READ, WRITE), {"say": "The innermost is done."})
    turn_id = await service.asked_of(names[0])
    asked = await service.question(turn_id)
    await service.restart()

    await service.yes(asked)
    turn = await service.ended(turn_id)

    chain_of_names = "".join(f"/{name}#1" for name in names[1:])
    assert asked.tool == "write_note"
    assert asked.path == "/".join([*names, "write_note"])
    assert asked.address == f"{names[0]}{chain_of_names}/write_note#2"
    assert turn.output == f"{names[0]} is done."
    assert [run["tool"] for run in book.runs()] == ["read_note", "write_note"]
    assert [len(service.paid(name)) for name in names] == [2] * len(names)
    assert turn.usage.model_requests == 2 * len(names)
    assert service.paid(names[-2])[-1]["results"] == ["The innermost is done."]
    assert [receipt.path for receipt in turn.receipts] == ["/".join(names[: n + 1]) for n in range(len(names))]


async def test_a_parent_does_not_read_its_agents_wait_as_an_answer(service: Service) -> None:
    """A nested agent waits, so its parent waits: it is asked for nothing more (scenario 19)."""
    names = await chain(service, 2, calls(WRITE), {"say": "Done."})
    turn_id = await service.asked_of(names[0])

    await service.question(turn_id)

    assert [len(service.paid(name)) for name in names] == [1, 1, 1]
    assert (await service.get(turn_id)).state == turns_pb2.TURN_STATE_WAITING


async def test_an_agent_that_changes_things_is_asked_about_and_then_its_tool_is(service: Service, book: Book) -> None:
    """`changes` includes agents used as tools that change things, unless `tools_alone` (A2, R2.6)."""
    names = await chain(service, 1, calls(WRITE), {"say": "Done."})
    turn_id = await service.asked_of(names[0], approve=CHANGES_ASKED)

    outer = await service.question(turn_id)
    await service.yes(outer)
    [inner] = await service.questions(turn_id)
    await service.yes(inner)
    await service.ended(turn_id)

    assert (outer.path, inner.path) == ("agent0/agent1", "agent0/agent1/write_note")
    assert len(book.runs("write_note")) == 1


async def test_an_agent_whose_tools_only_read_runs_unasked(service: Service, book: Book) -> None:
    """A hosted agent as a tool reads unless one of its tools changes things (A2, R1.2)."""
    await service.agent("reader", calls(READ), {"say": "Read."}, tools=["read_note"])
    await service.agent("front", calls(("reader", {"input": "Look."})), {"say": "Done."}, agents=["reader"])

    turn = await service.ended(await service.asked_of("front", approve=CHANGES_ASKED))

    assert turn.output == "Done."
    assert len(book.runs("read_note")) == 1


async def test_a_reason_reaches_the_model_three_agents_deep_through_a_restart(service: Service) -> None:
    """Told to the model to the letter (A7, scenario 15)."""
    names = await chain(service, 3, calls(WRITE), {"when": "step == 1", "say": "So be it."})
    turn_id = await service.asked_of(names[0])
    asked = await service.question(turn_id)
    await service.restart()

    await service.no(asked, reason="Line one\n“two” 🌷")
    await service.ended(turn_id)

    told = "The person did not allow this call. Reason: Line one\n“two” 🌷"
    assert service.paid(names[-1])[-1]["results"] == [told]
    assert service.paid(names[-2])[-1]["results"] == ["So be it."]


async def test_what_the_deepest_agents_own_setting_asks_is_added(service: Service, book: Book) -> None:
    """Settings of agents below the root only add: nothing asked at the root is asked below (R2.2)."""
    all_asked = ApprovalSetting(rule=ApprovalRule(all=AllRule(), put_to=["role:supervises"]))
    await service.agent("reader", calls(READ), {"say": "Read."}, tools=["read_note"], approve=all_asked)
    await service.agent("front", calls(("reader", {"input": "Look."})), {"say": "Done."}, agents=["reader"])
    turn_id = await service.asked_of("front", approve=CHANGES_ASKED)

    asked = await service.question(turn_id)

    assert asked.path == "front/reader/read_note"
    assert asked.asked_by_rule == "all (agent)"
    assert list(asked.put_to) == ["role:supervises"]
    assert not book.runs()


async def test_calls_are_numbered_within_their_agent_across_steps_whatever_the_model_calls_them(
    service: Service,
) -> None:
    """Invocations are the runtime's: 1, 2, … across every step, also where ids repeat (A17, scenario 7)."""

    def write(step: int, text: str) -> dict[str, Any]:
        call = {"tool": "write_note", "input": {"name": "spring", "text": text}, "id": "call_1"}
        return {"when": f"step == {step}", "calls": [call]}

    await service.agent("gardener", write(0, "one"), write(1, "two"), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    first = await service.question(turn_id)
    await service.yes(first)
    [second] = await service.questions(turn_id)
    await service.no(second)
    await service.ended(turn_id)

    assert (first.invocation, first.address) == (1, "gardener/write_note#1")
    assert (second.invocation, second.address) == (2, "gardener/write_note#2")
    assert first.fingerprint != second.fingerprint
    told = ["wrote spring", "The person did not allow this call."]
    assert service.paid("gardener")[-1]["results"] == told


async def test_two_calls_of_one_tool_answered_in_the_other_order_get_their_own_answers(
    service: Service, book: Book
) -> None:
    """Each call gets its own answer, and the results stand in the reply's order (A17, C3, scenario 8)."""
    one, two = (("write_note", {"name": name, "text": name}) for name in ("one", "two"))
    await service.agent("gardener", calls(one, two), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    first, second = await service.questions(turn_id, 2)

    await service.yes(second)
    await service.events(turn_id, lambda event: event.record.HasField("tool_done"))
    assert [run["input"]["name"] for run in book.runs()] == ["two"]
    await service.yes(first)
    await service.ended(turn_id)

    assert [run["address"] for run in book.runs()] == ["gardener/write_note#2", "gardener/write_note#1"]
    assert service.paid("gardener")[-1]["results"] == ["wrote one", "wrote two"]


async def test_one_no_of_two_leaves_the_other_untouched(service: Service, book: Book) -> None:
    """The model sees one refusal with its reason, in order (A7, scenario 13)."""
    one, two = (("write_note", {"name": name, "text": name}) for name in ("one", "two"))
    await service.agent("gardener", calls(one, READ, two), {"say": "Done."}, tools=["write_note", "read_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    first, second = await service.questions(turn_id, 2)

    await service.no(first, reason="Not one.")
    await service.yes(second)
    await service.ended(turn_id)

    assert [run["input"]["name"] for run in book.runs("write_note")] == ["two"]
    assert service.paid("gardener")[-1]["results"] == [
        "The person did not allow this call. Reason: Not one.",
        "spring: water on Mondays",
        "wrote two",
    ]


async def test_fifty_questions_answered_by_many_in_any_order_each_run_once(service: Service, book: Book) -> None:
    """Every one once (C3, scenario 20)."""
    asks = [("write_note", {"name": f"n{n}", "text": "x"}) for n in range(50)]
    await service.agent("gardener", calls(*asks), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    questions = await service.questions(turn_id, 50)

    for n, asked in enumerate(sorted(questions, key=lambda one: one.fingerprint)):
        await service.yes(asked, by=("gus", "hale", "ivy")[n % 3])
    await service.ended(turn_id)

    assert sorted(run["input"]["name"] for run in book.runs()) == sorted(f"n{n}" for n in range(50))
    assert service.paid("gardener")[-1]["results"] == [f"wrote n{n}" for n in range(50)]


async def test_a_rule_by_names_asks_about_those_alone(service: Service, book: Book) -> None:
    """A name is a tool's, a whole path, or a path's ending, whole names at a time (A6, R2.6)."""
    await service.agent("gardener", calls(READ, WRITE), {"say": "Done."}, tools=["read_note", "write_note"])
    for named, asked_about in (
        ("read_note", ["read_note"]),
        ("gardener/read_note", ["read_note"]),
        ("ener/read_note", []),
        ("write_note", ["write_note"]),
    ):
        rule = ApprovalSetting(rule=ApprovalRule(names=NamesRule(names=[named])))
        turn_id = await service.asked_of("gardener", approve=rule, by="hale")
        if asked_about:
            [asked] = await service.questions(turn_id, by="hale")
            assert [asked.tool] == asked_about
            await service.yes(asked, by="hale")
        await service.ended(turn_id, by="hale")
    assert len(book.runs()) == 8


async def test_a_rule_for_all_asks_about_reads_too(service: Service, book: Book) -> None:
    """`all` names every tool (A6, R2.6)."""
    await service.agent("gardener", calls(READ), {"say": "Done."}, tools=["read_note"])
    turn_id = await service.asked_of("gardener", approve=ApprovalSetting(rule=ApprovalRule(all=AllRule())))

    asked = await service.question(turn_id)
    assert not book.runs()
    await service.yes(asked)
    await service.ended(turn_id)

    assert len(book.runs("read_note")) == 1
    records = await service.records(turn_id)
    assert "tool_started" not in whats(records)
    assert (await service.approval(asked.id)).outcome == "spring: water on Mondays"


async def test_the_rule_of_a_waiting_question_is_not_loosened_after_it(service: Service) -> None:
    """What was asked stays asked; a turn's settings are those it began with (R2.4, scenario 12)."""
    await service.agent("gardener", calls(WRITE), {"say": "Done."}, tools=["write_note"])
    conversation = await service.conversation("gardener", CHANGES_ASKED)
    turn_id = (await service.turn(conversation)).id
    asked = await service.question(turn_id)

    await service["hale"].conversations.SetConversationApproval(
        conversations_pb2.SetConversationApprovalRequest(conversation_id=conversation, approve=NOTHING_ASKED)
    )

    assert (await service.approval(asked.id)).state == approvals_pb2.APPROVAL_STATE_PENDING
    await service.yes(asked)
    await service.ended(turn_id)
    unasked = await service.ended((await service.turn(conversation)).id)
    assert "approval_asked" not in whats(await service.records(unasked.id))


async def test_nobody_loosens_what_others_set(service: Service) -> None:
    """A setting by somebody who does not supervise only adds; a supervisor's holds as the most specific (A4, R2.2)."""
    await service.agent("gardener", calls(WRITE), {"say": "Done."}, tools=["write_note"])

    asked = await service.question(await service.asked_of("gardener", approve=NOTHING_ASKED))
    unasked = await service.ended(await service.asked_of("gardener", approve=NOTHING_ASKED, by="hale"), by="hale")

    assert asked.asked_by_rule == "changes (service)"
    assert "approval_asked" not in whats(await service.records(unasked.id, by="hale"))


async def test_an_answer_at_any_moment_lets_its_turn_go_on(service: Service, book: Book) -> None:
    """While another call of the reply still runs, or as the turn is about to wait: nothing waits for ever (24d)."""
    await service.agent("gardener", calls(READ, WRITE), {"say": "Done."}, tools=["read_note", "write_note"])

    async def answered_at_once() -> turns_pb2.Turn:
        turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
        [asked] = await service.questions(turn_id)
        await service.yes(asked)
        return await service.ended(turn_id)

    turns = await asyncio.gather(*(answered_at_once() for _ in range(20)))

    assert {turn.state for turn in turns} == {turns_pb2.TURN_STATE_DONE}
    assert len(book.runs("write_note")) == len(book.runs("read_note")) == 20
    assert len(service.paid("gardener")) == 40


async def test_a_turn_that_waits_for_a_person_is_not_resumed(service: Service) -> None:
    """TURN_WAITING: it is answered, not resumed (R9)."""
    await service.agent("gardener", calls(WRITE), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    await service.question(turn_id)

    error = await refusal(service["gus"].turns.ResumeTurn(turns_pb2.ResumeTurnRequest(turn_id=turn_id)))

    assert (error.reason, error.code.name) == ("TURN_WAITING", "FAILED_PRECONDITION")


async def test_approvals_are_listed_oldest_first_by_state(service: Service) -> None:
    """What waits where no state is named; every row once over pages (settled 17)."""
    asks = [("write_note", {"name": f"n{n}", "text": "x"}) for n in range(5)]
    await service.agent("gardener", calls(*asks), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    questions = await service.questions(turn_id, 5)
    await service.no(questions[1])

    async def listed(*states: approvals_pb2.ApprovalState.ValueType) -> list[str]:
        found: list[str] = []
        token = ""
        while True:
            page = await service["gus"].approvals.ListApprovals(
                approvals_pb2.ListApprovalsRequest(
                    filter=approvals_pb2.ApprovalFilter(states=states), page_size=2, page_token=token
                )
            )
            found += [one.id for one in page.approvals]
            token = page.next_page_token
            if not token:
                return found

    waits = [one.id for one in questions if one.id != questions[1].id]
    assert await listed() == waits
    assert await listed(approvals_pb2.APPROVAL_STATE_DENIED) == [questions[1].id]
    assert await listed(*approvals_pb2.ApprovalState.values()[1:]) == [one.id for one in questions]
    assert (await refusal(listed(approvals_pb2.APPROVAL_STATE_UNSPECIFIED))).reason == "INVALID_FIELD"


async def test_a_skills_input_must_fit_its_schema(service: Service) -> None:
    """INPUT_DOES_NOT_FIT, every place named; an unknown skill is a wrong field (R12)."""
    schema = '{"type":"object","properties":{"bed":{"type":"integer"}},"required":["bed"]}'
    skills = [
        agents_pb2.Skill(name="plant", description="Plant.", version="2", input_schema_json=schema),
        agents_pb2.Skill(name="chat"),
    ]
    await service.agent("gardener", {"say": "Done."}, skills=skills, purpose="You garden.")
    conversation = await service.conversation("gardener")

    async def start(skill: str, text: str) -> turns_pb2.Turn:
        work = turns_pb2.Work(skill=skill, input=text)
        request = turns_pb2.StartTurnRequest(conversation_id=conversation, work=work)
        return (await service["gus"].turns.StartTurn(request)).turn

    unfit = await refusal(start("plant", '{"bed": "three"}'))
    no_json = await refusal(start("plant", "bed three"))
    unknown = await refusal(start("weed", "x"))
    turn = await service.ended((await start("plant", '{"bed": 3}')).id)

    assert (unfit.reason, unfit.code.name) == ("INPUT_DOES_NOT_FIT", "INVALID_ARGUMENT")
    assert [path for path, _ in unfit.fields] == ["bed"]
    assert [path for path, _ in no_json.fields] == ["work.input"]
    assert [path for path, _ in unknown.fields] == ["work.skill"]
    assert [(receipt.skill, receipt.skill_version) for receipt in turn.receipts] == [("plant", "2")]
    assert service.paid("gardener")[0]["system"] == "You garden.\n\nPlant."
