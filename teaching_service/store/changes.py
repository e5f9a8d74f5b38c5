"""What people and models say about agents: each change one transaction.

Loads the rows that a rule looks at, has the domain decide, writes what came of it and what watchers are told, and rings
the bell once it is on disk. A request that comes again is answered by what came of it the first time.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import structlog
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service_kit.database import Database
from service_kit.feeds import FeedEntry, append
from service_kit.idempotency import Repeatable, find_request, record_request
from teaching_service.domain import corrections, instructions, sets
from teaching_service.domain.access import Account, Viewer, admit_corrector, refuse_agents
from teaching_service.domain.corrections import Correction, CorrectionDraft
from teaching_service.domain.instructions import Instruction, InstructionDraft
from teaching_service.domain.problems import CorrectionGone, InvalidFields, NoSuchThing
from teaching_service.domain.sets import Activation, Changed, InstructionSet, Policy, Review
from teaching_service.domain.tasks import Task
from teaching_service.store import loading, tables
from teaching_service.store.rows import correction_row, instruction_row, set_row

log = structlog.get_logger()


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
        async with self._change(viewer.tenant, again) as change:
            if change.before is not None:
                return await _correction(change.connection, viewer, change.before)
            task = await _task(change.connection, viewer, task_id)
            put_to = await _put_to(change.connection, task)
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
            await change.connection.execute(insert(tables.corrections), correction_row(correction))
            await change.tell("work_corrected", correction.id)
            await change.came_of_it(correction.id)
        return correction

    async def withdraw(self, viewer: Viewer, by: Account, correction_id: str, why: str) -> Correction:
        """Take a correction back."""
        async with self._change(viewer.tenant) as change:
            correction = await _correction(change.connection, viewer, correction_id)
            withdrawn = corrections.withdrawn(correction, by, why, change.now)
            table = tables.corrections
            own = (table.c.tenant == viewer.tenant, table.c.id == correction_id)
            await change.connection.execute(update(table).where(*own).values(correction_row(withdrawn)))
            await change.tell("work_corrected", correction_id)
        return withdrawn

    # Instructions that stay proposals

    async def propose(
        self, viewer: Viewer, by: Account, draft: InstructionDraft, proposed_by_agent: str, again: Repeatable | None
    ) -> Instruction:
        """Write a proposal (T2.1)."""
        async with self._change(viewer.tenant, again) as change:
            if change.before is not None:
                return await _instruction(change.connection, viewer, change.before)
            await _check_sources(change.connection, viewer, draft)
            proposal = instructions.proposed(uuid.uuid4().hex, viewer.tenant, draft, by, proposed_by_agent, change.now)
            await change.connection.execute(insert(tables.instructions), instruction_row(proposal))
            rows = [
                {"tenant": viewer.tenant, "instruction_id": proposal.id, "correction_id": one}
                for one in draft.from_corrections
            ]
            if rows:
                await change.connection.execute(insert(tables.sources), rows)
            await change.tell("instruction_proposed", proposal.id)
            await change.came_of_it(proposal.id)
        return proposal

    async def revise(self, viewer: Viewer, by: Account, instruction_id: str, guidance: str, why: str) -> Instruction:
        """Change a proposal's words."""
        async with self._change(viewer.tenant) as change:
            proposal = await _instruction(change.connection, viewer, instruction_id)
            return await change.proposal(instructions.revised(proposal, by, guidance, why))

    async def reject(self, viewer: Viewer, by: Account, instruction_id: str, why: str) -> Instruction:
        """Turn a proposal down."""
        async with self._change(viewer.tenant) as change:
            proposal = await _instruction(change.connection, viewer, instruction_id)
            return await change.proposal(instructions.rejected(proposal, by, why))

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
        async with self._change(viewer.tenant, again) as change:
            proposal = await _instruction(change.connection, viewer, what.instruction_id)
            agent = proposal.says.agent
            if change.before is not None:
                return await _set(change.connection, viewer.tenant, agent, change.before)
            taught = await loading.taught(change.connection, viewer.tenant, agent, [proposal.id, *what.replaces])
            review = Review(by, why, change.now, expected_set)
            return await change.next_set(sets.activate(taught, review, what, self._policy))

    async def retire(
        self, viewer: Viewer, by: Account, instruction_id: str, why: str, expected_set: int | None,
        again: Repeatable | None,
    ) -> InstructionSet:  # fmt: skip
        """Take an active instruction out of use: the agent's next set."""
        async with self._change(viewer.tenant, again) as change:
            agent = (await _instruction(change.connection, viewer, instruction_id)).says.agent
            if change.before is not None:
                return await _set(change.connection, viewer.tenant, agent, change.before)
            taught = await loading.taught(change.connection, viewer.tenant, agent, [instruction_id])
            review = Review(by, why, change.now, expected_set)
            return await change.next_set(sets.retire(taught, review, instruction_id))

    async def roll_back(
        self, viewer: Viewer, by: Account, agent: str, to_set: int, why: str, expected_set: int | None,
        again: Repeatable | None, *, skill: str, without_erased: bool,
    ) -> InstructionSet:  # fmt: skip
        """Go back to an earlier set: the agent's next one."""
        async with self._change(viewer.tenant, again) as change:
            if change.before is not None:
                return await _set(change.connection, viewer.tenant, agent, change.before)
            target = await loading.set_numbered(change.connection, viewer.tenant, agent, to_set)
            also = target.members if target else ()
            taught = await loading.taught(change.connection, viewer.tenant, agent, also)
            changed = sets.roll_back(
                taught,
                Review(by, why, change.now, expected_set),
                to_set,
                target,
                self._policy.limits,
                skill=skill,
                without_erased=without_erased,
            )
            return await change.next_set(changed)

    @asynccontextmanager
    async def _change(self, tenant: str, again: Repeatable | None = None) -> AsyncIterator[_Change]:
        async with self._database.write() as connection:
            before = None
            if again is not None:
                before = await find_request(connection, tables.requests, again.key, again.digest)
            change = _Change(connection, tenant, datetime.now(UTC), again, before)
            yield change
        for entry in change.told:
            log.info(entry.kind.replace("_", "."), tenant=tenant, subject=entry.subject, detail=entry.detail)
        self._ring(tenant)


class _Change:
    """One transaction that changes something."""

    def __init__(
        self, connection: AsyncConnection, tenant: str, now: datetime, again: Repeatable | None, before: str | None
    ) -> None:
        self.connection = connection
        self.now = now
        # The key of what came of this request before. None: it is new.
        self.before = before
        self.told: list[FeedEntry] = []
        self._tenant = tenant
        self._again = again

    async def tell(self, kind: str, subject: str, detail: str = "") -> None:
        """Tell watchers."""
        entry = FeedEntry(self._tenant, kind, subject, self.now, detail)
        await append(self.connection, tables.teaching_feed, [entry])
        self.told.append(entry)

    async def came_of_it(self, key: str) -> None:
        """Remember what came of the request."""
        if self._again is not None:
            again = self._again
            await record_request(self.connection, tables.requests, again.key, again.digest, key, self.now)

    async def proposal(self, changed: Instruction) -> Instruction:
        """Write a proposal that was revised or turned down."""
        await self._write([changed])
        await self.tell("instruction_proposed", changed.id)
        return changed

    async def next_set(self, changed: Changed) -> InstructionSet:
        """Write an agent's next set, and then the instructions that it changes: the database looks for it."""
        await self.connection.execute(insert(tables.instruction_sets), set_row(changed.made))
        await self._write(changed.instructions)
        await self.tell("instructions_changed", changed.made.agent, str(changed.made.number))
        await self.came_of_it(str(changed.made.number))
        return changed.made

    async def _write(self, changed: Sequence[Instruction]) -> None:
        table = tables.instructions
        for one in changed:
            own = (table.c.tenant == one.tenant, table.c.id == one.id)
            await self.connection.execute(update(table).where(*own).values(instruction_row(one)))


async def _task(connection: AsyncConnection, viewer: Viewer, task_id: str) -> Task:
    found = await loading.seen_task(connection, viewer, task_id)
    if found is None:
        raise NoSuchThing("task", task_id)
    return found


async def _put_to(connection: AsyncConnection, task: Task) -> frozenset[str]:
    table = tables.put_to
    wanted = select(table.c.who).where(table.c.tenant == task.tenant, table.c.task_id == task.id)
    return frozenset((await connection.execute(wanted)).scalars())


async def _correction(connection: AsyncConnection, viewer: Viewer, correction_id: str) -> Correction:
    found = await loading.seen_corrections(connection, viewer, [correction_id])
    if not found:
        raise NoSuchThing("correction", correction_id)
    return found[0]


async def _instruction(connection: AsyncConnection, viewer: Viewer, instruction_id: str) -> Instruction:
    found = await loading.seen_instructions(connection, viewer, [instruction_id])
    if not found:
        raise NoSuchThing("instruction", instruction_id)
    return found[0]


async def _set(connection: AsyncConnection, tenant: str, agent: str, number: str) -> InstructionSet:
    found = await loading.set_numbered(connection, tenant, agent, int(number))
    assert found is not None, f"set {number} of {agent}"
    return found


def _check_despite(task: Task, draft: CorrectionDraft) -> None:
    """`despite` must name an instruction that the task was sent (T6.3)."""
    despite = draft.despite_instruction_id
    if despite and not any(despite in block.instruction_ids for block in task.sent):
        raise InvalidFields([("correction.despite_instruction_id", "The task was not sent this instruction.")])


async def _check_sources(connection: AsyncConnection, viewer: Viewer, draft: InstructionDraft) -> None:
    """What a proposal is drawn from must be there to be read, stand, and be of the same agent."""
    found = {one.id: one for one in await loading.seen_corrections(connection, viewer, draft.from_corrections)}
    for place, one in enumerate(draft.from_corrections):
        if one not in found:
            raise NoSuchThing("correction", one)
        if found[one].agent != draft.agent:
            raise InvalidFields([(f"draft.from_corrections[{place}]", "This is of another agent's work.")])
        if not found[one].stands:
            raise CorrectionGone(one)
