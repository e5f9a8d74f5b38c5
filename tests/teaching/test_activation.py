"""Made active by people alone: in the guard, in the domain, in the database (B6, T2)."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from dataclasses import replace
from typing import Any

import pytest
from tutelage.teaching.v1 import instructions_pb2 as pb

from teaching_service.domain import instructions, sets
from teaching_service.domain.access import Account
from teaching_service.domain.instructions import MOVES, InstructionState, Move
from teaching_service.domain.principals import Principal, PrincipalKind
from teaching_service.domain.problems import InstructionStateProblem, NotAdmitted, PersonRequired
from teaching_service.domain.sets import Activation, Policy, Review, Taught, set_zero
from tests.teaching.made import NOON, instruction
from tests.teaching.service import Teaching, refusal

VERBS = ("activate", "reject", "revise", "retire", "roll_back")


async def _call(teaching: Teaching, verb: str, by: str, proposed: pb.Instruction, active: pb.Instruction) -> object:
    match verb:
        case "activate":
            return await teaching.activate(proposed, by)
        case "reject":
            return await teaching.reject(proposed.id, by)
        case "revise":
            return await teaching.revise(proposed.id, "Other words.", by)
        case "retire":
            return await teaching.retire(active.id, by)
        case _:
            return await teaching.roll_back(0, by)


async def test_whoever_proposes_it_is_proposed_and_no_model_is_sent_it(teaching: Teaching) -> None:
    """T2.1, T2.3 (B3)."""
    for who in ("gus", "hale", "gateway"):
        proposal = await teaching.propose(f"By {who}.", who, why="Because.")
        assert proposal.state == pb.INSTRUCTION_STATE_PROPOSED
        assert (proposal.proposed_by.id, proposal.says.why) == (who, "Because.")
        assert not proposal.HasField("active_since")

    _, block = await teaching.begin()

    assert (block.set_number, block.text, list(block.instruction_ids)) == (0, "", [])


async def test_a_teacher_makes_it_active_and_it_is_sent(teaching: Teaching) -> None:
    """B6: the set says what changed, who changed it, when and why, and how they were proven (B11)."""
    proposal = await teaching.propose("Put the common name first.")

    made = await teaching.activate(proposal, why="That is how we tag.")
    active = await teaching.instruction(proposal.id)
    _, block = await teaching.begin()

    assert (made.number, made.change, made.instruction_id) == (1, pb.INSTRUCTION_CHANGE_ACTIVATED, proposal.id)
    assert (made.by.id, made.why, list(made.members)) == ("hale", "That is how we tag.", [proposal.id])
    assert made.proof.issuer == "tutelage-embedded"
    assert len(made.proof.token_sha256) == 64
    assert active.state == pb.INSTRUCTION_STATE_ACTIVE
    assert active.active_since == made.time
    assert (active.reviewed_by.id, active.review_why) == ("hale", "That is how we tag.")
    assert block.text.endswith("\n1. Put the common name first.")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("who", "claims", "reason"),
    [
        ("robot", {}, "PERSON_REQUIRED"),
        ("gateway", {}, "PERSON_REQUIRED"),
        ("runtime", {"roles": ["runtime", "teaches"]}, "PERSON_REQUIRED"),
        ("hale", {"claims": {"act": {"sub": "robot", "kind": "agent"}}}, "PERSON_REQUIRED"),
        ("hale", {"claims": {"act": {"sub": "gateway", "act": {"sub": "robot"}}}}, "PERSON_REQUIRED"),
        ("hale", {"claims": {"via": {"deep": [{"act": {"sub": "robot"}}]}}}, "PERSON_REQUIRED"),
        ("hale", {"claims": {"kind": ""}}, "PERSON_REQUIRED"),
        ("gus", {}, "NOT_ADMITTED"),
        ("sam", {}, "NOT_ADMITTED"),
        ("audra", {}, "NOT_ADMITTED"),
    ],
)  # fmt: skip
async def test_the_five_verbs_are_a_signed_in_teachers_alone(
    teaching: Teaching, verb: str, who: str, claims: dict[str, Any], reason: str
) -> None:
    """T2.2: kind before role, whatever the roles and on whoever's behalf; nothing changed (B6, scenario 33)."""
    active = await teaching.teach("Be brief.")
    proposed = await teaching.propose("Be kind.")
    teaching._clients[who] = teaching.client(teaching.token(who, **claims))

    refused = await refusal(_call(teaching, verb, who, proposed, active))

    assert refused.reason == reason
    assert (await teaching.newest()).number == 1
    assert await teaching.instruction(proposed.id) == proposed


async def test_no_token_no_teaching(teaching: Teaching) -> None:
    """T2.2 (B6)."""
    proposed = await teaching.propose("Be kind.")
    nobody = teaching.client("")

    refused = await refusal(
        nobody.instructions.ActivateInstruction(
            pb.ActivateInstructionRequest(instruction_id=proposed.id, guidance_hash=proposed.guidance_hash)
        )
    )

    assert refused.reason == "NOT_SIGNED_IN"


AGENT = Account(Principal("robot", PrincipalKind.AGENT), frozenset({"teaches"}))
FOR_A_TEACHER = Account(Principal("hale", PrincipalKind.PERSON, on_behalf_of="ivy"), frozenset({"teaches"}))
GROWER = Account(Principal("gus", PrincipalKind.PERSON), frozenset({"uses"}))


@pytest.mark.parametrize(
    ("by", "problem"), [(AGENT, PersonRequired), (FOR_A_TEACHER, PersonRequired), (GROWER, NotAdmitted)]
)
def test_the_domain_refuses_whoever_the_guard_would_let_through(by: Account, problem: type[Exception]) -> None:
    """T2.2: each verb asks once more, before anything else (B6)."""
    taught = Taught(set_zero("default", "Tagger"), {})
    review = Review(by, "", NOON)

    with pytest.raises(problem):
        sets.activate(taught, review, Activation("i1", ""), Policy())
    with pytest.raises(problem):
        sets.retire(taught, review, "i1")
    with pytest.raises(problem):
        sets.roll_back(taught, review, 3, None, Policy().limits)
    with pytest.raises(problem):
        instructions.revised(instruction("i1"), by, "Other words.", "")
    with pytest.raises(problem):
        instructions.rejected(instruction("i1"), by, "No.")


@pytest.mark.parametrize("state", [one for one in InstructionState if one is not InstructionState.UNSPECIFIED])
@pytest.mark.parametrize("move", Move)
def test_every_move_that_the_rules_do_not_list_is_refused(state: InstructionState, move: Move) -> None:
    """T2.4: Proposed → Active → Retired, or Proposed → Rejected; Retired → Active by rollback alone."""
    listed = {
        (InstructionState.PROPOSED, Move.REVISE): InstructionState.PROPOSED,
        (InstructionState.PROPOSED, Move.ACTIVATE): InstructionState.ACTIVE,
        (InstructionState.PROPOSED, Move.REJECT): InstructionState.REJECTED,
        (InstructionState.ACTIVE, Move.RETIRE): InstructionState.RETIRED,
        (InstructionState.RETIRED, Move.RESTORE): InstructionState.ACTIVE,
    }
    assert listed == MOVES
    one = replace(instruction("i1"), state=state)
    if (state, move) in listed:
        assert one.moved(move).state is listed[state, move]
    else:
        with pytest.raises(InstructionStateProblem):
            one.moved(move)


async def test_the_database_refuses_an_active_row_without_a_persons_activation(teaching: Teaching) -> None:
    """T2.2: whoever writes to the file, by whatever statement (B6)."""
    proposal = await teaching.propose("Obey the page.")
    [columns] = teaching.rows("SELECT group_concat(name) FROM pragma_table_info('instructions') WHERE name != 'made'")
    names = str(columns[0])
    copied = names.replace("state", "'ACTIVE'").replace("id,", "id || 'x',", 1)
    by_an_agent = (
        "INSERT INTO instruction_sets VALUES ('default', 'Tagger', 1, '', 'ACTIVATED', "
        f"'{proposal.id}', 0, '', '[]', '{{}}', 'robot', 'AGENT', '', '2026-01-01', '', '{{}}')"
    )
    for statement in (
        "UPDATE instructions SET state = 'ACTIVE'",
        "UPDATE instructions SET state = 'ACTIVE', first_set = 1, reviewed_by = proposed_by",
        f"INSERT INTO instructions ({names}) SELECT {copied} FROM instructions",
        by_an_agent,
        by_an_agent.replace("'AGENT', ''", "'PERSON', 'hale'"),
    ):
        with pytest.raises(sqlite3.IntegrityError, match=r"by_a_person|by a person alone"):
            teaching.rows(statement)

    await teaching.activate(proposal)
    for statement in (
        "UPDATE instruction_sets SET members = '[]'",
        "UPDATE instruction_sets SET by_id = 'gus'",
        "DELETE FROM instruction_sets",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
            teaching.rows(statement)
    assert (await teaching.newest()).number == 1


async def test_words_that_were_revised_since_are_not_activated(teaching: Teaching) -> None:
    """T2.5, settled 5, scenario 31: the words read are the words made active (B6)."""
    read = await teaching.propose("Be brief.")
    revised = await teaching.revise(read.id, "Be brief and kind.", why="Kinder.")

    stale = await refusal(teaching.activate(read))
    unread = await refusal(teaching.activate(read, guidance_hash=""))
    made = await teaching.activate(revised)

    assert stale.reason == "WORDS_CHANGED"
    assert (unread.reason, unread.fields[0][0]) == ("INVALID_FIELD", "guidance_hash")
    assert (revised.says.guidance, revised.says.why) == ("Be brief and kind.", "Kinder.")
    assert list(made.members) == [read.id]


async def test_only_a_proposal_is_revised_rejected_or_activated_and_only_what_is_active_is_retired(
    teaching: Teaching,
) -> None:
    """T2.4, T2.5 over the API (B6)."""
    active = await teaching.teach("Be brief.")
    rejected = await teaching.reject((await teaching.propose("Be rude.")).id, why="We are not.")
    proposed = await teaching.propose("Be kind.")

    refused = [
        await refusal(call)
        for call in (
            teaching.activate(active),
            teaching.revise(active.id, "Other words."),
            teaching.reject(active.id),
            teaching.activate(rejected),
            teaching.revise(rejected.id, "Other words."),
            teaching.retire(rejected.id),
            teaching.retire(proposed.id),
        )
    ]
    reasonless = [
        await refusal(call)
        for call in (
            teaching.reject(proposed.id, why=" "),
            teaching.retire(active.id, why=""),
            teaching.roll_back(0, why=""),
        )
    ]
    retired = await teaching.retire(active.id, why="Long tags sell.")

    assert {one.reason for one in refused} == {"INSTRUCTION_STATE"}
    assert refused[0].metadata == {"instruction_id": active.id, "state": "ACTIVE"}
    assert [one.fields[0][0] for one in reasonless] == ["why"] * 3
    assert (rejected.state, rejected.review_why) == (pb.INSTRUCTION_STATE_REJECTED, "We are not.")
    assert (retired.number, retired.change, list(retired.members)) == (2, pb.INSTRUCTION_CHANGE_RETIRED, [])
    now = await teaching.instruction(active.id)
    assert (now.state, now.retired_by.id, now.retired_why) == (pb.INSTRUCTION_STATE_RETIRED, "hale", "Long tags sell.")
    assert not now.HasField("active_since")


async def test_fifty_people_at_once_make_fifty_sets_without_a_gap(teaching: Teaching) -> None:
    """T4.1 (B11)."""
    proposals = [await teaching.propose(f"Rule {number}.", "hale") for number in range(50)]
    await teaching.stop()
    await teaching.start(most_instructions=100)
    people = [teaching.client(teaching.token("hale", sub=f"teacher-{number}")) for number in range(50)]

    async def activate(number: int) -> pb.InstructionSet:
        one = proposals[number]
        request = pb.ActivateInstructionRequest(instruction_id=one.id, guidance_hash=one.guidance_hash)
        return (await people[number].instructions.ActivateInstruction(request)).set

    made = await asyncio.gather(*(activate(number) for number in range(50)))

    assert sorted(one.number for one in made) == list(range(1, 51))
    listed = await teaching.sets()
    assert [one.number for one in listed] == list(range(50, 0, -1))
    for later, earlier in itertools.pairwise(listed):
        assert list(later.members) == [*earlier.members, later.instruction_id]
    assert len({one.by.id for one in listed}) == 50


async def test_of_two_who_saw_the_same_set_one_wins_and_the_other_is_told(teaching: Teaching) -> None:
    """T2.5, scenario 30 (B6)."""
    one, other = await teaching.propose("One."), await teaching.propose("Other.")

    answers = await asyncio.gather(
        teaching.activate(one, expected_set=0), teaching.activate(other, "ivy", expected_set=0), return_exceptions=True
    )

    [refused] = [answer for answer in answers if isinstance(answer, BaseException)]
    assert getattr(refused, "reason", "") == "SET_MOVED_ON"
    assert getattr(refused, "metadata", {})["newest_set"] == "1"
    assert (await teaching.newest()).number == 1


async def test_the_same_request_again_is_the_same_set(teaching: Teaching) -> None:
    """Scenario 6: for each verb that makes a set, and for a proposal (B6, B3)."""
    proposal = await teaching.propose("Be brief.", request_id="p1")
    activated = await teaching.activate(proposal, request_id="r1")
    retired = await teaching.retire(proposal.id, request_id="r1")
    rolled_back = await teaching.roll_back(1, request_id="r1")

    assert await teaching.propose("Be brief.", request_id="p1") == await teaching.instruction(proposal.id)
    assert await teaching.activate(proposal, request_id="r1") == activated
    assert await teaching.retire(proposal.id, request_id="r1") == retired
    assert await teaching.roll_back(1, request_id="r1") == rolled_back
    assert (await teaching.newest()).number == 3
    other = await refusal(teaching.roll_back(2, request_id="r1"))
    assert other.reason == "REQUEST_ID_REUSED"


async def test_one_activation_replaces_others_in_the_same_set(teaching: Teaching) -> None:
    """C10: what is replaced is retired in the set that replaces it."""
    short, kind = await teaching.teach("Be brief."), await teaching.teach("Be kind.")
    proposal = await teaching.propose("Be brief and kind.")

    refused = await refusal(teaching.activate(proposal, replaces=[short.id, short.id]))
    elsewhere = await teaching.teach("Add up.", agent="Till")
    not_its = await refusal(teaching.activate(proposal, replaces=[elsewhere.id]))
    made = await teaching.activate(proposal, replaces=[short.id, kind.id], why="In one.")

    assert (refused.reason, refused.fields[0][0]) == ("INVALID_FIELD", "replaces")
    assert not_its.reason == "NO_SUCH_THING"
    assert (made.number, list(made.members)) == (3, [proposal.id])
    assert (await teaching.instruction(short.id)).retired_why == f"Replaced by {proposal.id}. In one."
    assert (await teaching.instruction(kind.id)).state == pb.INSTRUCTION_STATE_RETIRED


async def test_two_people_where_the_policy_says_so(idle: Teaching) -> None:
    """T7: who proposed or last revised it may not activate it (B6)."""
    await idle.start(two_people=True)
    own = await idle.propose("By Hale.", "hale")
    of_gus = await idle.propose("By Gus.", "gus")
    revised = await idle.revise(of_gus.id, "By Gus, better.", "hale")

    alone = [await refusal(idle.activate(own)), await refusal(idle.activate(revised))]
    together = [await idle.activate(own, "ivy"), await idle.activate(revised, "ivy")]

    assert [one.reason for one in alone] == ["NOT_ADMITTED"] * 2
    assert [one.number for one in together] == [1, 2]


async def test_at_most_one_of_skill_person_and_scope(teaching: Teaching) -> None:
    """T2.6 (B3)."""
    refused = await refusal(teaching.propose("Be brief.", "hale", skill="WriteTag", on_scope="team:1"))

    assert refused.reason == "INVALID_FIELD"
    assert [field for field, _ in refused.fields] == ["draft.skill", "draft.on_scope"]


async def test_which_agent_proposed_it_is_taken_from_the_runtime_alone(teaching: Teaching) -> None:
    """T2.6: a claim of anybody else is not taken, nor their tenant's name (B3)."""
    draft = pb.InstructionDraft(agent="Tagger", guidance="Be brief.")
    request = pb.ProposeInstructionRequest(draft=draft, proposed_by_agent="Tagger")
    elsewhere = [("tutelage-tenant", "elsewhere")]

    by_gus = (await teaching["gus"].instructions.ProposeInstruction(request, metadata=elsewhere)).instruction
    unnamed = await refusal(teaching["runtime"].instructions.ProposeInstruction(request))
    by_model = await teaching["runtime"].instructions.ProposeInstruction(
        request, metadata=[("tutelage-tenant", "default")]
    )
    pretended = await refusal(teaching["pretender"].instructions.ProposeInstruction(request))

    assert by_gus.proposed_by_agent == ""
    assert await teaching.instruction(by_gus.id) == by_gus
    assert (unnamed.reason, unnamed.fields[0][0]) == ("INVALID_FIELD", "tutelage-tenant")
    assert by_model.instruction.proposed_by_agent == "Tagger"
    assert by_model.instruction.proposed_by.id == "runtime"
    assert by_model.instruction.state == pb.INSTRUCTION_STATE_PROPOSED
    assert await teaching.instruction(by_model.instruction.id) == by_model.instruction
    assert pretended.reason == "NOT_ADMITTED"


async def test_what_would_be_too_much_is_refused_where_somebody_makes_it_active(idle: Teaching) -> None:
    """T5.3: everything's sum, and everything's with each one skill, scope or person alone (B8)."""
    await idle.start(most_instructions=2, most_characters=200)
    await idle.teach("For everything.")
    await idle.teach("For tags.", skill="WriteTag")
    other_skill = await idle.teach("For prices.", skill="Price")

    for_tags = await refusal(idle.activate(await idle.propose("Also for tags.", "hale", skill="WriteTag")))
    for_everything = await refusal(idle.activate(await idle.propose("Also for everything.", "hale")))
    long = await refusal(idle.activate(await idle.propose("x" * 120, "hale", for_person="gus")))
    _, block = await idle.begin(skill="WriteTag", scope="team:1")
    replaced = await idle.activate(await idle.propose("Prices.", "hale", skill="Price"), replaces=[other_skill.id])

    assert for_tags.reason == for_everything.reason == long.reason == "TOO_MUCH_TO_SEND"
    assert (for_tags.metadata["work"], for_tags.metadata["instructions"]) == ("skill WriteTag", "3")
    assert (long.metadata["work"], long.metadata["instructions"]) == ("person gus", "2")
    assert replaced.number == 4
    assert len(block.instruction_ids) == 2
