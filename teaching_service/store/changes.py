"""What people and models say about agents: each change one transaction.

Loads the rows that a rule looks at, has the domain decide, writes what came of it and what watchers are told, and rings
the bell once it is on disk. A request that comes again is answered by what came of it the first time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import structlog
from sqlalchemy import Connection, insert, select, update

from service_kit.database import Database
from service_kit.feeds import FeedEntry, append
from service_kit.idempotency import Repeatable, find_request, record_request
from service_kit.statements import alone, clock
from teaching_service.domain import corrections, instructions, sets
from teaching_service.domain.access import Account, Viewer, admit_corrector, refuse_agents
from teaching_service.domain.corrections import Correction, CorrectionDraft
from teaching_service.domain.instructions import Instruction, InstructionDraft
from teaching_service.domain.problems import CorrectionGone, InvalidFields, NoSuchThing
from teaching_service.domain.sets import Activation, Changed, InstructionSet, Policy, Review
from teaching_service.domain.tasks import Task
from teaching_service.store import loading, tables
from teaching_service.store.loading import TEACHING
from teaching_service.store.rows import correction_row, instruction_row, set_row

log = structlog.get_logger()
T = TypeVar("T")


class Changes:
    """Writes corrections, instructions and sets. `ring` is told the tenant after each commit."""

    def __init__(self, database: Database, policy: Policy, ring: Callable[[str], None]) -> None:
        self._database = database
        self._policy = policy
        self._ring = ring

    # Corrections

    async def correct_work(
        self, viewer: Viewer, by: Account, task_id: str, draft: CorrectionDraft, again: Repeatable | None
    ) -> Correction:
        """Write a correction of a task (T1)."""
        refuse_agents(by)

        def correct(change: _Change) -> Correction:
            if change.before is not None:
                return _correction(change.connection, viewer, change.before)
            task = _task(change.connection, viewer, task_id)
            put_to = _put_to(change.connection, task)
            admit_corrector(by, work_for=task.work_for.id, given_by=task.given_by.id, put_to=put_to)
            _check_despite(task, draft)
            correction = Correction(
                id=uuid.uuid4().hex,
                tenant=viewer.tenant,
                task_id=task.id,
                agent=task.agent,
                skill=task.skill,
                says=draft,
                by=by.principal,
                time=change.now,
            )
            change.connection.execute(insert(tables.corrections), correction_row(correction))
            change.tell("work_corrected", correction.id)
            change.came_of_it(correction.id)
            return correction

        return await self._change(viewer.tenant, correct, again)

    async def withdraw(self, viewer: Viewer, by: Account, correction_id: str, why: str) -> Correction:
        """Take a correction back."""

        def withdraw(change: _Change) -> Correction:
            correction = _correction(change.connection, viewer, correction_id)
            withdrawn = corrections.withdrawn(correction, by, why, change.now)
            table = tables.corrections
            own = (table.c.tenant == viewer.tenant, table.c.id == correction_id)
            change.connection.execute(update(table).where(*own).values(correction_row(withdrawn)))
            change.tell("work_corrected", correction_id)
            return withdrawn

        return await self._change(viewer.tenant, withdraw)

    # Instructions that stay proposals

    async def propose(
        self, viewer: Viewer, by: Account, draft: InstructionDraft, proposed_by_agent: str, again: Repeatable | None
    ) -> Instruction:
        """Write a proposal (T2.1)."""

        def propose(change: _Change) -> Instruction:
            if change.before is not None:
                return _instruction(change.connection, viewer, change.before)
            _check_sources(change.connection, viewer, draft)
            proposal = instructions.proposed(uuid.uuid4().hex, viewer.tenant, draft, by, proposed_by_agent, change.now)
            change.connection.execute(insert(tables.instructions), instruction_row(proposal))
            rows = [
                {"tenant": viewer.tenant, "instruction_id": proposal.id, "correction_id": one}
                for one in draft.from_corrections
            ]
            if rows:
                change.connection.execute(insert(tables.sources), rows)
            change.tell("instruction_proposed", proposal.id)
            change.came_of_it(proposal.id)
            return proposal

        return await self._change(viewer.tenant, propose, again)

    async def revise(self, viewer: Viewer, by: Account, instruction_id: str, guidance: str, why: str) -> Instruction:
        """Change a proposal's words."""

        def revise(change: _Change) -> Instruction:
            proposal = _instruction(change.connection, viewer, instruction_id)
            return change.proposal(instructions.revised(proposal, by, guidance, why))

        return await self._change(viewer.tenant, revise)

    async def reject(self, viewer: Viewer, by: Account, instruction_id: str, why: str) -> Instruction:
        """Turn a proposal down."""

        def reject(change: _Change) -> Instruction:
            proposal = _instruction(change.connection, viewer, instruction_id)
            return change.proposal(instructions.rejected(proposal, by, why))

        return await self._change(viewer.tenant, reject)

    # Sets

    async def activate(
        self,
        viewer: Viewer,
        by: Account,
        what: Activation,
        why: str,
        expected_set: int | None,
        again: Repeatable | None,
    ) -> InstructionSet:
        """Make a proposal active: the agent's next set."""

        def activate(change: _Change) -> InstructionSet:
            proposal = _instruction(change.connection, viewer, what.instruction_id)
            agent = proposal.says.agent
            if change.before is not None:
                return _set(change.connection, viewer.tenant, agent, change.before)
            taught = loading.taught(change.connection, viewer.tenant, agent, [proposal.id, *what.replaces])
            review = Review(by, why, change.now, expected_set)
            return change.next_set(sets.activate(taught, review, what, self._policy))

        return await self._change(viewer.tenant, activate, again)

    async def retire(
        self, viewer: Viewer, by: Account, instruction_id: str, why: str, expected_set: int | None,
        again: Repeatable | None,
    ) -> InstructionSet:  # fmt: skip
        """Take an active instruction out of use: the agent's next set."""

        def retire(change: _Change) -> InstructionSet:
            agent = _instruction(change.connection, viewer, instruction_id).says.agent
            if change.before is not None:
                return _set(change.connection, viewer.tenant, agent, change.before)
            taught = loading.taught(change.connection, viewer.tenant, agent, [instruction_id])
            review = Review(by, why, change.now, expected_set)
            return change.next_set(sets.retire(taught, review, instruction_id))

        return await self._change(viewer.tenant, retire, again)

    async def roll_back(
        self, viewer: Viewer, by: Account, agent: str, to_set: int, why: str, expected_set: int | None,
        again: Repeatable | None, *, skill: str, without_erased: bool,
    ) -> InstructionSet:  # fmt: skip
        """Go back to an earlier set: the agent's next one."""

        def roll_back(change: _Change) -> InstructionSet:
            if change.before is not None:
                return _set(change.connection, viewer.tenant, agent, change.before)
            target = loading.set_numbered(change.connection, viewer.tenant, agent, to_set)
            also = target.members if target else ()
            taught = loading.taught(change.connection, viewer.tenant, agent, also)
            changed = sets.roll_back(
                taught,
                Review(by, why, change.now, expected_set),
                to_set,
                target,
                self._policy.limits,
                skill=skill,
                without_erased=without_erased,
            )
            return change.next_set(changed)

        return await self._change(viewer.tenant, roll_back, again)

    async def _change(self, tenant: str, change: Callable[[_Change], T], again: Repeatable | None = None) -> T:
        """Run a change in a transaction of its own; then log it and ring."""

        def transact(connection: Connection) -> tuple[T, list[FeedEntry]]:
            # One change of a tenant at a time: each is decided by all that those before it made.
            alone(connection, TEACHING, tenant)
            before = None if again is None else find_request(connection, tables.requests, again.key, again.digest)
            changing = _Change(connection, tenant, clock(connection), again, before)
            return change(changing), changing.told

        came_of_it, told = await self._database.write(transact)
        for entry in told:
            log.info(entry.kind.replace("_", "."), tenant=tenant, subject=entry.subject, detail=entry.detail)
        self._ring(tenant)
        return came_of_it


class _Change:
    """One transaction that changes something."""

    def __init__(
        self, connection: Connection, tenant: str, now: datetime, again: Repeatable | None, before: str | None
    ) -> None:
        self.connection = connection
        self.now = now
        # The key of what came of this request before. None: it is new.
        self.before = before
        self.told: list[FeedEntry] = []
        self._tenant = tenant
        self._again = again

    def tell(self, kind: str, subject: str, detail: str = "") -> None:
        """Tell watchers."""
        entry = FeedEntry(self._tenant, kind, subject, self.now, detail)
        append(self.connection, tables.teaching_feed, [entry])
        self.told.append(entry)

    def came_of_it(self, key: str) -> None:
        """Remember what came of the request."""
        if self._again is not None:
            again = self._again
            record_request(self.connection, tables.requests, again.key, again.digest, key, self.now)

    def proposal(self, changed: Instruction) -> Instruction:
        """Write a proposal that was revised or turned down."""
        self._write([changed])
        self.tell("instruction_proposed", changed.id)
        return changed

    def next_set(self, changed: Changed) -> InstructionSet:
        """Write an agent's next set, and then the instructions that it changes: the database looks for it."""
        self.connection.execute(insert(tables.instruction_sets), set_row(changed.made))
        self._write(changed.instructions)
        self.tell("instructions_changed", changed.made.agent, str(changed.made.number))
        self.came_of_it(str(changed.made.number))
        return changed.made

    def _write(self, changed: Sequence[Instruction]) -> None:
        table = tables.instructions
        for one in changed:
            own = (table.c.tenant == one.tenant, table.c.id == one.id)
            self.connection.execute(update(table).where(*own).values(instruction_row(one)))


def _task(connection: Connection, viewer: Viewer, task_id: str) -> Task:
    found = loading.seen_task(connection, viewer, task_id)
    if found is None:
        raise NoSuchThing("task", task_id)
    return found


def _put_to(connection: Connection, task: Task) -> frozenset[str]:
    table = tables.put_to
    wanted = select(table.c.who).where(table.c.tenant == task.tenant, table.c.task_id == task.id)
    return frozenset(connection.execute(wanted).scalars())


def _correction(connection: Connection, viewer: Viewer, correction_id: str) -> Correction:
    found = loading.seen_corrections(connection, viewer, [correction_id])
    if not found:
        raise NoSuchThing("correction", correction_id)
    return found[0]


def _instruction(connection: Connection, viewer: Viewer, instruction_id: str) -> Instruction:
    found = loading.seen_instructions(connection, viewer, [instruction_id])
    if not found:
        raise NoSuchThing("instruction", instruction_id)
    return found[0]


def _set(connection: Connection, tenant: str, agent: str, number: str) -> InstructionSet:
    found = loading.set_numbered(connection, tenant, agent, int(number))
    assert found is not None, f"set {number} of {agent}"
    return found


def _check_despite(task: Task, draft: CorrectionDraft) -> None:
    """`despite` must name an instruction that the task was sent (T6.3)."""
    despite = draft.despite_instruction_id
    if despite and not any(despite in block.instruction_ids for block in task.sent):
        raise InvalidFields([("correction.despite_instruction_id", "The task was not sent this instruction.")])


def _check_sources(connection: Connection, viewer: Viewer, draft: InstructionDraft) -> None:
    """What a proposal is drawn from must be there to be read, stand, and be of the same agent."""
    found = {one.id: one for one in loading.seen_corrections(connection, viewer, draft.from_corrections)}
    for place, one in enumerate(draft.from_corrections):
        if one not in found:
            raise NoSuchThing("correction", one)
        if found[one].agent != draft.agent:
            raise InvalidFields([(f"draft.from_corrections[{place}]", "This is of another agent's work.")])
        if not found[one].stands:
            raise CorrectionGone(one)
