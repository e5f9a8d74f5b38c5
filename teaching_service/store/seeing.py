"""What an account may see, as part of each query (`runtime.md` R10): so a page is full whatever is hidden from them."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, exists, or_, select

from teaching_service.domain.access import Viewer
from teaching_service.store import tables


def may_see_task(viewer: Viewer) -> ColumnElement[bool]:
    """Say which tasks: for them, given by them, with something put to them, or all."""
    table, put = tables.tasks, tables.put_to
    if viewer.sees_all:
        return table.c.tenant == viewer.tenant
    put_to_them = exists().where(
        put.c.tenant == viewer.tenant, put.c.task_id == table.c.id, put.c.who.in_(viewer.put_to)
    )
    theirs = or_(table.c.work_for_id == viewer.account, table.c.given_by_id == viewer.account, put_to_them)
    return and_(table.c.tenant == viewer.tenant, theirs)


def may_see_correction(viewer: Viewer) -> ColumnElement[bool]:
    """Say which corrections: of work that they may read, or their own."""
    table, tasks = tables.corrections, tables.tasks
    if viewer.sees_all:
        return table.c.tenant == viewer.tenant
    of_work = select(tasks.c.id).where(may_see_task(viewer), tasks.c.id == table.c.task_id)
    return and_(table.c.tenant == viewer.tenant, or_(table.c.by_id == viewer.account, exists(of_work)))


def may_see_instruction(viewer: Viewer) -> ColumnElement[bool]:
    """Say which instructions: all but those for another person alone."""
    table = tables.instructions
    if viewer.sees_all:
        return table.c.tenant == viewer.tenant
    return and_(table.c.tenant == viewer.tenant, table.c.for_person.in_(["", viewer.account]))
