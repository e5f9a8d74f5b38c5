"""What each agent's call is told by people, and what is kept of it."""

from __future__ import annotations

import hashlib

import pytest
from tutelage.runtime.v1 import turns_pb2
from tutelage.teaching.v1 import tasks_pb2

from tests.services.service import calls
from tests.taught.both import (
    COMMON_FIRST,
    DONE,
    IN_BRACKETS,
    NO_PRICES,
    PURPOSE,
    READ,
    SKILL,
    WRITE,
    Both,
    prompt,
    proposes,
)
from tests.teaching.service import EMPTY_SHA256, named, person, refusal, text_of

pytestmark = pytest.mark.usefixtures("host")


async def test_the_block_is_last_in_the_system_prompt_to_the_byte(both: Both) -> None:
    """After the purpose and the skill; sha256 is of exactly what the model was handed (B9, T5.5, T5.6)."""
    taught = [await both.teaching.teach(one) for one in (COMMON_FIRST, "Écris « lavande » – 🌷 d'abord.")]
    await both.tagger(DONE)

    turn = await both.runtime.ended(await both.runtime.asked_of("Tagger"))

    [system] = both.prompts()
    block = system.removeprefix(f"{PURPOSE}\n\n{SKILL.description}\n\n")
    assert block == text_of(*(one.says.guidance for one in taught))
    [receipt] = turn.receipts
    assert receipt.instructions_hash == hashlib.sha256(block.encode()).hexdigest()
    assert list(receipt.instructions_sent) == [one.id for one in taught]


async def test_a_task_of_its_own_for_every_agents_call_three_deep(both: Both) -> None:
    """Root and nested ones, each with its agent's set and block: record, receipt and model agree (B9, point 4)."""
    await both.teaching.teach(COMMON_FIRST, agent="Head")
    for guidance in (IN_BRACKETS, NO_PRICES):
        await both.teaching.teach(guidance, agent="Tagger")
    await both.chain(calls(READ), DONE)

    turn = await both.runtime.ended(await both.runtime.asked_of("Head"))

    started = await both.started(turn.id)
    below = f"Head/Hand.{SKILL.name}#1", f"Head/Hand.{SKILL.name}#1/Tagger.{SKILL.name}#1"
    assert list(started) == ["Head", *below]
    assert {address: one.task_id for address, one in started.items()} == {
        address: f"{turn.id}/{address}" for address in started
    }
    guided = {"Head": [COMMON_FIRST], "Hand": [], "Tagger": [IN_BRACKETS, NO_PRICES]}
    assert [one.block.instruction_set for one in started.values()] == [1, 0, 2]
    for one, receipt in zip(started.values(), turn.receipts, strict=True):
        expected = prompt(*guided[one.agent])
        assert set(both.prompts(one.agent)) == {expected}
        block = text_of(*guided[one.agent])
        assert one.block.sha256 == hashlib.sha256(block.encode()).hexdigest()
        assert (one.block.left_out, one.block.render_version) == (0, 1)
        task = await both.teaching.task(one.task_id)
        [sent] = task.sent
        assert (sent.set_number, list(sent.instruction_ids), sent.sha256, sent.text) == (
            one.block.instruction_set,
            list(one.block.instruction_ids),
            one.block.sha256,
            block,
        )
        assert sent.words == one.words
        assert (receipt.task_id, receipt.agent, receipt.skill, receipt.skill_version, receipt.take_up) == (
            one.task_id,
            one.agent,
            SKILL.name,
            "2",
            0,
        )
        assert (receipt.instruction_set, receipt.left_out, receipt.instructions_hash) == (
            one.block.instruction_set,
            0,
            one.block.sha256,
        )
        assert list(receipt.instructions_sent) == list(one.block.instruction_ids)
        assert (task.turn_id, task.path, task.work_for.id, task.given_by.id) == (turn.id, receipt.path, "gus", "gus")
    assert [one.path for one in turn.receipts] == [
        "Head",
        f"Head/Hand.{SKILL.name}",
        f"Head/Hand.{SKILL.name}/Tagger.{SKILL.name}",
    ]


async def test_where_nothing_was_taught_there_is_no_block(both: Both) -> None:
    """Set 0, no heading, the hash of the empty text (B9, B12, T5.4)."""
    await both.tagger(DONE)

    turn = await both.runtime.ended(await both.runtime.asked_of("Tagger"))

    assert both.prompts() == [f"{PURPOSE}\n\n{SKILL.description}"]
    [receipt] = turn.receipts
    assert (receipt.instruction_set, list(receipt.instructions_sent)) == (0, [])
    assert (receipt.instructions_hash, receipt.left_out) == (EMPTY_SHA256, 0)
    [started] = (await both.started(turn.id)).values()
    assert started.words == (await both.teaching.task(started.task_id)).sent[0].words != ""


async def test_a_proposal_reaches_no_model(both: Both) -> None:
    """No model is sent anything that is not active: proposed, rejected and retired ones are not (B3, B6, T2.3)."""
    await both.teaching.propose(COMMON_FIRST, "hale")
    await both.teaching.reject((await both.teaching.propose(IN_BRACKETS)).id)
    retired = await both.teaching.teach(NO_PRICES)
    await both.teaching.retire(retired.id)
    await both.tagger(DONE)

    turn = await both.runtime.ended(await both.runtime.asked_of("Tagger"))

    assert both.prompts() == [prompt()]
    assert turn.receipts[0].instruction_set == 2


async def test_after_a_rollback_to_0_the_next_work_is_told_nothing_under_set_2(both: Both) -> None:
    """A rollback is the next set; to 0, it brings the first prompt back (B12, T4.3)."""
    await both.tagger(DONE)
    await both.runtime.ended(await both.runtime.asked_of("Tagger"))
    await both.teaching.teach(COMMON_FIRST)
    await both.runtime.ended(await both.runtime.asked_of("Tagger"))
    await both.teaching.roll_back(0)

    turn = await both.runtime.ended(await both.runtime.asked_of("Tagger"))

    first, taught, third = both.prompts()
    assert (first, taught) == (prompt(), prompt(COMMON_FIRST))
    assert third == first
    assert (turn.receipts[0].instruction_set, turn.receipts[0].instructions_hash) == (2, EMPTY_SHA256)


async def test_what_applies_is_by_skill_person_and_scope_of_the_turn(both: Both) -> None:
    """The most specific comes last; what is for others is not sent, three deep either (B7, T5.1, T5.2, R1.5)."""
    await both.teaching.teach("For gus.", for_person="gus")
    await both.teaching.teach("For team 1.", on_scope="team:1")
    await both.teaching.teach("For tags.", skill=SKILL.name)
    await both.teaching.teach("For all.")
    await both.teaching.teach("For ana.", for_person="ana")
    await both.teaching.teach("For team 2.", on_scope="team:2")
    await both.teaching.teach("For prices.", skill="Price")
    await both.chain(DONE)
    conversation = await both.runtime.conversation("Head")
    work = turns_pb2.Work(input="Go on.", scope="team:1")
    request = turns_pb2.StartTurnRequest(conversation_id=conversation, work=work)

    turn = (await both.runtime["gus"].turns.StartTurn(request)).turn
    await both.runtime.ended(turn.id)

    assert both.prompts() == [prompt("For all.", "For tags.", "For team 1.", "For gus.")]


async def test_what_was_left_out_is_counted_in_record_and_receipt(both: Both) -> None:
    """Past the limits the least specific are left out; the record's first line says how many (B8, B9, T5.3)."""
    await both.teaching.stop()
    await both.teaching.start(most_instructions=2)
    await both.teaching.teach("For all.")
    await both.teaching.teach("For tags.", skill=SKILL.name)
    await both.teaching.teach("For gus.", for_person="gus")
    await both.tagger(DONE)

    turn = await both.runtime.ended(await both.runtime.asked_of("Tagger"))

    assert both.prompts() == [prompt("For tags.", "For gus.")]
    [started] = (await both.started(turn.id)).values()
    assert (started.block.left_out, turn.receipts[0].left_out) == (1, 1)
    assert "1 left out" in started.words


async def test_work_under_way_keeps_its_set_and_a_nested_task_gets_what_stands_then(both: Both) -> None:
    """What is activated while a call waits reaches none of that task's requests; new tasks have it (B13, T6.1)."""
    await both.agent("Hand", DONE)
    await both.agent(
        "Tagger",
        proposes(WRITE),
        calls((f"Hand.{SKILL.name}", {"input": "Your turn."}), when="step == 1"),
        DONE,
        tools=["write_note"],
        agents=["Hand"],
    )
    turn_id, asked = await both.waiting()
    await both.teaching.teach(COMMON_FIRST)
    await both.teaching.teach(IN_BRACKETS, agent="Hand")

    await both.runtime.no(asked)
    turn = await both.runtime.ended(turn_id)

    assert both.prompts() == [prompt()] * 3
    assert both.prompts("Hand") == [prompt(IN_BRACKETS)]
    assert await both.receipts(turn.id) == [("Tagger", 0, 0), (f"Tagger/Hand.{SKILL.name}", 0, 1)]


async def test_the_same_task_gets_the_same_block_whatever_was_taught_since(both: Both) -> None:
    """`BeginTask` of an id that is known returns its receipt's block, after a restart of either (B9, R6.4, T6.1)."""
    await both.teaching.teach(COMMON_FIRST)
    await both.tagger()
    turn_id, asked = await both.waiting()
    await both.teaching.teach(IN_BRACKETS)
    await both.runtime.restart()
    await both.teaching.stop()
    await both.teaching.start()

    await both.runtime.no(asked)
    turn = await both.runtime.ended(turn_id)

    assert both.prompts() == [prompt(COMMON_FIRST)] * 2
    [receipt] = turn.receipts
    assert receipt.instruction_set == 1
    assert len((await both.teaching.task(receipt.task_id)).sent) == 1
    again = tasks_pb2.BeginTaskRequest(
        task_id=receipt.task_id,
        agent="Tagger",
        skill=SKILL.name,
        skill_version="3",
        turn_id=turn_id,
        path="Tagger",
        work_for=person("gus"),
        given_by=person("gus"),
    )
    told = await both.teaching["runtime"].tasks.BeginTask(again, metadata=named())
    assert (told.block.text, told.block.sha256) == (text_of(COMMON_FIRST), receipt.instructions_hash)


async def test_a_task_id_begun_for_other_work_is_refused(both: Both) -> None:
    """The ids of tasks are the turn's and the call's: nobody else's work gets another's block (R6.4)."""
    await both.tagger(DONE)
    turn = await both.runtime.ended(await both.runtime.asked_of("Tagger"))
    other = tasks_pb2.BeginTaskRequest(
        task_id=turn.receipts[0].task_id,
        agent="Hand",
        turn_id=turn.id,
        path="Hand",
        work_for=person("gus"),
        given_by=person("gus"),
    )

    error = await refusal(both.teaching["runtime"].tasks.BeginTask(other, metadata=named()))

    assert error.reason == "REQUEST_ID_REUSED"
