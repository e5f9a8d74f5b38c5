"""What changes and lookups both load, within the transaction that they are given.

`seen_…` loads what a viewer may see of it, and passes over the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import Connection, Select, or_, select

from teaching_service.domain.access import Viewer
from teaching_service.domain.block import Block, first_line, render
from teaching_service.domain.corrections import Correction
from teaching_service.domain.instructions import Instruction, InstructionState
from teaching_service.domain.sets import InstructionSet, Taught, set_zero
from teaching_service.domain.tasks import Task
from teaching_service.store import tables
from teaching_service.store.rows import correction_of, instruction_of, set_of, task_of
from teaching_service.store.seeing import may_see_correction, may_see_instruction, may_see_task

# The name by which what is decided about a tenant's agents, and by what they are taught, waits for each other.
TEACHING = "teaching"


def newest_set(connection: Connection, tenant: str, agent: str) -> InstructionSet:
    """Return an agent's newest set; set 0 where nobody taught it anything."""
    table = tables.instruction_sets
    wanted = select(table).where(table.c.tenant == tenant, table.c.agent == agent)
    row = connection.execute(wanted.order_by(table.c.number.desc()).limit(1)).mappings().first()
    return set_zero(tenant, agent) if row is None else set_of(row)


def set_numbered(connection: Connection, tenant: str, agent: str, number: int) -> InstructionSet | None:
    """Return one of an agent's sets. There is always a set 0."""
    if number == 0:
        return set_zero(tenant, agent)
    table = tables.instruction_sets
    wanted = select(table).where(table.c.tenant == tenant, table.c.agent == agent, table.c.number == number)
    row = connection.execute(wanted).mappings().first()
    return None if row is None else set_of(row)


def seen_task(connection: Connection, viewer: Viewer, task_id: str) -> Task | None:
    """Return a task with all that it was sent."""
    found = tasks(connection, select(tables.tasks).where(tables.tasks.c.id == task_id, may_see_task(viewer)))
    return found[0] if found else None


def seen_corrections(connection: Connection, viewer: Viewer, ids: Collection[str]) -> list[Correction]:
    """Return those of these corrections, as they stand."""
    if not ids:
        return []
    table = tables.corrections
    wanted = select(table).where(table.c.id.in_(ids), may_see_correction(viewer))
    return [correction_of(row) for row in connection.execute(wanted).mappings()]


def seen_instructions(connection: Connection, viewer: Viewer, ids: Collection[str]) -> list[Instruction]:
    """Return those of these instructions, as they stand."""
    if not ids:
        return []
    table = tables.instructions
    return instructions(connection, select(table).where(table.c.id.in_(ids), may_see_instruction(viewer)))


def instructions(connection: Connection, wanted: Select[tuple[object, ...]]) -> list[Instruction]:
    """Return the instructions that a statement selects."""
    return [instruction_of(row) for row in connection.execute(wanted).mappings()]


def taught(connection: Connection, tenant: str, agent: str, also: Collection[str] = ()) -> Taught:
    """Return what an agent is taught now, with these of its instructions besides those that are active."""
    table = tables.instructions
    wanted = select(table).where(
        table.c.tenant == tenant,
        table.c.agent == agent,
        or_(table.c.state == InstructionState.ACTIVE, table.c.id.in_(also)),
    )
    found = instructions(connection, wanted)
    return Taught(newest_set(connection, tenant, agent), {one.id: one for one in found})


def task(connection: Connection, tenant: str, task_id: str) -> Task | None:
    """Return a task with all that it was sent."""
    table = tables.tasks
    wanted = select(table).where(table.c.tenant == tenant, table.c.id == task_id)
    found = tasks(connection, wanted)
    return found[0] if found else None


def tasks(connection: Connection, wanted: Select[tuple[object, ...]]) -> list[Task]:
    """Return the tasks that a statement selects, all of one tenant, each with all that it was sent."""
    found = [task_of(row) for row in connection.execute(wanted).mappings()]
    return with_receipts(connection, found)


def with_receipts(connection: Connection, found: Sequence[Task]) -> list[Task]:
    """Return tasks with what each was sent, rendered from the instructions' words."""
    if not found:
        return []
    receipts, words = tables.receipts, tables.instructions
    tenant = found[0].tenant
    of_them = select(receipts).where(receipts.c.tenant == tenant, receipts.c.task_id.in_([one.id for one in found]))
    rows = connection.execute(of_them.order_by(receipts.c.task_id, receipts.c.take_up)).mappings().all()
    ids = {one for row in rows for one in row["instruction_ids"]}
    told = instructions(connection, select(words).where(words.c.tenant == tenant, words.c.id.in_(ids)))
    by_id = {one.id: one for one in told}
    agents = {one.id: one.agent for one in found}
    sent: dict[str, list[Block]] = {one.id: [] for one in found}
    for row in rows:
        ids_sent = row["instruction_ids"]
        sent[row["task_id"]].append(
            Block(
                set_number=row["set_number"],
                set_hash=row["set_hash"],
                instruction_ids=ids_sent,
                text=render([by_id[one] for one in ids_sent]),
                sha256=row["sha256"],
                left_out=row["left_out"],
                words=first_line(agents[row["task_id"]], row["set_number"], len(ids_sent), row["left_out"]),
                render_version=row["render_version"],
            )
        )
    return [replace(one, sent=tuple(sent[one.id])) for one in found]
