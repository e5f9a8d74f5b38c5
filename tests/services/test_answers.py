"""Who answers a question, and what each answer does (R3.4, R3.7)."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from tutelage.common.v1.principal_pb2 import PRINCIPAL_KIND_PERSON
from tutelage.errors import TutelageError
from tutelage.runtime.v1 import approvals_pb2 as pb
from tutelage.runtime.v1 import conversations_pb2
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalRule, ApprovalSetting, ChangesRule
from tutelage.token import key_id, signing_key

from tests.services.book import Book
from tests.services.service import CHANGES_ASKED, Service, calls, refusal

pytestmark = pytest.mark.usefixtures("host")

WRITE = ("write_note", {"name": "spring", "text": "tulips"})
CHANGED = '{"name":"spring", "text":"a rose — 🌹"}'


def rule(**more: Any) -> ApprovalSetting:
    """A rule that names what changes things."""
    return ApprovalSetting(rule=ApprovalRule(changes=ChangesRule(), **more))


async def asks(service: Service, approve: ApprovalSetting = CHANGES_ASKED, by: str = "gus") -> pb.Approval:
    """Have a gardener ask to write, and return the question once the turn rests."""
    await service.agent("gardener", calls(WRITE), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=approve, by=by)
    [asked] = await service.questions(turn_id, by=by)
    await service.at_rest(turn_id, by)
    return asked


def told(service: Service) -> list[str]:
    """What the model was told in the end."""
    results: list[str] = service.paid("gardener")[-1]["results"]
    return results


# What is no answer


@pytest.mark.parametrize("decision", [0, 7])
async def test_a_decision_that_is_none_is_never_a_yes(service: Service, decision: Any) -> None:
    """Unset and unknown: INVALID_ARGUMENT, still waiting (R3.4, scenario 14)."""
    asked = await asks(service)

    error = await refusal(service.decide(asked, decision))

    assert (error.reason, error.code.name) == ("INVALID_FIELD", "INVALID_ARGUMENT")
    assert [path for path, _ in error.fields] == ["decision"]
    assert (await service.approval(asked.id)).state == pb.APPROVAL_STATE_PENDING


async def test_a_yes_needs_the_fingerprint_that_was_seen(service: Service, book: Book) -> None:
    """Without one or with another nothing is decided; an answer in its stead alike (D1, R3.4)."""
    asked = await asks(service)

    without = await refusal(service.yes(asked, fingerprint=""))
    other = await refusal(service.yes(asked, fingerprint="0" * 64))
    instead = await refusal(service.decide(asked, pb.DECISION_ANSWER, answer_json='"x"', fingerprint="0" * 64))

    assert (without.reason, [path for path, _ in without.fields]) == ("INVALID_FIELD", ["fingerprint"])
    assert (other.reason, other.code.name) == ("FINGERPRINT_CHANGED", "ABORTED")
    assert instead.reason == "FINGERPRINT_CHANGED"
    assert (await service.approval(asked.id)).state == pb.APPROVAL_STATE_PENDING
    assert not book.runs()


async def test_a_no_needs_no_fingerprint_but_not_a_wrong_one(service: Service) -> None:
    """An empty one counts as none (settled 36)."""
    asked = await asks(service)

    wrong = await refusal(service.no(asked, fingerprint="0" * 64))
    decided = await service.no(asked, fingerprint="")

    assert wrong.reason == "FINGERPRINT_CHANGED"
    assert decided.state == pb.APPROVAL_STATE_DENIED


async def test_every_wrong_field_of_an_answer_is_named_at_once(service: Service) -> None:
    """R12: an edit that comes with a no, an answer that comes with a no, a reason with NUL, a long request_id."""
    asked = await asks(service)

    of_form = await refusal(service.no(asked, reason="a\0b", request_id="x" * 257))
    of_answer = await refusal(service.no(asked, edited_input_json=CHANGED, answer_json="1"))

    assert {path for path, _ in of_form.fields} == {"reason", "request_id"}
    assert {path for path, _ in of_answer.fields} == {"edited_input_json", "answer_json"}


# Who may answer


async def test_only_a_person_may_answer(service: Service) -> None:
    """Neither an agent nor a program, whatever roles it holds, nor either on a person's behalf (R3.4, point 8)."""
    asked = await asks(service)
    acting = service.client(service.token("hale", claims={"act": {"sub": "robot", "kind": "agent"}}))
    deep = service.client(service.token("hale", claims={"on": [{"act": {"sub": "robot"}}]}))
    callers = [service["robot"], service["gateway"], acting, deep]

    for caller in callers:
        for decision in (pb.DECISION_APPROVE, pb.DECISION_DENY):
            request = pb.DecideApprovalRequest(approval_id=asked.id, decision=decision, fingerprint=asked.fingerprint)
            error = await refusal(caller.approvals.DecideApproval(request))
            assert (error.reason, error.code.name) == ("PERSON_REQUIRED", "PERMISSION_DENIED")

    assert (await service.approval(asked.id)).state == pb.APPROVAL_STATE_PENDING


async def test_somebody_who_may_look_but_was_not_asked_may_not_answer(service: Service) -> None:
    """NOT_PUT_TO_YOU: an auditor sees everything and decides nothing; whom the rule leaves out neither (R3.4)."""
    asked = await asks(service, rule(put_to=["hale"]))

    auditor = await refusal(service.yes(asked, by="audra"))
    giver = await refusal(service.yes(asked, by="gus"))
    supervisor = await refusal(service.no(asked, by="ivy"))

    assert {auditor.reason, giver.reason, supervisor.reason} == {"NOT_PUT_TO_YOU"}
    assert (await service.yes(asked, by="hale")).state == pb.APPROVAL_STATE_APPROVED


async def test_to_somebody_who_may_not_see_it_there_is_no_such_question(service: Service) -> None:
    """Without a right to see a thing: NO_SUCH_THING (R10)."""
    asked = await asks(service)

    assert (await refusal(service.yes(asked, by="stranger"))).reason == "NO_SUCH_THING"
    assert (await refusal(service.approval(asked.id, by="stranger"))).reason == "NO_SUCH_THING"


async def test_an_account_named_like_a_role_is_none(service: Service) -> None:
    """`put_to` of `role:supervises` is answered by the role alone: no account may bear such a name (R3.4)."""
    asked = await asks(service, rule(put_to=["role:supervises"]))
    posing = service.client(service.token("stranger", sub="role:supervises"))

    request = pb.DecideApprovalRequest(
        approval_id=asked.id, decision=pb.DECISION_APPROVE, fingerprint=asked.fingerprint
    )
    error = await refusal(posing.approvals.DecideApproval(request))

    assert error.reason == "NOT_SIGNED_IN"
    assert (await service.approval(asked.id)).state == pb.APPROVAL_STATE_PENDING


# Once, and by whom


async def test_who_comes_later_is_told_who_decided_what_and_when(service: Service, book: Book) -> None:
    """ALREADY_DECIDED; the same person's same answer is a repeat (R3.4)."""
    asked = await asks(service)
    first = await service.yes(asked)

    again = await service.yes(asked)
    other = await refusal(service.no(asked, by="hale"))
    same_by_another = await refusal(service.yes(asked, by="ivy"))
    turned = await refusal(service.no(asked))
    await service.ended(asked.turn_id)

    assert again.answers == first.answers
    for error in (other, same_by_another, turned):
        assert (error.reason, error.code.name) == ("ALREADY_DECIDED", "FAILED_PRECONDITION")
        assert error.metadata["by"] == "gus"
        assert error.metadata["time"][:19] == first.answers[0].time.ToJsonString()[:19]
        assert error.metadata["decision"]
    assert len(book.runs()) == 1


async def test_fifty_yes_and_no_at_once_come_to_one_outcome(service: Service, book: Book) -> None:
    """One outcome; everybody else is told who and what (scenario 26)."""
    asked = await asks(service)
    people = [service.client(service.token("hale", sub=f"person{n}")) for n in range(50)]
    decisions = [pb.DECISION_APPROVE if n % 2 else pb.DECISION_DENY for n in range(50)]
    requests = [
        pb.DecideApprovalRequest(approval_id=asked.id, decision=decision, fingerprint=asked.fingerprint)
        for decision in decisions
    ]

    answers = await asyncio.gather(
        *(person.approvals.DecideApproval(request) for person, request in zip(people, requests, strict=True)),
        return_exceptions=True,
    )
    await service.ended(asked.turn_id)

    [winner] = [n for n, answer in enumerate(answers) if not isinstance(answer, BaseException)]
    for error in answers[:winner] + answers[winner + 1 :]:
        assert isinstance(error, TutelageError)
        assert (error.reason, error.metadata["by"]) == ("ALREADY_DECIDED", f"person{winner}")
    assert len(book.runs()) == winner % 2


async def test_a_quorum_needs_different_people_and_a_no_refuses_at_once(service: Service, book: Book) -> None:
    """While pending each answers once, and may turn their own yes into a no (D5, R3.4)."""
    asked = await asks(service, rule(approvals_needed=2), by="hale")
    assert asked.approvals_needed == 2

    once = await service.yes(asked, by="hale")
    again = await service.yes(asked, by="hale")
    other_reason = await refusal(service.yes(asked, by="hale", reason="Really."))
    assert {once.state, again.state} == {pb.APPROVAL_STATE_PENDING}
    assert len(again.answers) == 1
    assert other_reason.reason == "ALREADY_DECIDED"
    assert not book.runs()
    both = await service.yes(asked, by="ivy")
    await service.ended(asked.turn_id, by="hale")

    assert both.state == pb.APPROVAL_STATE_APPROVED
    assert [answer.by.id for answer in both.answers] == ["hale", "ivy"]
    assert len(book.runs()) == 1


async def test_a_yes_of_a_quorum_can_be_turned_into_a_no(service: Service, book: Book) -> None:
    """A no denies at once (D5, R3.4)."""
    asked = await asks(service, rule(approvals_needed=2), by="hale")
    await service.yes(asked, by="ivy")

    denied = await service.no(asked, by="ivy", reason="I read it again.")
    await service.ended(asked.turn_id, by="hale")

    assert denied.state == pb.APPROVAL_STATE_DENIED
    assert told(service) == ["The person did not allow this call. Reason: I read it again."]
    assert not book.runs()


async def test_whoever_gave_the_work_may_not_say_yes_where_the_rule_says_so(service: Service) -> None:
    """Not-the-giver: a no from the giver still counts (D5, R3.7)."""
    asked = await asks(service, rule(not_the_giver=True))

    error = await refusal(service.yes(asked))
    denied = await service.no(asked)

    assert error.reason == "NOT_PUT_TO_YOU"
    assert denied.state == pb.APPROVAL_STATE_DENIED


async def test_nobody_in_time_is_no_denial(service: Service, book: Book) -> None:
    """Expiry is its own state with its own words; an answer afterwards is told so (D5, scenario 16, R4)."""
    asked = await asks(service, rule(expires_after_seconds=1))
    assert asked.expire_time.ToDatetime() > asked.ask_time.ToDatetime()

    await service.ended(asked.turn_id)
    late = await refusal(service.yes(asked))

    expired = await service.approval(asked.id)
    assert expired.state == pb.APPROVAL_STATE_EXPIRED
    assert not expired.answers
    assert told(service) == ["Nobody answered in time, so this call did not run."]
    assert (late.reason, late.code.name) == ("APPROVAL_EXPIRED", "FAILED_PRECONDITION")
    assert not book.runs()


# Changed, or answered instead


async def test_a_changed_input_is_what_runs_and_the_model_is_told(service: Service, book: Book) -> None:
    """Approve with an edited input: both are recorded, the output comes behind R4's words (C1, R3.7)."""
    asked = await asks(service)

    await service.yes(asked, edited_input_json=CHANGED)
    await service.ended(asked.turn_id)

    assert [run["input"] for run in book.runs()] == [{"name": "spring", "text": "a rose — 🌹"}]
    assert told(service) == [f"The person changed the input to: {CHANGED}\nwrote spring"]
    started = await service.record(asked.turn_id, "tool_started")
    assert (started.input_json, started.edited_input_json) == (asked.input_json, CHANGED)
    assert (await service.approval(asked.id)).outcome == "(input changed) wrote spring"


async def test_a_changed_input_must_fit_the_schema(service: Service, book: Book) -> None:
    """What does not fit is refused, every place named; nothing is decided (R3.7)."""
    asked = await asks(service)

    error = await refusal(service.yes(asked, edited_input_json='{"name": 7, "colour": "red"}'))
    no_json = await refusal(service.yes(asked, edited_input_json='{"name"'))

    assert error.reason == "INVALID_FIELD"
    assert all(path.startswith("edited_input_json") for path, _ in error.fields)
    assert len(error.fields) >= 2
    assert [path for path, _ in no_json.fields] == ["edited_input_json"]
    assert (await service.approval(asked.id)).state == pb.APPROVAL_STATE_PENDING
    assert not book.runs()


async def test_an_answer_in_its_stead_is_what_the_model_is_told(service: Service, book: Book) -> None:
    """The tool does not run (C1, R3.7, R4)."""
    asked = await asks(service)

    answered = await service.decide(asked, pb.DECISION_ANSWER, answer_json='"I wrote it\\nmyself."')
    await service.ended(asked.turn_id)

    assert answered.state == pb.APPROVAL_STATE_ANSWERED
    assert told(service) == ["I wrote it\nmyself."]
    assert not book.runs()
    assert (await service.approval(asked.id)).outcome == "I wrote it\nmyself."


async def test_a_quorum_takes_no_edits_and_no_answers_in_its_stead(service: Service) -> None:
    """With more than one approval needed, they are INVALID_FIELD (R3.7)."""
    asked = await asks(service, rule(approvals_needed=2))

    edit = await refusal(service.yes(asked, edited_input_json=CHANGED))
    instead = await refusal(service.decide(asked, pb.DECISION_ANSWER, answer_json="1"))

    assert [path for path, _ in edit.fields] == ["edited_input_json"]
    assert [path for path, _ in instead.fields] == ["answer_json"]


# Everything at once


async def test_one_answer_to_all_that_a_turn_asks_is_all_or_nothing(service: Service, book: Book) -> None:
    """`DecideTurn` takes exactly the fingerprints that wait; where nothing waits ALREADY_DECIDED (settled 14)."""
    one, two = (("write_note", {"name": name, "text": name}) for name in ("one", "two"))
    await service.agent("gardener", calls(one, two), {"say": "Done."}, tools=["write_note"])
    turn_id = await service.asked_of("gardener", approve=CHANGES_ASKED)
    questions = await service.questions(turn_id, 2)
    seen = [asked.fingerprint for asked in questions]

    def request(*fingerprints: str) -> pb.DecideTurnRequest:
        return pb.DecideTurnRequest(turn_id=turn_id, decision=pb.DECISION_APPROVE, fingerprints=fingerprints)

    part = await refusal(service["gus"].approvals.DecideTurn(request(seen[0])))
    more = await refusal(service["gus"].approvals.DecideTurn(request(*seen, "0" * 64)))
    none = await refusal(service["gus"].approvals.DecideTurn(request()))
    assert not book.runs()
    decided = await service["gus"].approvals.DecideTurn(request(*reversed(seen)))
    await service.ended(turn_id)
    after = await refusal(service["gus"].approvals.DecideTurn(request(*seen)))

    assert {part.reason, more.reason} == {"FINGERPRINT_CHANGED"}
    assert none.reason == "INVALID_FIELD"
    assert [one.state for one in decided.approvals] == [pb.APPROVAL_STATE_APPROVED] * 2
    assert len(book.runs()) == 2
    assert after.reason == "TURN_ENDED"


async def test_the_record_says_who_decided_and_how_they_were_proven(service: Service) -> None:
    """What was shown, who answered, by which token, what ran and what came of it (D2)."""
    asked = await asks(service)
    signed_in = 1_700_000_000
    token = service.token("hale", name="Hale Berry", claims={"auth_time": signed_in, "acr": "gold"})
    hale = service.client(token)
    await hale.approvals.DecideApproval(
        pb.DecideApprovalRequest(
            approval_id=asked.id, decision=pb.DECISION_APPROVE, fingerprint=asked.fingerprint, reason="It is spring."
        )
    )
    await service.ended(asked.turn_id)

    shown = await service.record(asked.turn_id, "approval_asked")
    recorded = await service.record(asked.turn_id, "approval_recorded")
    done = await service.record(asked.turn_id, "tool_done")
    assert (shown.approval_id, shown.input_json, shown.fingerprint) == (asked.id, asked.input_json, asked.fingerprint)
    [answer] = recorded.answers
    assert (recorded.approval_id, recorded.state) == (asked.id, pb.APPROVAL_STATE_APPROVED)
    assert (answer.by.id, answer.by.kind, answer.by.display_name) == ("hale", PRINCIPAL_KIND_PERSON, "Hale Berry")
    assert (answer.decision, answer.reason) == (pb.DECISION_APPROVE, "It is spring.")
    assert answer.proof.token_sha256 == hashlib.sha256(token.encode()).hexdigest()
    assert answer.proof.issuer == "tutelage-embedded"
    assert answer.proof.key_id == key_id(signing_key(service.folder))
    assert (answer.proof.auth_time.seconds, answer.proof.acr) == (signed_in, "gold")
    assert done.output_json == '"wrote spring"'
    settled = await service.approval(asked.id)
    assert list(settled.answers) == [answer]
    assert settled.outcome == "wrote spring"


# Settings that can never be met


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        (ApprovalRule(changes=ChangesRule(), put_to=["hale"], approvals_needed=5), "approve.rule.approvals_needed"),
        (ApprovalRule(put_to=["hale"]), "approve.rule"),
        (ApprovalRule(changes=ChangesRule(), put_to=["role:"]), "approve.rule.put_to[0]"),
    ],
)
async def test_a_rule_that_can_never_be_met_is_refused_as_it_is_set(
    service: Service, made: ApprovalRule, wrong: str
) -> None:
    """R2.6."""
    await service.agent("gardener", {"say": "Done."})
    request = conversations_pb2.OpenConversationRequest(agent="gardener", approve=ApprovalSetting(rule=made))

    error = await refusal(service["gus"].conversations.OpenConversation(request))

    assert error.reason == "INVALID_FIELD"
    assert [path for path, _ in error.fields] == [wrong]
