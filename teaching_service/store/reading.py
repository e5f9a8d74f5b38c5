"""What is looked up, as it stands. Nothing is written here; each answer is of one snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, Select, and_, case, exists, func, or_, select

from service_kit.database import Database
from service_kit.feeds import FeedRow, Position, horizon, read_after
from teaching_service.domain.access import Viewer
from teaching_service.domain.block import Limits, applying, block_of
from teaching_service.domain.corrections import Correction
from teaching_service.domain.explaining import Explanation, explained
from teaching_service.domain.instructions import ForWhat, Instruction, InstructionState, Work
from teaching_service.domain.lookups import (
    CorrectionsWanted,
    Effect,
    InstructionsWanted,
    News,
    Preview,
    SetCheck,
    TasksWanted,
)
from teaching_service.domain.problems import NoSuchThing
from teaching_service.domain.sets import InstructionSet, Taught, with_proposal
from teaching_service.domain.tasks import Task
from teaching_service.store import loading, tables
from teaching_service.store.effect import effect_of
from teaching_service.store.rows import correction_of, set_of
from teaching_service.store.seeing import may_see_correction, may_see_instruction, may_see_task


class Reading:
    """Looks things up in the database."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self._database = database
        self._limits = limits

    # Tasks

    async def task(self, viewer: Viewer, task_id: str) -> Task | None:
        """Return a task that the viewer may see."""
        return await self._database.read(lambda connection: loading.seen_task(connection, viewer, task_id))

    async def tasks(self, viewer: Viewer, wanted: TasksWanted, before: int | None, most: int) -> Sequence[Task]:
        """Return tasks, the newest first, that were made before a number."""
        table, sent = tables.tasks, tables.sent
        found = select(table).where(may_see_task(viewer))
        if wanted.agent:
            found = found.where(table.c.agent == wanted.agent)
        if wanted.turn_id:
            found = found.where(table.c.turn_id == wanted.turn_id)
        if wanted.instruction_id:
            of_it = exists().where(
                sent.c.tenant == viewer.tenant,
                sent.c.instruction_id == wanted.instruction_id,
                sent.c.task_id == table.c.id,
            )
            found = found.where(of_it)
        if before is not None:
            found = found.where(table.c.made < before)
        page = found.order_by(table.c.made.desc()).limit(most)
        return await self._database.read(lambda connection: loading.tasks(connection, page))

    async def explanation(self, viewer: Viewer, task_id: str) -> Explanation | None:
        """Return what a task ran with, and what its agent has been told since (T6.2)."""

        def explain(connection: Connection) -> Explanation | None:
            task = loading.seen_task(connection, viewer, task_id)
            if task is None:
                return None
            last = task.sent[-1]
            taught = loading.taught(connection, viewer.tenant, task.agent, last.instruction_ids)
            stood = loading.set_numbered(connection, viewer.tenant, task.agent, last.set_number)
            return explained(task, stood.members if stood is not None else (), taught.instructions.values())

        return await self._database.read(explain)

    async def set_checks(self, tenant: str, task_ids: Sequence[str]) -> Sequence[SetCheck]:
        """Say of tasks, in their order, whether their sets stand. Raises `NoSuchThing` for one that was never begun."""

        def sets(connection: Connection) -> tuple[dict[str, tuple[str, int]], dict[str, int]]:
            ran_with = _ran_with(connection, tenant, task_ids)
            agents = {agent for agent, _ in ran_with.values()}
            return ran_with, {agent: loading.newest_set(connection, tenant, agent).number for agent in agents}

        ran_with, newest = await self._database.read(sets)
        checks = []
        for one in task_ids:
            if one not in ran_with:
                raise NoSuchThing("task", one)
            agent, number = ran_with[one]
            checks.append(SetCheck(one, number == newest[agent], newest[agent]))
        return checks

    # Corrections

    async def correction(self, viewer: Viewer, correction_id: str) -> Correction | None:
        """Return a correction that the viewer may see."""
        found = await self._database.read(
            lambda connection: loading.seen_corrections(connection, viewer, [correction_id])
        )
        return found[0] if found else None

    async def corrections(
        self, viewer: Viewer, wanted: CorrectionsWanted, before: int | None, most: int
    ) -> Sequence[Correction]:
        """Return corrections, the newest first, that were made before a number."""
        table, sources = tables.corrections, tables.sources
        found = select(table).where(may_see_correction(viewer))
        for name in ("task_id", "agent", "skill"):
            if value := getattr(wanted, name):
                found = found.where(table.c[name] == value)
        if wanted.instruction_id:
            drawn_from = exists().where(
                sources.c.tenant == viewer.tenant,
                sources.c.instruction_id == wanted.instruction_id,
                sources.c.correction_id == table.c.id,
            )
            found = found.where(drawn_from)
        if not wanted.withdrawn_too:
            found = found.where(table.c.withdraw_time.is_(None))
        if before is not None:
            found = found.where(table.c.made < before)
        page = found.order_by(table.c.made.desc()).limit(most)
        return await self._database.read(
            lambda connection: [correction_of(row) for row in connection.execute(page).mappings()]
        )

    # Instructions

    async def instruction(self, viewer: Viewer, instruction_id: str) -> Instruction | None:
        """Return an instruction that the viewer may see."""
        found = await self._database.read(
            lambda connection: loading.seen_instructions(connection, viewer, [instruction_id])
        )
        return found[0] if found else None

    async def instructions(
        self, viewer: Viewer, wanted: InstructionsWanted, after: tuple[int, int, int] | None, most: int
    ) -> Sequence[Instruction]:
        """Return instructions behind a place: active ones as they are sent, then the others, the newest first."""
        table = tables.instructions
        found = select(table).where(may_see_instruction(viewer))
        if wanted.agent:
            found = found.where(table.c.agent == wanted.agent)
        if wanted.states:
            found = found.where(table.c.state.in_(wanted.states))
        if wanted.skill:
            found = found.where(table.c.skill == wanted.skill)
        if after is not None:
            found = found.where(_behind(after))
        page = found.order_by(*_PLACE).limit(most)
        return await self._database.read(lambda connection: loading.instructions(connection, page))

    async def effect(self, viewer: Viewer, instruction_id: str) -> Effect | None:
        """Count whether an instruction that the viewer may see helped (T6.3)."""

        def count(connection: Connection) -> Effect | None:
            found = loading.seen_instructions(connection, viewer, [instruction_id])
            return effect_of(connection, viewer, found[0]) if found else None

        return await self._database.read(count)

    # Sets

    async def newest_set(self, tenant: str, agent: str) -> InstructionSet:
        """Return an agent's newest set."""
        return await self._database.read(lambda connection: loading.newest_set(connection, tenant, agent))

    async def set_numbered(self, tenant: str, agent: str, number: int) -> InstructionSet | None:
        """Return one of an agent's sets."""
        return await self._database.read(lambda connection: loading.set_numbered(connection, tenant, agent, number))

    async def sets(self, tenant: str, agent: str, before: int | None, most: int) -> Sequence[InstructionSet]:
        """Return an agent's sets, the newest first, below a number."""
        table = tables.instruction_sets
        found = select(table).where(table.c.tenant == tenant, table.c.agent == agent)
        if before is not None:
            found = found.where(table.c.number < before)
        page = found.order_by(table.c.number.desc()).limit(most)
        return await self._database.read(
            lambda connection: [set_of(row) for row in connection.execute(page).mappings()]
        )

    async def preview(self, viewer: Viewer, agent: str, work: Work, with_instruction_id: str) -> Preview:
        """Return what a piece of work would be sent. Nothing is recorded.

        Raises `NoSuchThing`, `InstructionStateProblem` for what is no proposal of this agent that the viewer may see.
        """
        named = [with_instruction_id] if with_instruction_id else []

        def seen(connection: Connection) -> Taught:
            also = [one.id for one in loading.seen_instructions(connection, viewer, named)]
            return loading.taught(connection, viewer.tenant, agent, also)

        taught = await self._database.read(seen)
        newest = taught.newest
        now = block_of(agent, newest.number, newest.hash, applying(taught.active, work), self._limits)
        if not with_instruction_id:
            return Preview(now.text, now.text, now.left_out)
        members = with_proposal(taught, with_instruction_id)
        then = block_of(agent, newest.number + 1, newest.hash, applying(members, work), self._limits)
        return Preview(now.text, then.text, then.left_out)

    # Events

    async def news(self, viewer: Viewer, position: Position, most: int) -> Sequence[tuple[Position, News]]:
        """Return what happened behind a position of the feed, as it stands now, without what is not for these eyes."""

        def news(connection: Connection) -> list[tuple[Position, News]]:
            lines = read_after(connection, tables.teaching_feed, position, most, viewer.tenant)
            about = _about(connection, viewer, lines)
            return [(line.position, about.get(_key(line))) for line in lines]

        return await self._database.follow(news)

    async def horizon(self) -> Position:
        """Return how far the feed goes."""
        return await self._database.follow(lambda connection: horizon(connection, tables.teaching_feed))

    async def generation(self) -> str:
        """Return what tells this database from any other: cursors are bound to it."""
        facts = tables.database_facts
        wanted = select(facts.c.value).where(facts.c.name == "generation")
        return await self._database.read(lambda connection: str(connection.execute(wanted).scalar_one()))


_CHANGED = "instructions_changed"


def _about(
    connection: Connection, viewer: Viewer, lines: Sequence[FeedRow]
) -> dict[tuple[str, str], Correction | Instruction | InstructionSet]:
    """Return what these lines are about and the viewer may see, by `_key`."""
    about: dict[tuple[str, str], Correction | Instruction | InstructionSet] = {}
    for correction in loading.seen_corrections(connection, viewer, _subjects(lines, "work_corrected")):
        about["work_corrected", correction.id] = correction
    for one in loading.seen_instructions(connection, viewer, _subjects(lines, "instruction_proposed")):
        about["instruction_proposed", one.id] = one
    for made in _sets(connection, viewer.tenant, [line for line in lines if line.kind == _CHANGED]):
        about[_CHANGED, f"{made.agent}#{made.number}"] = made
    return about


def _key(line: FeedRow) -> tuple[str, str]:
    return line.kind, f"{line.subject}#{line.detail}" if line.detail else line.subject


def _subjects(lines: Sequence[FeedRow], kind: str) -> list[str]:
    return [line.subject for line in lines if line.kind == kind]


def _ran_with(connection: Connection, tenant: str, task_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return the agent of each of these tasks, and the number of the set that it was last sent."""
    table, receipts = tables.tasks, tables.receipts
    last = (
        select(receipts.c.task_id, func.max(receipts.c.take_up).label("take_up"))
        .where(receipts.c.tenant == tenant, receipts.c.task_id.in_(task_ids))
        .group_by(receipts.c.task_id)
        .subquery()
    )
    wanted = (
        select(table.c.id, table.c.agent, receipts.c.set_number)
        .join(last, last.c.task_id == table.c.id)
        .join(receipts, (receipts.c.task_id == last.c.task_id) & (receipts.c.take_up == last.c.take_up))
        .where(table.c.tenant == tenant, receipts.c.tenant == tenant)
    )
    return {row.id: (row.agent, row.set_number) for row in connection.execute(wanted)}


def _sets(connection: Connection, tenant: str, lines: Sequence[FeedRow]) -> Sequence[InstructionSet]:
    table = tables.instruction_sets
    if not lines:
        return []
    these = or_(*(and_(table.c.agent == line.subject, table.c.number == int(line.detail)) for line in lines))
    found: Select[tuple[object, ...]] = select(table).where(table.c.tenant == tenant, these)
    return [set_of(row) for row in connection.execute(found).mappings()]


def _place() -> tuple[ColumnElement[int], ColumnElement[int], ColumnElement[int]]:
    """Say where an instruction stands in lists: the same that `Instruction.listed_at` says."""
    table = tables.instructions
    active = table.c.state == InstructionState.ACTIVE
    for_what = case(
        (table.c.for_person != "", ForWhat.PERSON.value),
        (table.c.on_scope != "", ForWhat.SCOPE.value),
        (table.c.skill != "", ForWhat.SKILL.value),
        else_=ForWhat.EVERYTHING.value,
    )
    return (
        case((active, for_what), else_=len(ForWhat)),
        case((active, table.c.first_set), else_=-table.c.made),
        table.c.made,
    )


_PLACE = _place()


def _behind(after: tuple[int, int, int]) -> ColumnElement[bool]:
    kind, place, made = _PLACE
    return or_(
        kind > after[0],
        and_(kind == after[0], place > after[1]),
        and_(kind == after[0], place == after[1], made > after[2]),
    )
