"""Reads all that people taught, and says what of it does not hold: `check` (docs/running.md).

Each agent's instructions and sets, and each task's receipts, are read in one snapshot, so that a database in use never
looks wrong. The rules are `domain/soundness`; that what a row names is there is asked here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, String, Table, cast, exists, literal, select, tuple_

from service_kit.checking import kept
from teaching_service.domain.instructions import Instruction
from teaching_service.domain.sets import InstructionSet, set_zero
from teaching_service.domain.soundness import KeptAgent, KeptTask, Receipt, Wrong, wrong_of_agent, wrong_of_task
from teaching_service.store import tables
from teaching_service.store.migrations import SCRIPTS
from teaching_service.store.rows import instruction_of, set_of, task_of

SETS_AT_ONCE = 64
# What reading a row raises whose columns are not what the service writes.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, LookupError)

_Key = tuple[Any, ...]
_Next = tuple[_Key | None, list[Wrong]]


async def check(url: str) -> AsyncIterator[Wrong]:
    """Say what does not hold of a database, as it is found. Raises `SetupProblem` where it is not there."""
    async with kept(url, SCRIPTS) as database:
        for following, first in ((_next_agent, ("", "")), (_next_task, (0,))):
            key: _Key | None = first
            while key is not None:
                key, found = await database.read(partial(following, after=key))
                for wrong in found:
                    yield wrong
        for orphans in ORPHANS:
            for wrong in await database.read(orphans):
                yield wrong


def _looked_at(where: str, look: Callable[[], Iterator[Wrong]]) -> list[Wrong]:
    try:
        return list(look())
    except UNREADABLE:
        return [Wrong(where, "a row of it cannot be read", "T4.1")]


# Agents


def _next_agent(connection: Connection, after: _Key) -> _Next:
    """Look at the next agent that anybody proposed something for; return its key, None behind the last."""
    keys: list[_Key] = []
    for table in (tables.instructions, tables.instruction_sets):
        own = tuple_(table.c.tenant, table.c.agent)
        wanted = select(table.c.tenant, table.c.agent).where(own > after).order_by(table.c.tenant, table.c.agent)
        keys += [tuple(row) for row in connection.execute(wanted.limit(1))]
    if not keys:
        return None, []
    tenant, agent = min(keys)
    return (tenant, agent), _looked_at(f"agent {agent}", lambda: _of_agent(connection, tenant, agent))


def _of_agent(connection: Connection, tenant: str, agent: str) -> Iterator[Wrong]:
    table, feed = tables.instructions, tables.teaching_feed
    own = (table.c.tenant == tenant, table.c.agent == agent)
    instructions = {row["id"]: instruction_of(row) for row in _rows(connection, select(table).where(*own))}
    told_of = select(feed.c.kind, feed.c.subject, feed.c.detail).where(
        feed.c.tenant == tenant, feed.c.subject.in_([agent, *instructions])
    )
    yield from wrong_of_agent(
        KeptAgent(
            agent=agent,
            instructions=instructions,
            sets=_sets(connection, tenant, agent),
            members_of=partial(_members_of, connection, tenant, agent),
            told=frozenset((row["kind"], row["subject"], row["detail"]) for row in _rows(connection, told_of)),
        )
    )
    for one in instructions.values():
        if _sources(connection, tenant, one.id) != set(one.says.from_corrections):
            yield Wrong(f"instruction {one.id}", "the rows of what it was drawn from do not say what it says", "T6.3")


def _sets(connection: Connection, tenant: str, agent: str) -> Iterator[InstructionSet]:
    table, number = tables.instruction_sets, 0
    while True:
        own = (table.c.tenant == tenant, table.c.agent == agent, table.c.number > number)
        rows = _rows(connection, select(table).where(*own).order_by(table.c.number).limit(SETS_AT_ONCE))
        for row in rows:
            yield set_of(row)
            number = row["number"]
        if len(rows) < SETS_AT_ONCE:
            return


def _members_of(connection: Connection, tenant: str, agent: str, number: int) -> tuple[str, ...] | None:
    found = _sets_numbered(connection, tenant, agent, {number})
    return found[number].members if number in found else None


def _sets_numbered(connection: Connection, tenant: str, agent: str, numbers: set[int]) -> Mapping[int, InstructionSet]:
    table = tables.instruction_sets
    wanted = select(table).where(table.c.tenant == tenant, table.c.agent == agent, table.c.number.in_(numbers))
    return {0: set_zero(tenant, agent)} | {row["number"]: set_of(row) for row in _rows(connection, wanted)}


def _sources(connection: Connection, tenant: str, instruction_id: str) -> set[str]:
    table = tables.sources
    wanted = select(table.c.correction_id).where(table.c.tenant == tenant, table.c.instruction_id == instruction_id)
    return {row["correction_id"] for row in _rows(connection, wanted)}


# Tasks


def _next_task(connection: Connection, after: _Key) -> _Next:
    """Look at the next task that began; return its key, None behind the last."""
    table = tables.tasks
    wanted = select(table).where(table.c.made > after[0]).order_by(table.c.made).limit(1)
    row = connection.execute(wanted).mappings().first()
    if row is None:
        return None, []
    return (row["made"],), _looked_at(f"task {row['id']}", lambda: wrong_of_task(_task(connection, row)))


def _task(connection: Connection, row: RowMapping) -> KeptTask:
    task, table, found = task_of(row), tables.receipts, tables.sent
    own = (table.c.tenant == task.tenant, table.c.task_id == task.id)
    receipts = _rows(connection, select(table).where(*own).order_by(table.c.take_up))
    sets = _sets_numbered(connection, task.tenant, task.agent, {one["set_number"] for one in receipts})
    named = {one for receipt in receipts for one in receipt["instruction_ids"]}
    named |= {one for made in sets.values() for one in made.members}
    by_work = select(found.c.instruction_id).where(found.c.tenant == task.tenant, found.c.task_id == task.id)
    return KeptTask(
        task=task,
        receipts=[Receipt(**{field.name: one[field.name] for field in fields(Receipt)}) for one in receipts],
        sets=sets,
        instructions=_instructions(connection, task.tenant, named),
        sent=frozenset(one["instruction_id"] for one in _rows(connection, by_work)),
    )


def _instructions(connection: Connection, tenant: str, ids: set[str]) -> Mapping[str, Instruction]:
    table = tables.instructions
    wanted = select(table).where(table.c.tenant == tenant, table.c.id.in_(ids))
    return {row["id"]: instruction_of(row) for row in _rows(connection, wanted)}


# What names something that is not there


def _orphans(
    table: Table, where: Callable[[RowMapping], str], what: str, there: ColumnElement[bool], rule: str,
    only: ColumnElement[bool] | None = None,
) -> Callable[[Connection], list[Wrong]]:  # fmt: skip
    """Return what looks for rows of which what they name is not there."""
    wanted = select(table).where(~there)
    if only is not None:
        wanted = wanted.where(only)

    def look(connection: Connection) -> list[Wrong]:
        return [Wrong(one, what, rule) for one in dict.fromkeys(where(row) for row in _rows(connection, wanted))]

    return look


def _is(table: Table, tenant: Any, **equal: Any) -> ColumnElement[bool]:
    return exists().where(table.c.tenant == tenant, *(table.c[name] == column for name, column in equal.items()))


def _is_set(feed: Table) -> ColumnElement[bool]:
    table = tables.instruction_sets
    numbered = cast(table.c.number, String) == feed.c.detail
    return exists().where(table.c.tenant == feed.c.tenant, table.c.agent == feed.c.subject, numbered)


_tasks, _receipts, _sent, _put = tables.tasks, tables.receipts, tables.sent, tables.put_to
_corrections, _instructions_of, _sources_of = tables.corrections, tables.instructions, tables.sources
_requests, _feed = tables.requests, tables.teaching_feed


def _request(row: RowMapping) -> str:
    return f"request {row['request_id']} of {row['rpc']}"


ORPHANS: Sequence[Callable[[Connection], list[Wrong]]] = (
    _orphans(
        _receipts, lambda row: f"task {row['task_id']}", "there are receipts of it, and no task",
        _is(_tasks, _receipts.c.tenant, id=_receipts.c.task_id), "T6.1",
    ),
    _orphans(
        _sent, lambda row: f"task {row['task_id']}", "it was sent something, and is not there",
        _is(_tasks, _sent.c.tenant, id=_sent.c.task_id), "T6.1",
    ),
    _orphans(
        _put, lambda row: f"task {row['task_id']}", "it proposed something, and is not there",
        _is(_tasks, _put.c.tenant, id=_put.c.task_id), "T6.1",
    ),
    _orphans(
        _corrections, lambda row: f"correction {row['id']}", "its task is not there",
        _is(_tasks, _corrections.c.tenant, id=_corrections.c.task_id, agent=_corrections.c.agent), "T1.1",
    ),
    _orphans(
        _corrections, lambda row: f"correction {row['id']}", "the feed does not tell of it",
        _is(_feed, _corrections.c.tenant, kind=literal("work_corrected"), subject=_corrections.c.id), "T9",
    ),
    _orphans(
        _sources_of, lambda row: f"instruction {row['instruction_id']}", "what it was drawn from is not there",
        _is(_corrections, _sources_of.c.tenant, id=_sources_of.c.correction_id), "T2.1",
    ),
    _orphans(
        _sources_of, lambda row: f"instruction {row['instruction_id']}", "it has sources, and is not there",
        _is(_instructions_of, _sources_of.c.tenant, id=_sources_of.c.instruction_id), "T2.1",
    ),
    _orphans(
        _feed, lambda row: f"correction {row['subject']}", "the feed tells of it, and it is not there",
        _is(_corrections, _feed.c.tenant, id=_feed.c.subject), "T9", _feed.c.kind == "work_corrected",
    ),
    _orphans(
        _feed, lambda row: f"instruction {row['subject']}", "the feed tells of it, and it is not there",
        _is(_instructions_of, _feed.c.tenant, id=_feed.c.subject), "T9", _feed.c.kind == "instruction_proposed",
    ),
    _orphans(
        _feed, lambda row: f"set {row['detail']} of {row['subject']}", "the feed tells of it, and it is not there",
        _is_set(_feed), "T9",
        _feed.c.kind == "instructions_changed",
    ),
    _orphans(
        _requests, _request, "the correction that it came to is not there",
        _is(_corrections, _requests.c.tenant, id=_requests.c.response_key), "T1.1", _requests.c.rpc == "CorrectWork",
    ),
    _orphans(
        _requests, _request, "the instruction that it came to is not there",
        _is(_instructions_of, _requests.c.tenant, id=_requests.c.response_key), "T2.1",
        _requests.c.rpc == "ProposeInstruction",
    ),
)  # fmt: skip


def _rows(connection: Connection, wanted: Any) -> Sequence[RowMapping]:
    return connection.execute(wanted).mappings().all()
