"""Tools that ask first: what is asked, what an answer does, what the model is told."""

from __future__ import annotations

import pytest
from tutelage.runtime.v1 import approvals_pb2, turns_pb2
from tutelage.runtime.v1.effects_pb2 import EFFECTS_CHANGES, EFFECTS_UNSPECIFIED

from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, Service, calls, whats

pytestmark = pytest.mark.usefixtures("host")

WRITE = ("write_note", {"name": "spring", "text": "tulips"})


async def test_a_tool_that_reads_runs_unasked_under_changes(service: Service, book: Book) -> None:
    """`changes` names tools that change things; one that reads is not asked about (A1, A6, R2.6)."""
    await service.agent("gardener", calls(("read_note", {"name": "spring"})), {"say": "Read."}, tools=["read_note"])

    turn = await service.ended(await service.asked_of("gardener", approve=CHANGES_ASKED))

    assert turn.output == "Read."
    assert len(book.runs("read_note")) == 1
    assert "approval_asked" not in whats(await service.records(turn.id))


async def test_an_undeclared_tool_is_asked_about_as_if_it_changed_things(service: Service, book: Book) -> None:
    """Undeclared counts as `CHANGES` in every rule (A1, R1.1)."""
    await service.agent("gardener", calls(("poke", {"name": "spring"})), {"say": "Poked."}, tools=["poke"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)

    asked = await service.question(turn_id)

    assert (asked.tool, asked.effects) == ("poke", EFFECTS_UNSPECIFIED)
    assert asked.asked_by_rule == "changes (conversation)"
    assert not book.runs("poke")
    await service.yes(asked)
    assert (await service.ended(turn_id)).output == "Poked."
    assert len(book.runs("poke")) == 1


async def test_where_nothing_is_set_what_changes_things_is_asked(service: Service) -> None:
    """The settings file's default is `changes` (settled 1)."""
    await service.agent("gardener", calls(WRITE), {"say": "Done."}, tools=["write_note"])

    asked = await service.question(await service.asked_of("gardener"))

    assert asked.effects == EFFECTS_CHANGES
    assert asked.asked_by_rule == "changes (service)"


REASON = 'Not "now".\nAsk ‘Øyvind’ at 8 🌷\u200d — \\n is not a line feed.\t'


async def test_a_refusal_is_told_to_the_model_to_the_letter_and_the_model_goes_on(service: Service, book: Book) -> None:
    """R4's words with the reason as it was given, through a restart in between (A7, scenario 15)."""
    await service.agent("gardener", calls(WRITE), {"say": "I leave it."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    asked = await service.question(turn_id)
    await service.restart()

    await service.no(asked, reason=REASON)
    turn = await service.ended(turn_id)

    assert turn.output == "I leave it."
    assert service.paid("gardener")[-1]["results"] == [f"The person did not allow this call. Reason: {REASON}"]
    assert not book.runs()


async def test_a_refusal_without_a_reason_is_told_without_one(service: Service) -> None:
    """R4: nothing follows where no reason was given (A7)."""
    await service.agent("gardener", calls(WRITE), {"say": "I leave it."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)

    await service.no(await service.question(turn_id))
    await service.ended(turn_id)

    assert service.paid("gardener")[-1]["results"] == ["The person did not allow this call."]


async def test_a_turn_that_waits_holds_its_question_where_everybody_looks(service: Service, book: Book) -> None:
    """The wait is saved, and shown by `GetTurn`, `ListApprovals` and `WatchApprovals` alike (A8, R3.1)."""
    await service.agent("gardener", calls(WRITE, say="I write it."), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", "Tidy up.", CHANGES_ASKED)
    asked = await service.question(turn_id)

    turn = await service.get(turn_id)
    listed = await service["gus"].approvals.ListApprovals(approvals_pb2.ListApprovalsRequest())
    watch = service["hale"].watch_approvals()
    waiting = (await anext(watch)).waiting
    await watch.aclose()

    assert turn.state == turns_pb2.TURN_STATE_WAITING
    assert turn.waiting_count == 1
    assert list(turn.waiting) == list(listed.approvals) == list(waiting.approvals) == [asked]
    assert waiting.turn_id == asked.turn_id == turn_id
    assert (asked.agent, asked.path, asked.address) == ("gardener", "gardener/write_note", "gardener/write_note#1")
    assert asked.input_json == '{"name":"spring","text":"tulips"}'
    assert asked.said == "I write it."
    assert asked.tool_description == "Replace a note's text."
    assert list(asked.put_to) == ["gus", "role:supervises"]
    assert asked.state == approvals_pb2.APPROVAL_STATE_PENDING
    assert not book.runs()
