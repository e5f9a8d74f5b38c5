"""What was registered and declared: agents, hosts' tools, and the lists of tools that tasks were shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from sqlalchemy import RowMapping, func, select
from sqlalchemy.dialects.sqlite import insert as upsert

from runtime_service.domain.agents import Agent, AgentSpec, Shown
from runtime_service.domain.effects import Declaration
from runtime_service.domain.ledger import Repeatable
from runtime_service.store import tables
from service_kit.database import Database
from service_kit.idempotency import RequestKey, find_request, record_request


class Catalogue:
    """Agents and declarations in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put_agent(self, tenant: str, spec: AgentSpec, request: Repeatable | None) -> Agent:
        """Register an agent, or a version of it: the same spec gives the same version, and makes it the newest.

        The same request again changes nothing. Raises `RequestIdReused` where it asked something else.
        """
        table = tables.agents
        key = None if request is None else RequestKey(**asdict(request.key))
        async with self._database.write() as connection:
            if request is not None and key is not None:
                version = await find_request(connection, tables.requests, key, request.digest)
                if version is not None:
                    same = (table.c.tenant == tenant, table.c.name == spec.name, table.c.version == version)
                    return _agent((await connection.execute(select(table).where(*same))).mappings().one())
                now = datetime.now(UTC)
                await record_request(connection, tables.requests, key, request.digest, spec.version, now)
            newest = select(func.coalesce(func.max(table.c.registered), 0)).scalar_subquery()
            row = {
                "tenant": tenant,
                "name": spec.name,
                "version": spec.version,
                "spec": spec,
                "create_time": datetime.now(UTC),
            }
            put = upsert(table).values(**row, registered=newest + 1)
            again = put.on_conflict_do_update(
                index_elements=["tenant", "name", "version"], set_={"registered": put.excluded.registered}
            )
            stored = (await connection.execute(again.returning(table))).mappings().one()
        return _agent(stored)

    async def agent(self, tenant: str, name: str, version: str = "") -> Agent | None:
        """Return a version of an agent, or its newest."""
        table = tables.agents
        wanted = select(table).where(table.c.tenant == tenant, table.c.name == name)
        if version:
            wanted = wanted.where(table.c.version == version)
        async with self._database.read() as connection:
            newest = await connection.execute(wanted.order_by(table.c.registered.desc()).limit(1))
            row = newest.mappings().first()
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
        async with self._database.read() as connection:
            return [_agent(row) for row in (await connection.execute(wanted)).mappings()]

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
        async with self._database.read() as connection:
            return {row.name: row.declaration for row in await connection.execute(declared)}

    async def declaration(self, tenant: str, name: str, declaration_hash: str) -> Declaration | None:
        """Return the declaration of that hash."""
        table = tables.declarations
        wanted = select(table.c.declaration).where(
            table.c.tenant == tenant, table.c.name == name, table.c.hash == declaration_hash
        )
        async with self._database.read() as connection:
            found: Declaration | None = (await connection.execute(wanted)).scalar_one_or_none()
        return found

    async def tools(self, tenant: str, tools_hash: str) -> tuple[Shown, ...]:
        """Return the tools that a task was shown, as kept when it began."""
        table = tables.tool_lists
        wanted = select(table.c.tools).where(table.c.tenant == tenant, table.c.hash == tools_hash)
        async with self._database.read() as connection:
            found: tuple[Shown, ...] = (await connection.execute(wanted)).scalar_one()
        return found


def _agent(row: RowMapping) -> Agent:
    return Agent(row["tenant"], row["spec"], row["version"], row["create_time"])
