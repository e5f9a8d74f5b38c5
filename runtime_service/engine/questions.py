"""What is asked of people about calls, and what their answers come to (`runtime.md` R3).

Invariants:
- A question, its record and the news of it are one transaction, the records before it with them (R3.1).
- An answer is copied into the journal before it is acted on (R5.1).
- A yes is used only for what its fingerprint covers, under the set that it was given under (R3.5, R3.6).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from runtime_service.domain import told
from runtime_service.domain.addresses import path_of
from runtime_service.domain.approvals import Approval, ApprovalState
from runtime_service.domain.fingerprints import FingerprintFields, fingerprint
from runtime_service.domain.journal import ApprovalAsked, ApprovalRecorded, ToolEnd
from runtime_service.domain.ledger import YesGone
from runtime_service.domain.rules import ApprovalRule, Ruling, resolve_put_to
from runtime_service.engine.making import JudgeAgain, Leave, Making, finish
from runtime_service.engine.toolbox import Toolbox
from runtime_service.engine.units.approvals import AskPeople, SupersedeQuestions, WithdrawQuestion
from runtime_service.engine.writer import FOR_A_PERSON, Writer
from runtime_service.teaching_link import Teaching


class Questions:
    """The questions of one turn, for one writer."""

    def __init__(self, writer: Writer, toolbox: Toolbox, teaching: Teaching) -> None:
        self._writer = writer
        self._toolbox = toolbox
        self._teaching = teaching

    async def ask(self, questions: Sequence[tuple[Making, Ruling]], instead_of: str = "") -> None:
        """Put calls to people, all in one transaction. A question that this one asks again is withdrawn."""
        asked = [self._question(making, ruling, instead_of) for making, ruling in questions]
        records = [(making.task.address, record) for (making, _), (_, record) in zip(questions, asked, strict=True)]
        unit = AskPeople(self._writer.hold, [approval for approval, _ in asked], records, instead_of)
        await self._writer.submit(unit)
        for address, record in records:
            self._writer.past.add(address, record)

    async def withdraw(self, approval_id: str) -> None:
        """Take a question back, answered or not: its call is free to run without an answer now."""
        await self._writer.submit(WithdrawQuestion(self._writer.hold, approval_id))

    async def leave(self, making: Making) -> Leave | None:
        """Wait until people have settled the question about a call; None where it may not run, and the model is told.

        Raises `JudgeAgain` where the question was withdrawn and the turn goes on all the same.
        """
        asked = self._last_asked(making)
        if making.free or asked is None:
            return Leave(making.call.input_json)
        approval = await self._settled(asked.approval_id)
        self._copy(making, approval)
        last = approval.answers[-1] if approval.answers else None
        match approval.state:
            case ApprovalState.APPROVED:
                edited = last.edited_input_json if last else ""
                return Leave(edited or making.call.input_json, edited, approval.id)
            case ApprovalState.WITHDRAWN:
                raise JudgeAgain(making)
            case ApprovalState.ANSWERED if last is not None:
                given = Leave(making.call.input_json, approval_id=approval.id)
                finish(self._writer, making, ToolEnd.ANSWERED, last.answer_json, leave=given)
            case ApprovalState.EXPIRED:
                finish(self._writer, making, ToolEnd.REFUSED, told.as_json(told.NOBODY_ANSWERED))
            case ApprovalState.SUPERSEDED:
                finish(self._writer, making, ToolEnd.SUPERSEDED, told.as_json(told.INSTRUCTIONS_CHANGED))
            case _:
                reason = last.reason if last else ""
                finish(self._writer, making, ToolEnd.REFUSED, told.as_json(told.not_allowed(reason)))
        return None

    async def check(self, making: Making, leave: Leave) -> None:
        """Look once more, as a call is about to start, whether its yes covers what would run (R3.5, R3.6).

        Raises `JudgeAgain` where the fingerprint differs; `YesGone` where the set no longer stands: what was asked
        together with it is superseded then.
        """
        if not leave.approval_id:
            return
        approval = self._writer.approvals[leave.approval_id]
        if fingerprint(self._covered(making, approval.rule)) != approval.fingerprint:
            raise JudgeAgain(making)
        tenant, task_id = self._writer.turn.tenant, making.task.started.task_id
        standing = await self._writer.until_there(lambda: self._teaching.standing(tenant, [task_id]), approval.id)
        if task_id not in standing:
            await self._writer.submit(SupersedeQuestions((approval.id,)))
            raise YesGone

    def _last_asked(self, making: Making) -> ApprovalAsked | None:
        asked = self._writer.past.call(making.task.address, making.call.invocation).asked
        return asked[-1] if asked else None

    async def _settled(self, approval_id: str) -> Approval:
        writer = self._writer
        while (approval := writer.approvals.get(approval_id)) is None or approval.state is ApprovalState.PENDING:
            await writer.rest(FOR_A_PERSON, approval_id)
        return approval

    def _copy(self, making: Making, approval: Approval) -> None:
        past = self._writer.past.call(making.task.address, making.call.invocation)
        before = past.recorded.get(approval.id)
        if before is None or before.state is not approval.state:
            self._writer.record(making.task.address, ApprovalRecorded(approval.id, approval.state, approval.answers))

    def _question(self, making: Making, ruling: Ruling, instead_of: str) -> tuple[Approval, ApprovalAsked]:
        turn, started, call = self._writer.turn, making.task.started, making.call
        assert ruling.rule is not None
        rule = replace(ruling.rule, put_to=resolve_put_to(ruling.rule, turn.work_for, turn.given_by))
        covered = self._covered(making, rule)
        asked = ApprovalAsked(
            approval_id=uuid.uuid4().hex,
            invocation=call.invocation,
            tool=call.tool,
            input_json=call.input_json,
            fingerprint=fingerprint(covered),
            effects=covered.effects,
            declaration_hash=covered.declaration_hash,
            rule=rule,
            asked_by_rule=ruling.asked_by,
            agent_version=covered.agent_version,
            skill_version=covered.skill_version,
            instruction_set=covered.instruction_set,
            block_sha256=covered.block_sha256,
            supersedes=instead_of,
        )
        approval = Approval(
            id=asked.approval_id,
            tenant=turn.tenant,
            turn_id=turn.root_id,
            asking_turn_id=turn.id,
            task_id=started.task_id,
            step=making.task.step,
            conversation_id=turn.conversation_id,
            agent=turn.agent,
            path=path_of(making.address),
            invocation=call.invocation,
            address=making.address,
            tool=call.tool,
            tool_description=making.shown.declaration.description,
            input_json=call.input_json,
            schema_json=making.shown.declaration.input_schema_json,
            effects=asked.effects,
            fingerprint=asked.fingerprint,
            instruction_set=asked.instruction_set,
            said=making.said,
            work_for=turn.work_for,
            given_by=turn.given_by,
            scope=turn.scope,
            put_to=rule.put_to,
            approvals_needed=rule.approvals_needed,
            # Set as it is written, with when it expires.
            ask_time=datetime.now(UTC),
            supersedes=instead_of,
            asked_by_rule=asked.asked_by_rule,
            rule=rule,
            declaration_hash=asked.declaration_hash,
            agent_version=asked.agent_version,
            skill=started.skill,
            skill_version=asked.skill_version,
            block_sha256=asked.block_sha256,
        )
        return approval, asked

    def _covered(self, making: Making, rule: ApprovalRule) -> FingerprintFields:
        """Return what a yes to this call covers, as it stands now (R3.5)."""
        task = making.task
        return FingerprintFields(
            turn_id=self._writer.turn.id,
            address=making.address,
            tool=making.call.tool,
            declaration_hash=making.shown.declaration.hash,
            input_json=making.call.input_json,
            effects=self._toolbox.effects_now(self._writer.turn.tenant, making.shown),
            rule=rule,
            agent_version=task.started.agent_version,
            skill_version=task.started.skill_version,
            instruction_set=task.block.instruction_set,
            block_sha256=task.block.sha256,
        )
