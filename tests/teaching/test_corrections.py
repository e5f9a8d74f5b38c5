"""What was wrong with a piece of work, and why (B1, B2, T1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tutelage.teaching.v1 import corrections_pb2 as pb

from tests.teaching.service import Client, Teaching, refusal


async def _withdraw(client: Client, correction_id: str, why: str = "I misread it.") -> pb.Correction:
    request = pb.WithdrawCorrectionRequest(correction_id=correction_id, why=why)
    return (await client.corrections.WithdrawCorrection(request)).correction


async def _get(client: Client, correction_id: str) -> pb.Correction:
    return (await client.corrections.GetCorrection(pb.GetCorrectionRequest(correction_id=correction_id))).correction


async def test_a_correction_says_what_was_wrong_what_it_should_have_been_and_why(teaching: Teaching) -> None:
    """B1, T1.1: all that a correction can say, kept as it was said."""
    told = await teaching.teach("Put the common name first.")
    task_id, _ = await teaching.begin()
    said: dict[str, Any] = {
        "wrong": "The tag gives only the Latin name.",
        "right": "Lavender (Lavandula angustifolia).",
        "because": "Customers ask for lavender.",
        "corrected_output": '{"tag": "Lavender"}',
        "severity": pb.SEVERITY_SERIOUS,
        "step": 4,
        "proposal_id": "a1",
        "despite_instruction_id": told.id,
    }

    correction = await teaching.correct(task_id, **said)

    assert correction.says == pb.CorrectionDraft(**said)
    assert (correction.task_id, correction.agent, correction.skill) == (task_id, "Tagger", "WriteTag")
    assert correction.by.id == "gus"
    assert await _get(teaching["gus"], correction.id) == correction
    assert (await teaching.correct(task_id)).says.severity == pb.SEVERITY_MISTAKE


async def test_a_correction_changes_nothing_that_an_agent_does(teaching: Teaching) -> None:
    """T1.3 (B1)."""
    _, before = await teaching.begin()
    task_id, _ = await teaching.begin()
    await teaching.correct(task_id)

    _, after = await teaching.begin()

    assert after == before


async def test_wrong_right_and_because_are_all_needed_and_bounded(teaching: Teaching) -> None:
    """T1.1: every wrong field is named at once; nothing is written (B1)."""
    task_id, _ = await teaching.begin()

    empty = await refusal(teaching.correct(task_id, wrong="", right=" ", because="", step=-1, severity=9))
    long = await refusal(teaching.correct(task_id, wrong="x" * 4_001, right="🌷" * 4_000, because="é" * 4_001))
    fits = await teaching.correct(task_id, wrong="x" * 4_000, right="🌷" * 4_000)

    assert empty.reason == long.reason == "INVALID_FIELD"
    assert {field for field, _ in empty.fields} == {
        f"correction.{name}" for name in ("severity", "wrong", "right", "because", "step")
    }
    assert [field for field, _ in long.fields] == ["correction.wrong", "correction.because"]
    assert [one.id for one in await teaching.corrections(task_id=task_id)] == [fits.id]


async def test_despite_names_an_instruction_that_the_task_was_sent(teaching: Teaching) -> None:
    """T6.3 (B1): one of its first block, or of a take-up."""
    first = await teaching.teach("First.")
    task_id, _ = await teaching.begin()
    later = await teaching.teach("Later.")

    refused = await refusal(teaching.correct(task_id, despite_instruction_id=later.id))
    await teaching.take_up(task_id, 1)
    taken = [await teaching.correct(task_id, despite_instruction_id=one.id) for one in (first, later)]

    assert (refused.reason, refused.fields[0][0]) == ("INVALID_FIELD", "correction.despite_instruction_id")
    assert [one.says.despite_instruction_id for one in taken] == [first.id, later.id]


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        ("gus", ""),
        ("ana", ""),
        ("hale", ""),
        ("sam", ""),
        ("audra", "NOT_ADMITTED"),
        ("stranger", "NO_SUCH_THING"),
        ("robot", "NOT_ADMITTED"),
        ("runtime", "NO_SUCH_THING"),
    ],
)
async def test_who_may_correct_and_who_may_not(teaching: Teaching, who: str, reason: str) -> None:
    """T1.2: for whom it was, who gave it, who supervises or teaches; not an auditor, not a stranger, no agent (B2)."""
    task_id, _ = await teaching.begin(work_for="gus", given_by="ana")
    if who == "ana":
        teaching._clients[who] = teaching.client(teaching.token("stranger", sub="ana"))

    if reason:
        assert (await refusal(teaching.correct(task_id, who))).reason == reason
    else:
        assert (await teaching.correct(task_id, who)).by.id == who


async def test_whoever_a_proposal_was_put_to_may_correct_by_name_or_by_role(teaching: Teaching) -> None:
    """T1.2: the runtime says to whom, behind, and the same again changes nothing (B2)."""
    task_id, _ = await teaching.begin(given_by="ana")
    other_id, _ = await teaching.begin(given_by="ana")
    before = await refusal(teaching.correct(task_id, "stranger"))

    await asyncio.gather(*(teaching.put(task_id, "a1", "stranger", "role:audits") for _ in range(3)))

    assert before.reason == "NO_SUCH_THING"
    assert (await teaching.correct(task_id, "stranger", proposal_id="a1")).by.id == "stranger"
    assert (await teaching.correct(task_id, "audra")).by.id == "audra"
    assert (await refusal(teaching.correct(other_id, "stranger"))).reason == "NO_SUCH_THING"
    assert len(teaching.rows("SELECT * FROM put_to")) == 2


async def test_no_agent_corrects_even_work_that_it_gave(teaching: Teaching) -> None:
    """T1.2: the kind before anything else (B2)."""
    task_id, _ = await teaching.begin(given_by="robot")

    refused = [await refusal(teaching.correct(one, "robot")) for one in (task_id, "no/such")]

    assert [one.reason for one in refused] == ["NOT_ADMITTED"] * 2


async def test_its_writer_alone_takes_it_back_with_a_reason(teaching: Teaching) -> None:
    """T1.1: what it said stays to be read, marked (B1)."""
    task_id, _ = await teaching.begin()
    correction = await teaching.correct(task_id)

    by_other = await refusal(_withdraw(teaching["hale"], correction.id))
    hidden = await refusal(_withdraw(teaching["stranger"], correction.id))
    reasonless = await refusal(_withdraw(teaching["gus"], correction.id, why=" "))
    withdrawn = await _withdraw(teaching["gus"], correction.id)
    again = await refusal(_withdraw(teaching["gus"], correction.id))

    assert (by_other.reason, hidden.reason) == ("NOT_ADMITTED", "NO_SUCH_THING")
    assert (reasonless.reason, reasonless.fields[0][0]) == ("INVALID_FIELD", "why")
    assert again.reason == "CORRECTION_GONE"
    assert withdrawn.says == correction.says
    assert withdrawn.withdrawn_because == "I misread it."
    assert withdrawn.HasField("withdraw_time")
    assert await teaching.corrections(task_id=task_id) == []
    assert await teaching.corrections(task_id=task_id, withdrawn_too=True) == [withdrawn]


async def test_a_proposal_is_drawn_from_corrections_that_stand_and_are_its_agents(teaching: Teaching) -> None:
    """B3, B16: how many, and which, newest first (settled 49)."""
    task_id, _ = await teaching.begin()
    till_id, _ = await teaching.begin("Till")
    first, second = await teaching.correct(task_id), await teaching.correct(task_id, "hale")
    gone, elsewhere = await teaching.correct(task_id), await teaching.correct(till_id)
    await _withdraw(teaching["gus"], gone.id)

    proposal = await teaching.propose("The common name first.", from_corrections=[first.id, second.id])
    refused = {
        name: await refusal(teaching.propose("Other.", who, from_corrections=ids))
        for name, who, ids in (
            ("gone", "gus", [gone.id]),
            ("elsewhere", "gus", [elsewhere.id]),
            ("hidden", "stranger", [first.id]),
            ("twice", "gus", [first.id, first.id]),
            ("none", "gus", ["no-such"]),
        )
    }

    assert proposal.drawn_from == 2
    assert list(proposal.says.from_corrections) == [first.id, second.id]
    assert await teaching.corrections(instruction_id=proposal.id) == [second, first]
    assert await teaching.corrections("stranger", instruction_id=proposal.id) == []
    assert {name: one.reason for name, one in refused.items()} == {
        "gone": "CORRECTION_GONE",
        "elsewhere": "INVALID_FIELD",
        "hidden": "NO_SUCH_THING",
        "twice": "INVALID_FIELD",
        "none": "NO_SUCH_THING",
    }


async def test_the_same_request_again_is_the_same_correction(teaching: Teaching) -> None:
    """B1: also for fifty at once."""
    task_id, _ = await teaching.begin()

    made = await asyncio.gather(*(teaching.correct(task_id, request_id="r1") for _ in range(50)))
    other = await refusal(teaching.correct(task_id, request_id="r1", wrong="Something else."))

    assert len({one.id for one in made}) == 1
    assert other.reason == "REQUEST_ID_REUSED"
    assert len(await teaching.corrections(task_id=task_id)) == 1


async def test_corrections_are_listed_newest_first_over_pages_each_once(teaching: Teaching) -> None:
    """B16, scenario 37: by the number in which they were made, whatever their times."""
    task_id, _ = await teaching.begin()
    price_id, _ = await teaching.begin(skill="Price")
    hidden_id, _ = await teaching.begin(work_for="ana")
    made = [await teaching.correct(price_id if number % 3 == 0 else task_id) for number in range(10)]
    await teaching.correct(hidden_id, "hale")
    teaching.rows("UPDATE corrections SET time = (SELECT min(time) FROM corrections)")

    seen, token = [], ""
    while True:
        request = pb.ListCorrectionsRequest(agent="Tagger", page_size=3, page_token=token)
        page = await teaching["gus"].corrections.ListCorrections(request)
        seen += [one.id for one in page.corrections]
        token = page.next_page_token
        if not token:
            break

    assert seen == [one.id for one in reversed(made)]
    assert len(await teaching.corrections("hale", agent="Tagger")) == 11
    assert [one.skill for one in await teaching.corrections(skill="Price")] == ["Price"] * 4
    wrong = pb.ListCorrectionsRequest(page_token="AAAA")
    assert (await refusal(teaching["gus"].corrections.ListCorrections(wrong))).fields[0][0] == "page_token"
