"""A call that a person is asked about, and what an answer does to it.

    PENDING                       ► APPROVED    the last yes that is needed
                                  ► ANSWERED    an answer in its stead
                                  ► DENIED      a no, at once
                                  ► EXPIRED     nobody in time
    PENDING, APPROVED, ANSWERED   ► SUPERSEDED  the instructions changed before the call started
                                  ► WITHDRAWN   the turn ended, or went on without it

- Only a person to whom it was put answers, and says yes only to what they saw (R3.4).
- Nothing unset or unknown is a yes.
- Pure: the caller has locked the approval's row, and gives the database's clock.
"""

import enum
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from runtime_service.domain import canonical_json
from runtime_service.domain.addresses import Address
from runtime_service.domain.canonical_json import JsonProblem
from runtime_service.domain.effects import Effects
from runtime_service.domain.principals import Principal, Proof
from runtime_service.domain.problems import (
    AlreadyDecided,
    ApprovalExpired,
    FingerprintChanged,
    InstructionsChanged,
    InvalidFields,
    NotPutToYou,
    PersonRequired,
)
from runtime_service.domain.record_form import Words
from runtime_service.domain.rules import ApprovalRule


class ApprovalState(enum.Enum):
    """Where an approval stands."""

    UNSPECIFIED = "UNSPECIFIED"
    PENDING = "PENDING"
    APPROVED = "APPROVED"
    DENIED = "DENIED"
    SUPERSEDED = "SUPERSEDED"
    EXPIRED = "EXPIRED"
    WITHDRAWN = "WITHDRAWN"
    ANSWERED = "ANSWERED"


class Decision(enum.Enum):
    """A person's answer. Whatever is not known is UNSPECIFIED, which is refused."""

    UNSPECIFIED = "UNSPECIFIED"
    APPROVE = "APPROVE"
    DENY = "DENY"
    ANSWER = "ANSWER"


@dataclass(frozen=True, slots=True)
class Answer:
    """One person's answer, with how they were proven. JSON texts are as they were given."""

    decision: Decision
    by: Principal
    reason: Words = ""
    time: datetime | None = None
    edited_input_json: Words = ""
    answer_json: Words = ""
    proof: Proof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One tool call that a person is asked about. Fields as in the contract; the last ones stay inside.

    `turn_id` is the root's, `asking_turn_id` the turn whose call it is (R7). `seq` orders lists.
    `schema_json` is the tool's input schema, which an edited input must fit.
    """

    id: str
    turn_id: str
    conversation_id: str = ""
    agent: str
    path: str
    invocation: int
    address: Address
    tool: str
    tool_description: str = ""
    input_json: str
    effects: Effects
    fingerprint: str
    instruction_set: int = 0
    said: str = ""
    work_for: Principal
    given_by: Principal
    scope: str = ""
    put_to: tuple[str, ...]
    approvals_needed: int = 1
    state: ApprovalState = ApprovalState.PENDING
    ask_time: datetime
    expire_time: datetime | None = None
    answers: tuple[Answer, ...] = ()
    supersedes: str = ""
    asked_by_rule: str = ""
    outcome: str = ""
    rule: ApprovalRule
    declaration_hash: str = ""
    agent_version: str = ""
    skill: str = ""
    skill_version: str = ""
    block_sha256: str = ""
    schema_json: str = ""
    seq: int = 0
    tenant: str = ""
    asking_turn_id: str = ""
    task_id: str = ""
    # Which reply of its task asked: what asks together stands and falls together (R3.6). 1 for the first.
    step: int = 0
    # Settled, and not yet copied into the journal by the turn's writer (R5.1).
    to_copy: bool = False
    # A call was started on this yes.
    used: bool = False
    # Its call has its result, or it was asked anew.
    closed: bool = False


def decide(approval: Approval, answer: Answer, roles: Collection[str], now: datetime, *, fingerprint: str) -> Approval:
    """Take an answer, and give the approval as it stands then (R3.4, R3.7).

    `fingerprint` is the one that the answerer saw; `roles` are theirs. The same answer by the same person
    again gives the approval as it is. Whether an edited input fits the schema, and whether the instruction
    set stands, is for the caller to find out before. Raises `InvalidFields`, `PersonRequired`,
    `NotPutToYou`, `AlreadyDecided`, `ApprovalExpired`, `InstructionsChanged`, `FingerprintChanged`, in this
    order of precedence.
    """
    _refuse_fields(approval, answer, fingerprint)
    _refuse_person(approval, answer, roles)
    before = _last_by(approval, answer.by.id)
    saw_it = fingerprint == approval.fingerprint or (not fingerprint and answer.decision is Decision.DENY)
    if before and saw_it and _same(before, answer):
        return approval
    _refuse_settled(approval, now)
    if not saw_it:
        raise FingerprintChanged(approval.id)
    if before and answer.decision is not Decision.DENY:
        raise AlreadyDecided(approval.id, by=before.by.id, time=before.time, decision=before.decision.value)
    taken = replace(approval, answers=(*approval.answers, answer))
    return replace(taken, state=_state_after(taken, answer.decision))


def is_put_to(put_to: Collection[str], account_id: str, roles: Collection[str]) -> bool:
    """Tell whether something is put to an account, by its id or one of its roles.

    An account whose id looks like a role is not that role.
    """
    by_id = account_id in put_to and not account_id.startswith("role:")
    return by_id or any(f"role:{role}" in put_to for role in roles)


def expired(approval: Approval, now: datetime) -> Approval:
    """Let a waiting approval expire if its time ran out; else give it as it is."""
    if approval.state is ApprovalState.PENDING and _is_late(approval, now):
        return replace(approval, state=ApprovalState.EXPIRED)
    return approval


def withdrawn(approval: Approval) -> Approval:
    """Withdraw what waits, and a yes that was never used (R3.9). What was settled otherwise stays."""
    return _moved(approval, ApprovalState.WITHDRAWN)


def superseded(approval: Approval) -> Approval:
    """Supersede what waits, or was answered and has not started (R3.6). What was settled otherwise stays."""
    return _moved(approval, ApprovalState.SUPERSEDED)


_OPEN = (ApprovalState.PENDING, ApprovalState.APPROVED, ApprovalState.ANSWERED)
_KNOWN = (Decision.APPROVE, Decision.DENY, Decision.ANSWER)


def _moved(approval: Approval, state: ApprovalState) -> Approval:
    return replace(approval, state=state) if approval.state in _OPEN else approval


def _refuse_fields(approval: Approval, answer: Answer, fingerprint: str) -> None:
    wrong: list[tuple[str, str]] = []
    yes, instead = answer.decision is Decision.APPROVE, answer.decision is Decision.ANSWER
    if answer.decision not in _KNOWN:
        wrong.append(("decision", "Say yes, no, or give an answer in its stead."))
    if (yes or instead) and not fingerprint:
        wrong.append(("fingerprint", "Send the fingerprint that the person saw."))
    if answer.edited_input_json:
        wrong += _edit_problems("edited_input_json", answer.edited_input_json, yes, "a yes", approval)
    if answer.answer_json or instead:
        wrong += _edit_problems("answer_json", answer.answer_json, instead, "an answer in its stead", approval)
    if wrong:
        raise InvalidFields(wrong)


def _edit_problems(field: str, text: str, belongs: bool, where: str, approval: Approval) -> list[tuple[str, str]]:
    if not belongs:
        return [(field, f"This goes with {where} alone.")]
    if approval.approvals_needed > 1:
        return [(field, "More than one person must say yes, so the call runs as it was asked or not at all.")]
    try:
        canonical_json.parse(text)
    except JsonProblem as problem:
        return [(field, str(problem))]
    return []


def _refuse_person(approval: Approval, answer: Answer, roles: Collection[str]) -> None:
    if not answer.by.is_person:
        raise PersonRequired("decide this")
    if not is_put_to(approval.put_to, answer.by.id, roles):
        raise NotPutToYou(approval.id)
    givers = (approval.given_by.id, approval.given_by.on_behalf_of)
    if approval.rule.not_the_giver and answer.by.id in givers and answer.decision is not Decision.DENY:
        raise NotPutToYou(approval.id, gave_it=True)


def _refuse_settled(approval: Approval, now: datetime) -> None:
    match approval.state:
        case ApprovalState.PENDING:
            if _is_late(approval, now):
                raise ApprovalExpired(approval.id, approval.expire_time)
        case ApprovalState.EXPIRED:
            raise ApprovalExpired(approval.id, approval.expire_time)
        case ApprovalState.SUPERSEDED:
            raise InstructionsChanged(approval.id)
        case state:
            last = approval.answers[-1] if approval.answers else None
            by, time = (last.by.id, last.time) if last else ("", None)
            raise AlreadyDecided(approval.id, by=by, time=time, decision=state.value)


def _is_late(approval: Approval, now: datetime) -> bool:
    return approval.expire_time is not None and approval.expire_time <= now


def _last_by(approval: Approval, account_id: str) -> Answer | None:
    return next((answer for answer in reversed(approval.answers) if answer.by.id == account_id), None)


def _same(one: Answer, other: Answer) -> bool:
    def said(answer: Answer) -> tuple[object, ...]:
        return answer.decision, answer.reason, answer.edited_input_json, answer.answer_json

    return said(one) == said(other)


def _state_after(approval: Approval, decision: Decision) -> ApprovalState:
    if decision is Decision.DENY:
        return ApprovalState.DENIED
    if decision is Decision.ANSWER:
        return ApprovalState.ANSWERED
    enough = len(approval.answers) >= approval.approvals_needed
    return ApprovalState.APPROVED if enough else ApprovalState.PENDING
