"""What an answer does: runtime.md R3; scenarios 4, 6, 11, 14, 16, 26, 38; features C1, D1, D2, D5."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runtime_service.domain.addresses import Address
from runtime_service.domain.approvals import (
    Answer,
    Approval,
    ApprovalState,
    Decision,
    decide,
    expired,
    is_put_to,
    superseded,
    withdrawn,
)
from runtime_service.domain.effects import Effects
from runtime_service.domain.principals import Principal, PrincipalKind, Proof
from runtime_service.domain.problems import (
    AlreadyDecided,
    ApprovalExpired,
    FingerprintChanged,
    InstructionsChanged,
    InvalidFields,
    NotPutToYou,
    PersonRequired,
    RuntimeProblem,
)
from runtime_service.domain.rules import ApprovalRule, RuleKind
from tests.domain.made import NOON, person

SEEN = "f1"
YES, NO, INSTEAD = Decision.APPROVE, Decision.DENY, Decision.ANSWER

APPROVAL = Approval(
    id="ap1",
    turn_id="t1",
    agent="support",
    path="support/refund",
    invocation=1,
    address=Address("support/refund#1"),
    tool="refund",
    input_json='{"order":7}',
    effects=Effects.CHANGES,
    fingerprint=SEEN,
    work_for=person("ann"),
    given_by=person("ben"),
    put_to=("ann", "ben", "role:supervises"),
    ask_time=NOON,
    rule=ApprovalRule(RuleKind.CHANGES),
)
TWO = replace(APPROVAL, approvals_needed=2)


def _answer(
    approval: Approval,
    who: str | Principal,
    decision: Decision,
    *,
    roles: Collection[str] = (),
    seen: str = SEEN,
    now: datetime = NOON,
    **more: str,
) -> Approval:
    by = person(who) if isinstance(who, str) else who
    answer = Answer(decision, by, time=now, proof=Proof(token_sha256="ab"), **more)
    return decide(approval, answer, roles, now, fingerprint=seen)


def test_a_yes_approves_and_is_kept_with_who_when_and_how_they_were_proven() -> None:
    """D2."""
    approved = _answer(APPROVAL, "ann", YES, reason="It is due.")
    assert approved == replace(
        APPROVAL,
        state=ApprovalState.APPROVED,
        answers=(Answer(YES, person("ann"), "It is due.", NOON, proof=Proof(token_sha256="ab")),),
    )


def test_a_no_denies_at_once_however_many_must_say_yes() -> None:
    """D5, R3.4."""
    denied = _answer(_answer(TWO, "ann", YES), "ben", NO, reason='No\n"never" 🛑')
    assert denied.state is ApprovalState.DENIED
    assert denied.answers[-1].reason == 'No\n"never" 🛑'


def test_the_last_yes_that_is_needed_approves() -> None:
    """D5."""
    once = _answer(TWO, "ann", YES)
    assert once.state is ApprovalState.PENDING
    assert _answer(once, "ben", YES).state is ApprovalState.APPROVED


def test_one_person_is_never_two() -> None:
    """D5: the same yes again is a repeat, and counts once."""
    once = _answer(TWO, "ann", YES)
    assert _answer(once, "ann", YES) == once


def test_while_it_waits_a_person_may_turn_their_own_yes_into_a_no() -> None:
    """R3.4."""
    once = _answer(TWO, "ann", YES)
    turned = _answer(once, "ann", NO)
    assert turned.state is ApprovalState.DENIED
    assert [answer.decision for answer in turned.answers] == [YES, NO]


@pytest.mark.parametrize(
    ("who", "roles"), [("ann", ()), ("ben", ()), ("zoe", ("supervises",)), ("zoe", ("uses", "supervises"))]
)
def test_those_to_whom_it_was_put_may_answer_by_id_or_by_role(who: str, roles: tuple[str, ...]) -> None:
    assert _answer(APPROVAL, who, YES, roles=roles).state is ApprovalState.APPROVED


@pytest.mark.parametrize("decision", [YES, NO])
@pytest.mark.parametrize(
    ("who", "roles"),
    [("zoe", ()), ("zoe", ("builds",)), ("role:supervises", ()), ("zoe", ("role:supervises",))],
)
def test_nobody_else_may_not_even_to_say_no(who: str, roles: tuple[str, ...], decision: Decision) -> None:
    """R3.4. An account that calls itself a role is none."""
    with pytest.raises(NotPutToYou):
        _answer(APPROVAL, who, decision, roles=roles)


@pytest.mark.parametrize("decision", [YES, NO])
@pytest.mark.parametrize(
    "who",
    [
        Principal("ann", PrincipalKind.AGENT),
        Principal("ann", PrincipalKind.SERVICE),
        Principal("ann", PrincipalKind.UNSPECIFIED),
        Principal("bot", PrincipalKind.SERVICE, on_behalf_of="ann"),
        Principal("ann", PrincipalKind.PERSON, on_behalf_of="ben"),
    ],
)
def test_only_a_person_for_themselves_answers(who: Principal, decision: Decision) -> None:
    """R3.4."""
    with pytest.raises(PersonRequired):
        _answer(APPROVAL, who, decision, roles=("supervises",))


@pytest.mark.parametrize("giver", [person("ben"), Principal("bot", PrincipalKind.SERVICE, on_behalf_of="ben")])
def test_the_giver_and_whoever_they_acted_for_may_not_say_yes_where_the_rule_says_so(
    giver: Principal,
) -> None:
    """D5, R3.7: a no of theirs is still a no."""
    approval = replace(APPROVAL, given_by=giver, rule=ApprovalRule(RuleKind.CHANGES, not_the_giver=True))
    with pytest.raises(NotPutToYou, match="gave this work"):
        _answer(approval, "ben", YES)
    with pytest.raises(NotPutToYou):
        _answer(approval, "ben", INSTEAD, answer_json="1")
    assert _answer(approval, "ben", NO).state is ApprovalState.DENIED
    assert _answer(approval, "ann", YES).state is ApprovalState.APPROVED


def test_an_unknown_decision_is_never_a_yes() -> None:
    """Scenario 14."""
    with pytest.raises(InvalidFields) as refused:
        _answer(APPROVAL, "ann", Decision.UNSPECIFIED)
    assert [field for field, _ in refused.value.fields] == ["decision"]


def test_every_wrong_field_is_named_at_once() -> None:
    """R12."""
    with pytest.raises(InvalidFields) as refused:
        _answer(APPROVAL, "ann", Decision.UNSPECIFIED, edited_input_json="{}", answer_json="1")
    assert [field for field, _ in refused.value.fields] == ["decision", "edited_input_json", "answer_json"]


@pytest.mark.parametrize(
    ("decision", "fields", "wrong"),
    [
        (YES, {"answer_json": "1"}, "answer_json"),
        (YES, {"edited_input_json": "{"}, "edited_input_json"),
        (NO, {"edited_input_json": "{}"}, "edited_input_json"),
        (NO, {"answer_json": "{}"}, "answer_json"),
        (INSTEAD, {}, "answer_json"),
        (INSTEAD, {"answer_json": "{'a'"}, "answer_json"),
        (INSTEAD, {"answer_json": "1", "edited_input_json": "{}"}, "edited_input_json"),
        (YES, {"seen": ""}, "fingerprint"),
        (INSTEAD, {"seen": "", "answer_json": "1"}, "fingerprint"),
    ],
)
def test_what_does_not_belong_to_the_answer_is_refused(decision: Decision, fields: dict[str, str], wrong: str) -> None:
    """Scenario 11, R3.7: changed arguments beside a yes are never run."""
    with pytest.raises(InvalidFields) as refused:
        _answer(APPROVAL, "ann", decision, **fields)  # type: ignore[arg-type]
    assert [field for field, _ in refused.value.fields] == [wrong]


def test_a_person_may_change_the_input_or_answer_in_the_tools_stead() -> None:
    """C1, R3.7."""
    edited = _answer(APPROVAL, "ann", YES, edited_input_json='{"order": 8}')
    assert (edited.state, edited.answers[-1].edited_input_json) == (ApprovalState.APPROVED, '{"order": 8}')
    instead = _answer(APPROVAL, "ann", INSTEAD, answer_json='"done by hand"')
    assert (instead.state, instead.answers[-1].answer_json) == (ApprovalState.ANSWERED, '"done by hand"')


@pytest.mark.parametrize(("decision", "fields"), [(YES, {"edited_input_json": "{}"}), (INSTEAD, {"answer_json": "1"})])
def test_what_two_must_say_yes_to_runs_as_it_was_asked_or_not_at_all(
    decision: Decision, fields: dict[str, str]
) -> None:
    """R3.7."""
    with pytest.raises(InvalidFields, match="More than one person"):
        _answer(TWO, "ann", decision, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("decision", "fields"), [(YES, {}), (NO, {}), (INSTEAD, {"answer_json": "1"})])
def test_an_answer_to_something_else_decides_nothing(decision: Decision, fields: dict[str, str]) -> None:
    """D1, settled 36: a no with another fingerprint too."""
    with pytest.raises(FingerprintChanged):
        _answer(APPROVAL, "ann", decision, seen="f2", **fields)  # type: ignore[arg-type]


def test_a_no_needs_no_fingerprint() -> None:
    """R3.4."""
    assert _answer(APPROVAL, "ann", NO, seen="").state is ApprovalState.DENIED


def test_whoever_comes_second_is_told_who_decided_what_and_when() -> None:
    """Scenarios 4 and 26."""
    denied = _answer(APPROVAL, "ann", NO)
    with pytest.raises(AlreadyDecided) as told:
        _answer(denied, "ben", YES, now=NOON + timedelta(seconds=1))
    assert told.value.metadata == {
        "approval_id": "ap1",
        "by": "ann",
        "time": "2026-03-01T12:00:00.000000Z",
        "decision": "DENIED",
    }
    with pytest.raises(AlreadyDecided):
        _answer(denied, "ann", YES)
    with pytest.raises(AlreadyDecided):
        _answer(denied, "ben", NO)


def test_the_same_answer_again_is_the_same_answer() -> None:
    """Scenario 6, R3.4: also once it is settled, and whatever settled it."""
    approved = _answer(APPROVAL, "ann", YES, edited_input_json="{}")
    later = NOON + timedelta(days=9)
    for now_stands in (approved, superseded(approved), withdrawn(approved)):
        again = _answer(now_stands, "ann", YES, edited_input_json="{}", now=later)
        assert again == now_stands
    with pytest.raises(AlreadyDecided):
        _answer(approved, "ann", YES, edited_input_json="{}", seen="f2")
    with pytest.raises(AlreadyDecided):
        _answer(approved, "ann", YES, edited_input_json='{"order":9}')
    with pytest.raises(AlreadyDecided):
        _answer(approved, "ann", NO)


def test_a_second_other_yes_of_one_person_is_refused_while_it_waits() -> None:
    """R3.4: each person answers once."""
    once = _answer(TWO, "ann", YES)
    with pytest.raises(AlreadyDecided) as told:
        _answer(once, "ann", YES, reason="For another reason.")
    assert told.value.metadata["decision"] == "APPROVE"


def test_an_approval_expires_at_its_time_whether_or_not_anybody_moved_it() -> None:
    """Scenario 16, D5: not a denial, and a state of its own."""
    approval = replace(APPROVAL, expire_time=NOON)
    just_before = NOON - timedelta(microseconds=1)
    assert expired(approval, just_before) == approval
    assert _answer(approval, "ann", YES, now=just_before).state is ApprovalState.APPROVED
    assert expired(approval, NOON).state is ApprovalState.EXPIRED
    for late in (approval, expired(approval, NOON)):
        for decision in (YES, NO):
            with pytest.raises(ApprovalExpired):
                _answer(late, "ann", decision)


def test_what_is_answered_does_not_expire() -> None:
    approved = _answer(replace(APPROVAL, expire_time=NOON + timedelta(hours=1)), "ann", YES)
    assert expired(approved, NOON + timedelta(hours=2)) == approved


def test_an_answer_to_what_was_superseded_is_told_that_the_instructions_changed() -> None:
    """R3.6, scenario 38."""
    with pytest.raises(InstructionsChanged):
        _answer(superseded(APPROVAL), "ann", YES)


def test_an_answer_to_what_was_withdrawn_is_told_so() -> None:
    with pytest.raises(AlreadyDecided) as told:
        _answer(withdrawn(APPROVAL), "ann", YES)
    assert told.value.metadata == {"approval_id": "ap1", "decision": "WITHDRAWN"}


@pytest.mark.parametrize(
    ("state", "moves"),
    [
        (ApprovalState.PENDING, True),
        (ApprovalState.APPROVED, True),
        (ApprovalState.ANSWERED, True),
        (ApprovalState.DENIED, False),
        (ApprovalState.EXPIRED, False),
        (ApprovalState.SUPERSEDED, False),
        (ApprovalState.WITHDRAWN, False),
    ],
)
def test_what_waits_or_was_answered_is_superseded_or_withdrawn_and_nothing_else(
    state: ApprovalState, moves: bool
) -> None:
    """R3.6, R3.9; settled 38: its answers stay."""
    approval = replace(_answer(APPROVAL, "ann", YES), state=state)
    for move, to in ((superseded, ApprovalState.SUPERSEDED), (withdrawn, ApprovalState.WITHDRAWN)):
        assert move(approval) == (replace(approval, state=to) if moves else approval)


def test_put_to_means_an_account_or_a_role() -> None:
    assert is_put_to(("ann",), "ann", ())
    assert is_put_to(("role:finance",), "zoe", ("uses", "finance"))
    assert not is_put_to(("finance", "role:ann"), "ann", ("finance",))


class Answering(RuleBasedStateMachine):
    """Anybody answers anything in any order; what the answers come to is counted beside it."""

    approval: Approval
    now: datetime

    @initialize(needed=st.integers(1, 3), not_the_giver=st.booleans(), expires=st.booleans())
    def asked(self, needed: int, not_the_giver: bool, expires: bool) -> None:
        self.approval = replace(
            APPROVAL,
            put_to=("ann", "ben", "cat", "role:supervises"),
            approvals_needed=needed,
            rule=ApprovalRule(RuleKind.CHANGES, approvals_needed=needed, not_the_giver=not_the_giver),
            expire_time=NOON + timedelta(seconds=5) if expires else None,
        )
        self.now = NOON
        self.yeses: set[str] = set()
        self.settled: ApprovalState | None = None

    @rule(
        who=st.sampled_from(["ann", "ben", "cat", "zoe", "eve"]),
        decision=st.sampled_from(Decision),
        seen=st.sampled_from([SEEN, SEEN, SEEN, "other", ""]),
    )
    def answers(self, who: str, decision: Decision, seen: str) -> None:
        roles = ("supervises",) if who == "zoe" else ()
        text = {"answer_json": "1"} if decision is INSTEAD else {}
        before = self.approval
        try:
            after = _answer(before, who, decision, roles=roles, seen=seen, now=self.now, **text)
        except RuntimeProblem:
            assert not self._is_to_be_taken(who, decision, seen)
            return
        if after == before:
            assert self._said(who) is decision
            return
        assert self._is_to_be_taken(who, decision, seen)
        assert after.answers[:-1] == before.answers
        self.approval = after
        if decision is NO:
            self.settled = ApprovalState.DENIED
        elif decision is INSTEAD:
            self.settled = ApprovalState.ANSWERED
        else:
            self.yeses.add(who)
            if len(self.yeses) == before.approvals_needed:
                self.settled = ApprovalState.APPROVED

    @rule(seconds=st.integers(0, 3))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def somebody_looks_at_the_clock(self) -> None:
        self.approval = expired(self.approval, self.now)
        if self.settled is None and self._is_late():
            self.settled = ApprovalState.EXPIRED

    @invariant()
    def it_stands_where_the_answers_put_it(self) -> None:
        assert self.approval.state is (self.settled or ApprovalState.PENDING)

    @invariant()
    def nobody_says_yes_twice(self) -> None:
        said_yes = [answer.by.id for answer in self.approval.answers if answer.decision is YES]
        assert sorted(said_yes) == sorted(self.yeses)

    def _said(self, who: str) -> Decision | None:
        return next((each.decision for each in reversed(self.approval.answers) if each.by.id == who), None)

    def _is_late(self) -> bool:
        return self.approval.expire_time is not None and self.now >= self.approval.expire_time

    def _is_to_be_taken(self, who: str, decision: Decision, seen: str) -> bool:
        if self.settled or self._is_late() or who == "eve" or decision is Decision.UNSPECIFIED:
            return False
        if decision is NO:
            return seen in (SEEN, "")
        gave_it = who == "ben" and self.approval.rule.not_the_giver
        alone = decision is YES or self.approval.approvals_needed == 1
        return seen == SEEN and not gave_it and alone and who not in self.yeses


TestAnswersInAnyOrder = Answering.TestCase
