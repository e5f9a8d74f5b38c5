"""Turns without a conversation are taught like all others, and are not waited for longer than their caller waits."""

from __future__ import annotations

import pytest
from tutelage.runtime.v1 import turns_pb2

from tests.services.book import Book
from tests.services.service import NOTHING_ASKED
from tests.services.test_calls import call_of, streaming, until
from tests.taught.both import COMMON_FIRST, DONE, SKILL, Both, prompt

pytestmark = pytest.mark.usefixtures("host")


async def test_a_plain_call_is_told_what_its_agent_was_taught(both: Both) -> None:
    """Its receipt is in the turn that is returned (A10, B9)."""
    await both.teaching.teach(COMMON_FIRST, skill=SKILL.name)
    await both.tagger(DONE)

    turn = (await both.runtime["hale"].turns.CallAgent(call_of("Tagger", approve=NOTHING_ASKED))).turn

    assert both.prompts() == [prompt(COMMON_FIRST)]
    assert [one.instruction_set for one in turn.receipts] == [1]


async def test_a_stream_takes_the_instructions_up_and_asks_again(both: Both, book: Book) -> None:
    """The yes is refused; the new question comes on the same stream, under the same writer (A9, B13, R3.6)."""
    await both.tagger()
    async with streaming(both.runtime, "Tagger") as events:
        [asked] = (await until(events, "waiting")).waiting.approvals
        await both.teaching.teach(COMMON_FIRST)
        await both.changed(asked)
        [again] = (await until(events, "waiting")).waiting.approvals
        await both.runtime.yes(again)
        ended = (await until(events, "ended")).ended

    assert (ended.state, ended.writer) == (turns_pb2.TURN_STATE_DONE, 1)
    assert [(one.take_up, one.instruction_set) for one in ended.receipts] == [(0, 0), (1, 1)]
    assert both.prompts() == [prompt(), prompt(COMMON_FIRST), prompt(COMMON_FIRST)]
    assert [run["address"] for run in book.runs()] == ["Tagger/write_note#2"]


async def test_a_plain_call_without_teaching_ends_and_asks_no_model(both: Both) -> None:
    """It is never taken over, so it does not wait: ABANDONED with its cause; nothing ran untaught (R3.2, point 4)."""
    await both.tagger(DONE)
    await both.teaching.stop()

    turn = (await both.runtime["hale"].turns.CallAgent(call_of("Tagger", approve=NOTHING_ASKED))).turn

    assert turn.state == turns_pb2.TURN_STATE_ABANDONED
    assert "The teaching service does not answer" in turn.cause
    assert both.prompts() == []
