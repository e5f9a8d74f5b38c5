"""The contract's messages as domain values, each field checked."""

from __future__ import annotations

from datetime import UTC, datetime

from tutelage.common.v1 import principal_pb2
from tutelage.teaching.v1 import corrections_pb2, instructions_pb2, tasks_pb2

from service_kit.messages import by_name
from teaching_service.api.checks import MOST_SCOPE_BYTES, MOST_TASK_ID_BYTES, Fields
from teaching_service.domain.corrections import CorrectionDraft, Severity, problems
from teaching_service.domain.instructions import InstructionDraft
from teaching_service.domain.principals import Principal, PrincipalKind
from teaching_service.domain.tasks import Proposal, Task

MOST_SOURCES = 100
MOST_PUT_TO = 100
MOST_SKILL_BYTES = 256


def correction(message: corrections_pb2.CorrectionDraft, fields: Fields) -> CorrectionDraft:
    """Return what a correction says. A severity that is not said is `MISTAKE`."""
    severity = by_name(Severity, corrections_pb2.Severity, message.severity)
    if message.severity and severity is Severity.UNSPECIFIED:
        fields.refuse("correction.severity", "This is none of those known.")
    draft = CorrectionDraft(
        wrong=fields.text("correction.wrong", message.wrong),
        right=fields.text("correction.right", message.right),
        because=fields.text("correction.because", message.because),
        corrected_output=fields.text("correction.corrected_output", message.corrected_output),
        severity=Severity.MISTAKE if severity is Severity.UNSPECIFIED else severity,
        step=message.step,
        proposal_id=fields.text("correction.proposal_id", message.proposal_id, 128),
        despite_instruction_id=fields.text("correction.despite_instruction_id", message.despite_instruction_id, 128),
    )
    for name, sentence in problems(draft):
        fields.refuse(f"correction.{name}", sentence)
    return draft


def draft(message: instructions_pb2.InstructionDraft, fields: Fields) -> InstructionDraft:
    """Return what an instruction is for, and what it says, its guidance normalised."""
    aims = [name for name in ("skill", "for_person", "on_scope") if getattr(message, name)]
    if len(aims) > 1:
        for name in aims:
            fields.refuse(f"draft.{name}", "It is for a skill, for a person or on a scope: at most one of them.")
    if len(message.from_corrections) > MOST_SOURCES:
        fields.refuse("draft.from_corrections", f"At most {MOST_SOURCES} corrections.")
    if len(set(message.from_corrections)) < len(message.from_corrections):
        fields.refuse("draft.from_corrections", "Name each correction once.")
    return InstructionDraft(
        agent=fields.agent("draft.agent", message.agent),
        skill=fields.text("draft.skill", message.skill, MOST_SKILL_BYTES),
        for_person=fields.account("draft.for_person", message.for_person),
        on_scope=fields.text("draft.on_scope", message.on_scope, MOST_SCOPE_BYTES),
        guidance=fields.guidance("draft.guidance", message.guidance),
        why=fields.why("draft.why", message.why),
        from_corrections=tuple(message.from_corrections),
    )


def task(message: tasks_pb2.BeginTaskRequest, tenant: str, fields: Fields) -> Task:
    """Return a task that begins now."""
    fields.needed("task_id", message.task_id)
    return Task(
        id=fields.text("task_id", message.task_id, MOST_TASK_ID_BYTES),
        tenant=tenant,
        agent=fields.agent("agent", message.agent),
        skill=fields.text("skill", message.skill, MOST_SKILL_BYTES),
        skill_version=fields.text("skill_version", message.skill_version, 256),
        turn_id=fields.text("turn_id", message.turn_id, 256),
        path=fields.text("path", message.path, MOST_TASK_ID_BYTES),
        work_for=_principal("work_for", message.work_for, fields),
        given_by=_principal("given_by", message.given_by, fields),
        scope=fields.text("scope", message.scope, MOST_SCOPE_BYTES),
        start_time=datetime.now(UTC),
    )


def proposal(message: tasks_pb2.Proposal, path: str, fields: Fields) -> Proposal:
    """Return something that a task proposed."""
    fields.needed(f"{path}.task_id", message.task_id)
    fields.needed(f"{path}.proposal_id", message.proposal_id)
    fields.text(f"{path}.task_id", message.task_id, MOST_TASK_ID_BYTES)
    fields.text(f"{path}.proposal_id", message.proposal_id, 128)
    if len(message.put_to) > MOST_PUT_TO:
        fields.refuse(f"{path}.put_to", f"At most {MOST_PUT_TO}.")
    for who in message.put_to:
        fields.account(f"{path}.put_to", fields.needed(f"{path}.put_to", who.removeprefix("role:")))
    return Proposal(message.task_id, message.proposal_id, tuple(message.put_to))


def _principal(path: str, message: principal_pb2.Principal, fields: Fields) -> Principal:
    fields.needed(f"{path}.id", message.id)
    return Principal(
        id=fields.account(f"{path}.id", message.id),
        kind=by_name(PrincipalKind, principal_pb2.PrincipalKind, message.kind),
        display_name=fields.text(f"{path}.display_name", message.display_name, 1024),
        on_behalf_of=fields.account(f"{path}.on_behalf_of", message.on_behalf_of),
    )
