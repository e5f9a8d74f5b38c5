"""Whether an instruction helped, counted over the work that a viewer may read (T6.3): one statement, no work is loaded.

Work is from before where it began under an older set than the one that made the instruction active first, and from
since where it was sent it. Work that took it up under way is both. So each correction counts on the side on which its
work stood as it was written.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import ColumnElement, Connection, Select, Text, distinct, exists, func, select, type_coerce

from teaching_service.domain.access import Viewer
from teaching_service.domain.instructions import ForWhat, Instruction
from teaching_service.domain.lookups import Effect
from teaching_service.store import tables
from teaching_service.store.seeing import may_see_task


def effect_of(connection: Connection, viewer: Viewer, instruction: Instruction) -> Effect:
    """Count how work went that was sent an instruction, and how such work went before."""
    work = _work(viewer)
    corrections = _corrections(func.count(), viewer, instruction)
    corrected = _corrections(func.count(distinct(tables.tasks.c.made)), viewer, instruction)
    with_it, before = _sent_it_by_then(instruction), tuple(_before(instruction))
    counts = {
        "drawn_from": corrections.where(_is_source(instruction)),
        "work_since": work.where(_was_sent(instruction)),
        "corrected_since": corrected.where(with_it),
        "not_followed": corrections.where(tables.corrections.c.despite_instruction_id == instruction.id),
        "work_before": work.where(*before),
        "corrected_before": corrected.where(*before, ~with_it),
    }
    row = connection.execute(select(*(count.scalar_subquery().label(name) for name, count in counts.items()))).one()
    return Effect(**row._mapping)


def _work(viewer: Viewer) -> Select[int]:
    """Count the work that the viewer may read."""
    return select(func.count()).select_from(tables.tasks).where(may_see_task(viewer))


def _corrections(count: ColumnElement[int], viewer: Viewer, instruction: Instruction) -> Select[int]:
    """Count over the corrections of such work by the instruction's agent: without withdrawn ones, with erased ones."""
    table, tasks = tables.corrections, tables.tasks
    of_work = (tasks.c.tenant == table.c.tenant) & (tasks.c.id == table.c.task_id)
    return (
        select(count)
        .select_from(table.join(tasks, of_work))
        .where(table.c.tenant == viewer.tenant, table.c.agent == instruction.says.agent, may_see_task(viewer))
        .where(table.c.withdraw_time.is_(None))
    )


def _is_source(instruction: Instruction) -> ColumnElement[bool]:
    """Say which corrections: those that it was drawn from."""
    sources = tables.sources
    drawn_from = select(sources.c.correction_id).where(
        sources.c.tenant == instruction.tenant, sources.c.instruction_id == instruction.id
    )
    return tables.corrections.c.id.in_(drawn_from)


def _was_sent(instruction: Instruction) -> ColumnElement[bool]:
    """Say which work: what was sent it, as it began or at a take-up."""
    sent = tables.sent
    task_ids = select(sent.c.task_id).where(
        sent.c.tenant == instruction.tenant, sent.c.instruction_id == instruction.id
    )
    return tables.tasks.c.id.in_(task_ids)


def _sent_it_by_then(instruction: Instruction) -> ColumnElement[bool]:
    """Say which corrections: those of work that had been sent it as they were written."""
    receipts, corrections = tables.receipts, tables.corrections
    return exists().where(
        receipts.c.tenant == instruction.tenant,
        receipts.c.task_id == corrections.c.task_id,
        receipts.c.time <= corrections.c.time,
        type_coerce(receipts.c.instruction_ids, Text).contains(f'"{instruction.id}"'),
    )


def _before(instruction: Instruction) -> Iterator[ColumnElement[bool]]:
    """Say which work: what it would have been for, begun before it was active first; all so far, if it never was."""
    tasks, receipts, says = tables.tasks, tables.receipts, instruction.says
    yield tasks.c.agent == says.agent
    match says.for_what:
        case ForWhat.PERSON:
            yield tasks.c.work_for_id == says.for_person
        case ForWhat.SCOPE:
            yield tasks.c.scope == says.on_scope
        case ForWhat.SKILL:
            yield tasks.c.skill == says.skill
    if instruction.first_set:
        yield exists().where(
            receipts.c.tenant == instruction.tenant,
            receipts.c.task_id == tasks.c.id,
            receipts.c.take_up == 0,
            receipts.c.set_number < instruction.first_set,
        )
