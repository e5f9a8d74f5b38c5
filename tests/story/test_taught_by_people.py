"""An agent that is told, by people alone: the story of seed 003, sentence by sentence, over the API."""

from __future__ import annotations

import pytest
from tutelage.client import connect_teaching
from tutelage.runtime.v1.approvals_pb2 import (
    APPROVAL_STATE_APPROVED,
    APPROVAL_STATE_SUPERSEDED,
    DECISION_APPROVE,
    DECISION_DENY,
    ApprovalFilter,
    ApprovalState,
    ListApprovalsRequest,
)
from tutelage.runtime.v1.turns_pb2 import ListRecordsRequest
from tutelage.teaching.v1.corrections_pb2 import (
    SEVERITY_SERIOUS,
    GetCorrectionRequest,
    WithdrawCorrectionRequest,
)
from tutelage.teaching.v1.instructions_pb2 import (
    INSTRUCTION_CHANGE_ACTIVATED,
    INSTRUCTION_CHANGE_RETIRED,
    INSTRUCTION_CHANGE_ROLLED_BACK,
    INSTRUCTION_STATE_ACTIVE,
    INSTRUCTION_STATE_PROPOSED,
    INSTRUCTION_STATE_RETIRED,
    ListInstructionSetsRequest,
)
from tutelage.teaching.v1.tasks_pb2 import ExplainTaskRequest
from tutelage.token import make_token, signing_key

from tests.story.nursery import Nursery, activation, refused, set_hash, sha256, text_of

LATIN = "Lavandula angustifolia"
COMMON = "Lavender (Lavandula angustifolia)"
COMMON_FIRST = "Put the common name first, the Latin name after it in brackets."


async def test_a_correction_becomes_an_instruction_only_when_a_person_activates_it(nursery: Nursery) -> None:
    """B1, B3, B6, B9, B10, B11, B12: the seed's own test, line by line."""
    await nursery.tagger("Tagger")

    # The mistake.
    wrong = await nursery.tag("Tagger")
    assert wrong.output == LATIN
    # Gus corrects it, and proposes what the tagger should be told. It is PROPOSED.
    correction = await nursery.correct(wrong)
    proposed = await nursery.propose(
        "Tagger", COMMON_FIRST, why="Customers ask by the common name.", from_corrections=[correction.id]
    )
    assert proposed.state == INSTRUCTION_STATE_PROPOSED
    assert proposed.drawn_from == 1
    # Nothing has changed: the model is sent nothing new, and writes the same tag.
    assert (await nursery.tag("Tagger")).output == LATIN
    assert nursery.told() == ""
    # A grower proposes; a grower does not activate.
    assert (await refused(nursery.activate(proposed, by="gus"))).reason == "NOT_ADMITTED"
    assert (await nursery.instruction(proposed.id)).state == INSTRUCTION_STATE_PROPOSED

    # The head of the nursery reads it and makes it active: the tagger's instruction set 1.
    made = await nursery.activate(proposed, why="That is how we tag.")
    assert (made.number, made.by.id, made.change) == (1, "hale", INSTRUCTION_CHANGE_ACTIVATED)

    # Now the model IS sent it, and the tag is right.
    right = await nursery.tag("Tagger")
    assert right.output == COMMON
    assert nursery.told() == text_of(COMMON_FIRST)
    # The work records what it ran with: the skill's version, the set, and the hash of exactly what it was sent.
    [receipt] = right.receipts
    assert receipt.skill_version == "2"
    assert receipt.instruction_set == 1
    assert receipt.instructions_sent == [proposed.id]
    assert receipt.instructions_hash == sha256(nursery.told())
    # …so the first tag can be explained.
    explained = await nursery["gus"].teaching.tasks.ExplainTask(ExplainTaskRequest(task_id=wrong.receipts[0].task_id))
    assert explained.words == (
        "It ran before anybody had taught Tagger anything. Since then 1 has been made active that it had not been sent."
    )
    assert (explained.set_number, list(explained.sent), list(explained.not_yet)) == (0, [], [proposed.id])

    # Back to how it was: a rollback is the tagger's next set, and says which it restored.
    back = await nursery.roll_back("Tagger", 0, "The tags are being redesigned.")
    assert (back.number, back.restored_from, back.change) == (2, 0, INSTRUCTION_CHANGE_ROLLED_BACK)
    assert (await nursery.instruction(proposed.id)).state == INSTRUCTION_STATE_RETIRED
    assert (await nursery.tag("Tagger")).output == LATIN
    assert nursery.told() == ""


# What is a correction?


async def test_a_correction_needs_all_three(nursery: Nursery) -> None:
    """B1: the reason is what lets the next piece of work come out right."""
    await nursery.tagger("three")
    turn = await nursery.tag("three")

    for missing in ("wrong", "right", "because"):
        error = await refused(nursery.correct(turn, **{missing: ""}))

        assert error.reason == "INVALID_FIELD"
        assert [field for field, _ in error.fields] == [f"correction.{missing}"]


async def test_a_correction_names_its_writer_and_is_never_changed(nursery: Nursery) -> None:
    """B1: its writer can take it back, with a reason; what it said stays."""
    await nursery.tagger("kept")
    turn = await nursery.tag("kept")
    written = await nursery.correct(turn, severity=SEVERITY_SERIOUS, corrected_output=COMMON, step=3)
    withdrawing = WithdrawCorrectionRequest(correction_id=written.id, why="I misread it.")

    by_another = await refused(nursery["hale"].teaching.corrections.WithdrawCorrection(withdrawing))
    await nursery["gus"].teaching.corrections.WithdrawCorrection(withdrawing)

    asked = GetCorrectionRequest(correction_id=written.id)
    kept = (await nursery["gus"].teaching.corrections.GetCorrection(asked)).correction
    assert by_another.reason == "NOT_ADMITTED"
    assert kept.says == written.says
    assert (kept.says.severity, kept.says.corrected_output, kept.says.step) == (SEVERITY_SERIOUS, COMMON, 3)
    assert (kept.by.id, kept.agent, kept.skill) == ("gus", "kept", "WriteTag")
    assert kept.withdrawn_because == "I misread it."


async def test_somebody_who_can_merely_read_the_work_may_not_correct_it(nursery: Nursery) -> None:
    """B2: an auditor reads it; whoever supervises or teaches may correct it."""
    await nursery.tagger("audited")
    turn = await nursery.tag("audited")
    asked = ExplainTaskRequest(task_id=turn.receipts[0].task_id)

    assert (await nursery["audra"].teaching.tasks.ExplainTask(asked)).words
    assert (await refused(nursery.correct(turn, by="audra"))).reason == "NOT_ADMITTED"
    assert (await nursery.correct(turn, by="hale")).by.id == "hale"


# What is an instruction, and when is the agent sent it?


@pytest.mark.parametrize("who", ["an agent with every role", "an agent for a teacher", "a program that teaches"])
async def test_only_a_signed_in_person_makes_an_instruction_active(nursery: Nursery, who: str) -> None:
    """B6: the kind of caller counts before any role."""
    agent = f"guarded-{who.split()[-1]}"
    await nursery.tagger(agent)
    proposal = await nursery.propose(agent, COMMON_FIRST)
    key = signing_key(nursery.stage.folder)
    roles = ["uses", "supervises", "teaches", "privacy", "builds", "runtime"]
    token = {
        "an agent with every role": make_token(key, sub="tagger", kind="agent", roles=roles),
        "an agent for a teacher": make_token(
            key, sub="hale", kind="person", roles=roles, claims={"act": {"sub": "tagger"}}
        ),
        "a program that teaches": make_token(key, sub="desk", kind="service", roles=roles),
    }[who]

    async with connect_teaching(nursery.stage.teaching.address, token) as teaching:
        error = await refused(teaching.instructions.ActivateInstruction(activation(proposal)))

    assert error.reason == "PERSON_REQUIRED"
    assert (await nursery.instruction(proposal.id)).state == INSTRUCTION_STATE_PROPOSED


async def test_the_most_specific_has_the_last_word(nursery: Nursery) -> None:
    """B3, B7: everything, the skill, the scope, the person; within each by activation. Not what is for others."""
    await nursery.tagger("ordered")
    person = await nursery.teach("ordered", "For Gus.", for_person="gus")
    scope = await nursery.teach("ordered", "For the team.", on_scope="team:1")
    skill = await nursery.teach("ordered", "For tags.", skill="WriteTag")
    everything = await nursery.teach("ordered", "For everything.")
    later = await nursery.teach("ordered", "For everything, later.")
    await nursery.teach("ordered", "For signs.", skill="WriteSign")
    await nursery.teach("ordered", "For Hale.", for_person="hale")

    turn = await nursery.tag("ordered", scope="team:1")
    told = nursery.told()
    sign = await nursery.tag("ordered", skill="WriteSign")

    assert told == text_of("For everything.", "For everything, later.", "For tags.", "For the team.", "For Gus.")
    assert turn.receipts[0].instructions_sent == [one.id for one in (everything, later, skill, scope, person)]
    assert turn.receipts[0].instruction_set == 7
    assert turn.receipts[0].instructions_hash == sha256(told)
    assert nursery.told() == text_of("For everything.", "For everything, later.", "For signs.", "For Gus.")
    assert sign.receipts[0].instructions_hash == sha256(nursery.told())


# What does a piece of work record?


async def test_the_records_first_line_says_in_words_what_it_ran_with(nursery: Nursery) -> None:
    """B9."""
    await nursery.tagger("worded")
    await nursery.teach("worded", COMMON_FIRST)

    turn = await nursery.tag("worded")

    page = await nursery["gus"].runtime.turns.ListRecords(ListRecordsRequest(turn_id=turn.id))
    [started] = [record.task_started for record in page.records if record.HasField("task_started")]
    assert started.words == "Set 1 of worded: 1 sent, 0 left out."
    assert started.task_id == f"{turn.id}/worded"


async def test_a_yes_to_something_proposed_under_one_set_does_not_carry_to_another(nursery: Nursery) -> None:
    """B13: nothing runs; the work takes up the instructions as they stand and proposes again."""
    await nursery.tagger("asking")
    printed = nursery.stage.tags()

    async with nursery.asking("asking", f"Print {LATIN}") as asking:
        first = await asking.asks()
        assert nursery.told() == ""
        taught = await nursery.teach("asking", COMMON_FIRST)
        error = await refused(nursery.decide(first, DECISION_APPROVE))
        second = await asking.asks()
        assert nursery.told() == text_of(COMMON_FIRST)
        assert nursery.stage.tags() == printed
        await nursery.decide(second, DECISION_APPROVE)
        await asking.ends()

    turn = await nursery.turn(asking.turn_id)
    states = ApprovalState.values()[1:]
    asked = ListApprovalsRequest(filter=ApprovalFilter(turn_id=turn.id, states=states))
    approvals = (await nursery["hale"].runtime.approvals.ListApprovals(asked)).approvals
    assert error.reason == "INSTRUCTIONS_CHANGED"
    assert first.input_json == f'{{"words":"{LATIN}"}}'
    assert second.input_json == f'{{"words":"{COMMON}"}}'
    assert second.fingerprint != first.fingerprint
    assert {one.id: one.state for one in approvals} == {
        first.id: APPROVAL_STATE_SUPERSEDED,
        second.id: APPROVAL_STATE_APPROVED,
    }
    assert nursery.stage.tags() == [*printed, COMMON]
    assert [(one.take_up, one.instruction_set, list(one.instructions_sent)) for one in turn.receipts] == [
        (0, 0, []),
        (1, 1, [taught.id]),
    ]


async def test_work_under_way_finishes_under_the_set_that_it_started_with(nursery: Nursery) -> None:
    """B13: what changed while it waited for a person is not taken up, where no yes was refused for it."""
    await nursery.tagger("waiting")
    await nursery.teach("waiting", COMMON_FIRST)

    async with nursery.asking("waiting", f"Print {LATIN}") as asking:
        approval = await asking.asks()
        await nursery.roll_back("waiting", 0)
        await nursery.decide(approval, DECISION_DENY)
        output = await asking.ends()

    assert output == "I printed nothing. You did not allow it."
    assert nursery.told() == text_of(COMMON_FIRST)
    assert [one.instruction_set for one in (await nursery.turn(asking.turn_id)).receipts] == [1]


# What is an instruction set, and how do I go back?


async def test_every_change_makes_the_next_set_and_the_same_instructions_give_the_same_hash(nursery: Nursery) -> None:
    """B11, B12: each with its number, what changed, who, when and why; the hash as it is published."""
    await nursery.tagger("numbered")
    one = await nursery.teach("numbered", COMMON_FIRST)
    two = await nursery.teach("numbered", "Be brief.")
    await nursery.retire(one)
    await nursery.roll_back("numbered", 2, "It was better.")
    await nursery.roll_back("numbered", 0, "From the start.")

    listed = await nursery["gus"].teaching.instructions.ListInstructionSets(
        ListInstructionSetsRequest(agent="numbered")
    )
    sets = list(reversed(listed.sets))

    assert [(each.number, each.change, list(each.members)) for each in sets] == [
        (1, INSTRUCTION_CHANGE_ACTIVATED, [one.id]),
        (2, INSTRUCTION_CHANGE_ACTIVATED, [one.id, two.id]),
        (3, INSTRUCTION_CHANGE_RETIRED, [two.id]),
        (4, INSTRUCTION_CHANGE_ROLLED_BACK, [one.id, two.id]),
        (5, INSTRUCTION_CHANGE_ROLLED_BACK, []),
    ]
    assert [each.hash for each in sets] == [set_hash(each) for each in ([one], [one, two], [two], [one, two], [])]
    assert [each.restored_from for each in sets] == [0, 0, 0, 2, 0]
    assert [each.why for each in sets[2:]] == ["No longer so.", "It was better.", "From the start."]
    assert {each.by.id for each in sets} == {"hale"}
    assert all(each.time.seconds and each.proof.issuer for each in sets)


async def test_a_rollback_is_for_one_skills_own_instructions_alone(nursery: Nursery) -> None:
    """B12."""
    await nursery.tagger("skilled")
    await nursery.teach("skilled", "For tags.", skill="WriteTag")
    sign = await nursery.teach("skilled", "For signs.", skill="WriteSign")
    everything = await nursery.teach("skilled", "For everything.")

    back = await nursery.roll_back("skilled", 0, skill="WriteTag")

    assert (back.number, back.restored_from, back.restored_skill) == (4, 0, "WriteTag")
    assert back.members == [everything.id, sign.id]
    await nursery.tag("skilled")
    assert nursery.told() == text_of("For everything.")


async def test_going_back_needs_a_reason_and_a_teacher(nursery: Nursery) -> None:
    """B6, B12."""
    await nursery.tagger("held")
    taught = await nursery.teach("held", COMMON_FIRST)

    without = await refused(nursery.roll_back("held", 0, why=""))
    by_gus = await refused(nursery.roll_back("held", 0, by="gus"))

    assert (without.reason, [field for field, _ in without.fields]) == ("INVALID_FIELD", ["why"])
    assert by_gus.reason == "NOT_ADMITTED"
    assert (await nursery.instruction(taught.id)).state == INSTRUCTION_STATE_ACTIVE
