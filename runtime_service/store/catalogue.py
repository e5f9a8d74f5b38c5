"""What was registered and declared: agents, hosts' tools, and the lists of tools that tasks were shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, RowMapping, func, select

from runtime_service.domain.agents import Agent, AgentSpec, Shown
from runtime_service.domain.effects import Declaration
from runtime_service.domain.ledger import Repeatable
from runtime_service.store import tables
from service_kit.database import Database
from service_kit.idempotency import RequestKey, find_request, record_request
from service_kit.statements import alone, clock, upsert


class Catalogue:
    """Agents and declarations in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put_agent(self, tenant: str, spec: AgentSpec, request: Repeatable | None) -> Agent:
        """Register an agent, or a version of it: the same spec gives the same version, and makes it the newest.

        The same request again changes nothing. Raises `RequestIdReused` where it asked something else.
        """
        key = None if request is None else RequestKey(**asdict(request.key))

        def put(connection: Connection) -> Agent:
            # The number by which the newest is told is one more than the greatest there is.
            alone(connection, "agents")
            if request is not None and key is not None:
                version = find_request(connection, tables.requests, key, request.digest)
                if version is not None:
                    return _registered(connection, tenant, spec.name, version)
                record_request(connection, tables.requests, key, request.digest, spec.version, clock(connection))
            return _register(connection, tenant, spec)

        return await self._database.write(put)

    async def agent(self, tenant: str, name: str, version: str = "") -> Agent | None:
        """Return a version of an agent, or its newest."""
        table = tables.agents
        wanted = select(table).where(table.c.tenant == tenant, table.c.name == name)
        if version:
            wanted = wanted.where(table.c.version == version)
        newest = wanted.order_by(table.c.registered.desc()).limit(1)
        row = await self._database.read(lambda connection: connection.execute(newest).mappings().first())
        return None if row is None else _agent(row)

    async def agents(self, tenant: str, after: str, most: int) -> Sequence[Agent]:
        """Return agents at their newest version, by name, behind a name."""
        table = tables.agents
        newest = (
            select(table.c.name, func.max(table.c.registered).label("registered"))
            .where(table.c.tenant == tenant, table.c.name > after)
            .group_by(table.c.name)
            .order_by(table.c.name)
            .limit(most)
            .subquery()
        )
        wanted = (
            select(table)
            .join(newest, (table.c.name == newest.c.name) & (table.c.registered == newest.c.registered))
            .where(table.c.tenant == tenant)
            .order_by(table.c.name)
        )
        return await self._database.read(
            lambda connection: [_agent(row) for row in connection.execute(wanted).mappings()]
        )

    async def newest_declarations(self, tenant: str, names: Collection[str]) -> Mapping[str, Declaration]:
        """Return the newest declaration of each of these names that anybody in the tenant ever declared."""
        if not names:
            return {}
        table = tables.declarations
        declared = (
            select(table.c.name, table.c.declaration)
            .where(table.c.tenant == tenant, table.c.name.in_(names))
            .order_by(table.c.declare_time)
        )
        return await self._database.read(
            lambda connection: {row.name: row.declaration for row in connection.execute(declared)}
        )

    async def declaration(self, tenant: str, name: str, declaration_hash: str) -> Declaration | None:
        """Return the declaration of that hash."""
        table = tables.declarations
        wanted = select(table.c.declaration).where(
            table.c.tenant == tenant, table.c.name == name, table.c.hash == declaration_hash
        )
        return await self._database.read(lambda connection: connection.execute(wanted).scalar_one_or_none())

    async def tools(self, tenant: str, tools_hash: str) -> tuple[Shown, ...]:
        """Return the tools that a task was shown, as kept when it began."""
        table = tables.tool_lists
        wanted = select(table.c.tools).where(table.c.tenant == tenant, table.c.hash == tools_hash)
        return await self._database.read(lambda connection: connection.execute(wanted).scalar_one())


def _registered(connection: Connection, tenant: str, name: str, version: str) -> Agent:
    table = tables.agents
    same = (table.c.tenant == tenant, table.c.name == name, table.c.version == version)
    return _agent(connection.execute(select(table).where(*same)).mappings().one())


def _register(connection: Connection, tenant: str, spec: AgentSpec) -> Agent:
    table = tables.agents
    newest = select(func.coalesce(func.max(table.c.registered), 0)).scalar_subquery()
    row = {
        "tenant": tenant,
        "name": spec.name,
        "version": spec.version,
        "spec": spec,
        "create_time": clock(connection),
    }
    put = upsert(connection, table).values(**row, registered=newest + 1)
    again = put.on_conflict_do_update(
        index_elements=["tenant", "name", "version"], set_={"registered": put.excluded.registered}
    )
    return _agent(connection.execute(again.returning(table)).mappings().one())


def _agent(row: RowMapping) -> Agent:
    return Agent(row["tenant"], row["spec"], row["version"], row["create_time"])
