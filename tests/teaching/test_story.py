"""The nursery's second half, as far as it is the teaching service's: a correction, and what the tagger is told then."""

from __future__ import annotations

import hashlib

from tutelage.teaching.v1 import instructions_pb2

from tests.postgres import both_databases
from tests.teaching.service import EMPTY_SHA256, Teaching, refusal

pytestmark = both_databases

GUIDANCE = "Put the common name first, the Latin name after it in brackets."


async def test_a_correction_becomes_an_instruction_only_when_a_person_activates_it(teaching: Teaching) -> None:
    """B1, B3, B6, B9 to B13: the sentences of the story, with the runtime's calls in the runtime's place."""
    # The mistake. Gus corrects it, and proposes what the tagger should be told. It is proposed.
    first, sent_first = await teaching.begin()
    correction = await teaching.correct(
        first,
        wrong="The tag gives only the Latin name.",
        right="Lavender (Lavandula angustifolia).",
        because="Customers ask for lavender.",
    )
    proposed = await teaching.propose(
        GUIDANCE, why="Customers ask by the common name.", from_corrections=[correction.id]
    )
    assert proposed.state == instructions_pb2.INSTRUCTION_STATE_PROPOSED

    # Nothing has changed: the model is sent nothing new. A grower proposes; a grower does not activate.
    _, sent_second = await teaching.begin()
    assert (sent_first.text, sent_second.text) == ("", "")
    assert (await refusal(teaching.activate(proposed, "gus"))).reason == "NOT_ADMITTED"

    # The head of the nursery reads it and makes it active: the tagger's instruction set 1.
    made = await teaching.activate(proposed, "hale", why="That is how we tag.")
    assert (made.number, made.by.id) == (1, "hale")

    # Now the model is sent it. The work records the skill's version, the set, and the hash of exactly what it was sent.
    third, sent_third = await teaching.begin()
    assert sent_third.text.endswith(f"1. {GUIDANCE}")
    receipt = await teaching.task(third)
    assert receipt.skill_version == "2"
    assert receipt.sent[0].set_number == 1
    assert list(receipt.sent[0].instruction_ids) == [proposed.id]
    assert receipt.sent[0].sha256 == hashlib.sha256(sent_third.text.encode()).hexdigest()

    # So the first tag can be explained.
    assert (await teaching.explain(first)).words == (
        "It ran before anybody had taught Tagger anything. Since then 1 has been made active that it had not been sent."
    )

    # Back to how it was: a rollback is the tagger's next set, and says which it restored.
    back = await teaching.roll_back(0, "hale", why="The tags are being redesigned.")
    assert (back.number, back.restored_from) == (2, 0)
    _, sent_fourth = await teaching.begin()
    assert (sent_fourth.set_number, sent_fourth.text, sent_fourth.sha256) == (2, "", EMPTY_SHA256)
