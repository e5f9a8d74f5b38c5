"""What is looked up: turns, records, approvals, conversations, as they stand. Nothing is written here.

What a caller may see is part of each query (`runtime.md` R10), so that a page is full whatever is hidden from them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import CTE, ColumnElement, Connection, Select, and_, exists, func, literal, or_, select, true

from runtime_service.domain.addresses import Address
from runtime_service.domain.approvals import Approval, ApprovalState
from runtime_service.domain.earlier import MOST_CHARACTERS, MOST_SHOWN, Earlier, Remembered, Said
from runtime_service.domain.hosts import Session
from runtime_service.domain.journal import InstructionsTakenUp, Record, TaskStarted, rebuilt
from runtime_service.domain.lookups import ApprovalsWanted, TurnDetail, TurnsWanted, Viewer
from runtime_service.domain.turns import Conversation, Turn, TurnId, TurnState
from runtime_service.store import tables
from runtime_service.store.rows import approval_of, call_of, conversation_of, session_of, turn_of
from service_kit.database import Database
from service_kit.feeds import FeedRow, Position, horizon, read_after, read_subject, told_later
from service_kit.statements import clock


class Reading:
    """Looks things up in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # Turns

    async def turn(self, viewer: Viewer, turn_id: str) -> Turn | None:
        """Return a turn that the viewer may see."""
        wanted = select(tables.turns).where(tables.turns.c.id == turn_id, _may_see_turn(viewer))
        row = await self._database.read(lambda connection: connection.execute(wanted).mappings().first())
        return None if row is None else turn_of(row)

    async def turn_details(self, turns: Sequence[Turn], *, most_waiting: int) -> Sequence[TurnDetail]:
        """Return turns with what belongs to them, in the same order."""
        return await self._database.read(lambda connection: [_detail(connection, turn, most_waiting) for turn in turns])

    async def turns(self, viewer: Viewer, wanted: TurnsWanted, before: int | None, most: int) -> Sequence[Turn]:
        """Return turns, the newest first, that were made before a number."""
        table = tables.turns
        found = select(table).where(_may_see_turn(viewer), table.c.parent_turn_id == wanted.parent_turn_id)
        if wanted.conversation_id:
            found = found.where(table.c.conversation_id == wanted.conversation_id)
        if wanted.agent:
            found = found.where(table.c.agent == wanted.agent)
        if wanted.states:
            found = found.where(table.c.state.in_(wanted.states))
        if wanted.before_turn_id:
            found = found.where(table.c.id.in_(select(_ancestors(wanted.before_turn_id, shown=True).c.id)))
        if before is not None:
            found = found.where(table.c.made < before)
        page = found.order_by(table.c.made.desc()).limit(most)
        return await self._database.read(
            lambda connection: [turn_of(row) for row in connection.execute(page).mappings()]
        )

    async def records(self, turn_id: TurnId, after: int = 0, most: int | None = None) -> Sequence[Record]:
        """Return a turn's records behind a line, in order."""
        return await self._database.read(lambda connection: _records(connection, turn_id, after, most))

    async def earlier(self, turn: Turn) -> Earlier:
        """Return what the turns of its branch before it were asked and handed back (R9)."""
        if not turn.after_turn_id:
            return Earlier()
        return await self._database.read(lambda connection: _earlier(connection, turn))

    async def delegate_calls(self, turn: Turn, delegate: str) -> Remembered:
        """Return what a delegate's calls returned before this turn's writer began (R9)."""

        def both(connection: Connection) -> Remembered:
            before = _calls_before(connection, turn, delegate) if turn.after_turn_id else Earlier()
            return Remembered(before, _calls_here(connection, turn, delegate) if turn.writer > 1 else [])

        return await self._database.read(both)

    # What the scheduler looks for

    async def free_turns(self, most: int, not_these: Collection[TurnId]) -> Sequence[TurnId]:
        """Return turns that may be taken, the longest free first (R6.1, R6.7)."""
        return await self._database.read(lambda connection: _free(connection, most, not_these))

    async def turns_awaiting(self, tenant: str | None, tools: Collection[str]) -> Sequence[TurnId]:
        """Return the interrupted turns, of a tenant or of all, that wait for one of these tools or parts."""
        table = tables.turns
        wanted = select(table.c.id, table.c.awaits_tools).where(
            table.c.tenant == tenant if tenant is not None else true(),
            table.c.state == TurnState.INTERRUPTED,
            table.c.awaits_tools != (),
        )
        # Told apart here: hosts offer more tools than a statement has room for.
        offered = frozenset(tools)
        return await self._database.read(
            lambda connection: [
                row.id for row in connection.execute(wanted) if not offered.isdisjoint(row.awaits_tools)
            ]
        )

    async def expired_approvals(self, most: int) -> Sequence[str]:
        """Return the approvals that wait and whose time ran out."""
        table = tables.approvals

        def look(connection: Connection) -> Sequence[str]:
            expired = (table.c.state == ApprovalState.PENDING, table.c.expire_time <= clock(connection))
            return connection.execute(select(table.c.id).where(*expired).limit(most)).scalars().all()

        return await self._database.read(look)

    # Approvals

    async def approval(self, viewer: Viewer, approval_id: str) -> Approval | None:
        """Return an approval that the viewer may see."""
        found = await self.approvals_by_id(viewer, [approval_id])
        return found[0] if found else None

    async def approvals_by_id(self, viewer: Viewer, ids: Collection[str]) -> Sequence[Approval]:
        """Return those of these approvals that the viewer may see, as they stand."""
        table = tables.approvals
        wanted = select(table).where(table.c.id.in_(ids), _may_see_approval(viewer))
        return await self._database.read(
            lambda connection: [approval_of(row) for row in connection.execute(wanted).mappings()]
        )

    async def approvals(
        self, viewer: Viewer, wanted: ApprovalsWanted, after: int | None, most: int
    ) -> Sequence[Approval]:
        """Return approvals behind a number, the oldest first."""
        return await self._database.read(lambda connection: _approvals(connection, viewer, wanted, after, most))

    async def waiting_now(
        self, viewer: Viewer, wanted: ApprovalsWanted, after: int | None, most: int, told_to: Position | None
    ) -> tuple[Sequence[Approval], Position]:
        """Return what waits behind a number and was told up to a position of the feed, with that position (R11).

        Without one: all that was told up to this very snapshot's own horizon. What was told later is in the feed.
        """
        feed = tables.approval_feed

        def look(connection: Connection) -> tuple[Sequence[Approval], Position]:
            position = told_to or horizon(connection, feed)
            earlier = ~told_later(feed, position, "waiting", tables.approvals.c.id)
            return _approvals(connection, viewer, wanted, after, most, earlier), position

        return await self._database.follow(look)

    async def approval_news(self, tenant: str, position: Position, most: int) -> Sequence[FeedRow]:
        """Return what happened to approvals behind a position of their feed."""
        return await self._database.follow(
            lambda connection: read_after(connection, tables.approval_feed, position, most, tenant)
        )

    async def turn_news(
        self, turn_id: TurnId, line: int, position: Position, most: int
    ) -> tuple[Sequence[Record], Sequence[FeedRow]]:
        """Return a turn's records behind a line, and when it was interrupted behind a position of the turns' feed."""
        return await self._database.follow(
            lambda connection: (
                _records(connection, turn_id, line, most),
                read_subject(connection, tables.turn_feed, position, turn_id),
            )
        )

    # Conversations, hosts, the database itself

    async def conversation(self, viewer: Viewer, conversation_id: str) -> Conversation | None:
        """Return a conversation that the viewer may see."""
        table = tables.conversations
        wanted = select(table).where(table.c.id == conversation_id, _may_see_conversation(viewer))
        row = await self._database.read(lambda connection: connection.execute(wanted).mappings().first())
        return None if row is None else conversation_of(row)

    async def conversations(self, viewer: Viewer, agent: str, before: int | None, most: int) -> Sequence[Conversation]:
        """Return conversations, the newest first, that were made before a number."""
        table = tables.conversations
        wanted = select(table).where(_may_see_conversation(viewer))
        if agent:
            wanted = wanted.where(table.c.agent == agent)
        if before is not None:
            wanted = wanted.where(table.c.made < before)
        page = wanted.order_by(table.c.made.desc()).limit(most)
        return await self._database.read(
            lambda connection: [conversation_of(row) for row in connection.execute(page).mappings()]
        )

    async def session(self, incarnation: str) -> Session | None:
        """Return an incarnation's newest session."""
        wanted = select(tables.sessions).where(tables.sessions.c.incarnation == incarnation)
        row = await self._database.read(lambda connection: connection.execute(wanted).mappings().first())
        return None if row is None else session_of(row)

    async def generation(self) -> str:
        """Return what tells this database from any other: cursors are bound to it."""
        facts = tables.database_facts
        wanted = select(facts.c.value).where(facts.c.name == "generation")
        return await self._database.read(lambda connection: str(connection.execute(wanted).scalar_one()))


def _free(connection: Connection, most: int, not_these: Collection[TurnId]) -> Sequence[TurnId]:
    table, leases, now = tables.turns, tables.leases, clock(connection)
    leased = exists().where(leases.c.process == table.c.process, leases.c.until > now)
    may_have_run = exists().where(tables.calls.c.turn_id == table.c.id, tables.calls.c.open, tables.calls.c.unfinished)
    free = or_(
        table.c.state == TurnState.READY,
        and_(table.c.state == TurnState.RUNNING, ~leased),
        and_(table.c.state == TurnState.INTERRUPTED, table.c.retry_time <= now, ~may_have_run),
    )
    wanted = select(table.c.id).where(free).order_by(table.c.made).limit(most + len(not_these))
    found = connection.execute(wanted).scalars().all()
    return [turn_id for turn_id in found if turn_id not in not_these][:most]


def _ancestors(turn_id: str, *, shown: bool) -> CTE:
    """Return the turns that a turn follows on its branch, the nearest at depth 1: all, or as many as it is shown."""
    table = tables.turns
    branch = (
        select(table.c.after_turn_id.label("id"), literal(1).label("depth"), literal(0).label("nearer"))
        .where(table.c.id == turn_id, table.c.after_turn_id != "")
        .cte("branch", recursive=True)
    )
    # How many characters it is shown of those that are nearer.
    nearer = branch.c.nearer + (func.length(table.c.input) + func.length(table.c.output) if shown else 0)
    further = (
        select(table.c.after_turn_id, branch.c.depth + 1, nearer)
        .join(branch, table.c.id == branch.c.id)
        .where(table.c.after_turn_id != "")
    )
    if shown:
        further = further.where(branch.c.depth < MOST_SHOWN, nearer < MOST_CHARACTERS)
    return branch.union_all(further)


def _earlier(connection: Connection, turn: Turn) -> Earlier:
    branch, table = _ancestors(turn.id, shown=True), tables.turns
    wanted = select(table.c.input, table.c.output, table.c.after_turn_id).join(branch, table.c.id == branch.c.id)
    rows = connection.execute(wanted.order_by(branch.c.depth.desc())).all()
    return Earlier(tuple(Said(row.input, row.output) for row in rows), cut=rows[0].after_turn_id != "")


def _calls_before(connection: Connection, turn: Turn, delegate: str) -> Earlier:
    """Return what a delegate's calls returned in the turns of a branch before one."""
    branch, table = _ancestors(turn.id, shown=False), tables.delegate_calls
    newest_first = (
        select(table.c.input, table.c.output)
        .join(branch, table.c.turn_id == branch.c.id)
        .where(table.c.delegate == delegate)
        .order_by(branch.c.depth, table.c.line.desc())
        .limit(MOST_SHOWN + 1)
    )
    rows = connection.execute(newest_first).all()
    return Earlier().then([Said(row.input, row.output) for row in reversed(rows)])


def _calls_here(connection: Connection, turn: Turn, delegate: str) -> Sequence[tuple[int, Said]]:
    """Return what a delegate's calls returned in a turn to its earlier writers, by line."""
    table = tables.delegate_calls
    of_it = (table.c.turn_id == turn.id, table.c.delegate == delegate, table.c.line <= turn.line)
    wanted = select(table.c.line, table.c.input, table.c.output).where(*of_it).order_by(table.c.line)
    return [(row.line, Said(row.input, row.output)) for row in connection.execute(wanted)]


def _records(connection: Connection, turn_id: TurnId, after: int, most: int | None) -> Sequence[Record]:
    table = tables.records
    wanted = select(table).where(table.c.turn_id == turn_id, table.c.line > after).order_by(table.c.line)
    rows = connection.execute(wanted.limit(most)).mappings().all()
    return [
        Record(
            line=row["line"],
            writer=row["writer"],
            time=row["time"],
            address=Address(row["address"]),
            what=rebuilt(row["kind"], row["facts"], row["words"] if row["erase_time"] is None else None),
            facts=row["facts"],
            words=row["words"],
            words_salt=row["words_salt"],
            words_digest=row["words_digest"],
            content_digest=row["content_digest"],
            chain=row["chain"],
            erase_time=row["erase_time"],
        )
        for row in rows
    ]


def _detail(connection: Connection, turn: Turn, most_waiting: int) -> TurnDetail:
    asked = tables.approvals
    waits = (asked.c.turn_id == turn.id, asked.c.state == ApprovalState.PENDING)
    waiting, count = [], 0
    if not turn.state.ended:
        rows = connection.execute(select(asked).where(*waits).order_by(asked.c.seq).limit(most_waiting))
        waiting = [approval_of(row) for row in rows.mappings()]
        count = connection.execute(select(func.count()).select_from(asked).where(*waits)).scalar_one()
    calls = tables.calls
    may_have_run = select(calls).where(calls.c.turn_id == turn.id, calls.c.open, calls.c.unfinished)
    rows = connection.execute(may_have_run.order_by(calls.c.start_time, calls.c.id))
    unfinished = [call_of(row) for row in rows.mappings()]
    return TurnDetail(turn, waiting, count, unfinished, _tasks(connection, turn))


def _tasks(connection: Connection, turn: Turn) -> Sequence[tuple[str, TaskStarted | InstructionsTakenUp]]:
    records = tables.records
    wanted = (
        select(records.c.address, records.c.kind, records.c.facts)
        .where(records.c.turn_id == turn.id, records.c.kind.in_(["task_started", "instructions_taken_up"]))
        .order_by(records.c.line)
    )
    found = []
    for row in connection.execute(wanted):
        what = rebuilt(row.kind, row.facts, "")
        assert isinstance(what, TaskStarted | InstructionsTakenUp)
        found.append((row.address, what))
    return found


def _approvals(
    connection: Connection,
    viewer: Viewer,
    wanted: ApprovalsWanted,
    after: int | None,
    most: int,
    *also: ColumnElement[bool],
) -> Sequence[Approval]:
    table = tables.approvals
    found: Select[tuple[object, ...]] = select(table).where(_may_see_approval(viewer), *also)
    found = found.where(table.c.state.in_(wanted.states or (ApprovalState.PENDING,)))
    for name in ("agent", "conversation_id", "turn_id", "tool"):
        if value := getattr(wanted, name):
            found = found.where(table.c[name] == value)
    if wanted.put_to_me:
        found = found.where(_is_put_to(viewer, table.c.id))
    if after is not None:
        found = found.where(table.c.seq > after)
    rows = connection.execute(found.order_by(table.c.seq).limit(most))
    return [approval_of(row) for row in rows.mappings()]


def _is_put_to(viewer: Viewer, approval_id: ColumnElement[str]) -> ColumnElement[bool]:
    put = tables.put_to
    return exists().where(put.c.approval_id == approval_id, put.c.tenant == viewer.tenant, put.c.who.in_(viewer.put_to))


def _may_see_turn(viewer: Viewer) -> ColumnElement[bool]:
    """Say which turns a viewer may see: theirs, given by them, with something put to them, or all (R10)."""
    table, put = tables.turns, tables.put_to
    if viewer.sees_all:
        return table.c.tenant == viewer.tenant
    put_to_them = exists().where(
        put.c.turn_id == table.c.root_id, put.c.tenant == viewer.tenant, put.c.who.in_(viewer.put_to)
    )
    theirs = or_(table.c.work_for_id == viewer.account, table.c.given_by_id == viewer.account, put_to_them)
    return and_(table.c.tenant == viewer.tenant, theirs)


def _may_see_approval(viewer: Viewer) -> ColumnElement[bool]:
    table = tables.approvals
    if viewer.sees_all:
        return table.c.tenant == viewer.tenant
    turns = select(tables.turns.c.id).where(_may_see_turn(viewer), tables.turns.c.id == table.c.turn_id)
    return and_(table.c.tenant == viewer.tenant, exists(turns))


def _may_see_conversation(viewer: Viewer) -> ColumnElement[bool]:
    table = tables.conversations
    if viewer.sees_all:
        return table.c.tenant == viewer.tenant
    turns = select(tables.turns.c.id).where(_may_see_turn(viewer), tables.turns.c.conversation_id == table.c.id)
    return and_(table.c.tenant == viewer.tenant, or_(table.c.opened_by_id == viewer.account, exists(turns)))
