"""Tasks and their receipts: what the runtime says of the work that it does (T6.1). Each change one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert

from service_kit.database import Database
from service_kit.statements import alone, clock, upsert
from teaching_service.domain.block import Block, Limits, applying, block_of
from teaching_service.domain.problems import NoSuchThing
from teaching_service.domain.tasks import Proposal, Task, check_same, check_take_up
from teaching_service.store import loading, tables
from teaching_service.store.loading import TEACHING
from teaching_service.store.rows import task_row


class TaskChanges:
    """Writes tasks."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self._database = database
        self._limits = limits

    async def begin(self, task: Task) -> Block:
        """Decide, record and return what a task is sent. The same task again: the same block, whatever was taught.

        Raises `IdReused` where the id is another piece of work's.
        """

        def begin(connection: Connection) -> Block:
            alone(connection, TEACHING, task.tenant, shared=True)
            begun = loading.task(connection, task.tenant, task.id)
            if begun is not None:
                check_same(begun, task)
                return begun.sent[0]
            connection.execute(insert(tables.tasks), task_row(task))
            return self._send(connection, task, 0)

        return await self._database.write(begin)

    async def take_up(self, tenant: str, task_id: str, number: int) -> Block:
        """Record and return what a task is sent from now on. The same number: the same block."""

        def take_up(connection: Connection) -> Block:
            alone(connection, TEACHING, tenant, shared=True)
            task = loading.task(connection, tenant, task_id)
            if task is None:
                raise NoSuchThing("task", task_id)
            if not check_take_up(task, number):
                return task.sent[number]
            return self._send(connection, task, number)

        return await self._database.write(take_up)

    async def record_proposals(self, tenant: str, proposals: Sequence[Proposal]) -> None:
        """Write down to whom proposals were put. The same again changes nothing."""
        rows = [
            {"tenant": tenant, "task_id": one.task_id, "proposal_id": one.proposal_id, "who": who}
            for one in proposals
            for who in one.put_to
        ]

        def record(connection: Connection) -> None:
            connection.execute(upsert(connection, tables.put_to).on_conflict_do_nothing(), rows)

        if rows:
            await self._database.write(record)

    def _send(self, connection: Connection, task: Task, take_up: int) -> Block:
        taught = loading.taught(connection, task.tenant, task.agent)
        apply = applying(taught.active, task.work)
        block = block_of(task.agent, taught.newest.number, taught.newest.hash, apply, self._limits)
        receipt = {
            "tenant": task.tenant,
            "task_id": task.id,
            "take_up": take_up,
            "set_number": block.set_number,
            "set_hash": block.set_hash,
            "instruction_ids": block.instruction_ids,
            "sha256": block.sha256,
            "left_out": block.left_out,
            "render_version": block.render_version,
            "time": clock(connection),
        }
        connection.execute(insert(tables.receipts), receipt)
        rows = [{"tenant": task.tenant, "instruction_id": one, "task_id": task.id} for one in block.instruction_ids]
        if rows:
            connection.execute(upsert(connection, tables.sent).on_conflict_do_nothing(), rows)
        return block
