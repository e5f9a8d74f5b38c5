"""Replicas of the runtime as far as their committers go, and units for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from runtime_service.domain import journal
from runtime_service.domain.journal import WriterStarted
from runtime_service.domain.ledger import Hold, Ledger, Repeatable, RequestKey, Unit
from runtime_service.domain.turns import ConversationKey, IfBusy, Turn, TurnId
from runtime_service.engine.committer import Committer
from runtime_service.engine.units.conversations import OpenConversation
from runtime_service.engine.units.giving import GiveTurn
from runtime_service.engine.units.turns import Append
from runtime_service.store import tables
from runtime_service.store.reading import Reading
from runtime_service.store.transactions import Transactions
from service_kit.database import Database
from tests.domain.made import a_turn, person


@dataclass
class Replica:
    """One replica's committer, and the turns that it holds as committed."""

    process: str
    database: Database
    turns: dict[TurnId, Turn] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.committer = Committer(Transactions(self.database), self)

    def committed(self, ledger: Ledger) -> None:
        self.turns |= ledger.turns.changed

    def hold(self, turn_id: TurnId) -> Hold:
        return Hold(turn_id, self.turns[turn_id].writer, self.turns[turn_id].line)

    async def commit(self, *units: Unit[Any]) -> list[Any]:
        """Submit units at once, and return each one's answer or its refusal."""
        return await asyncio.gather(*[self.committer.submit(unit) for unit in units], return_exceptions=True)


@asynccontextmanager
async def replicas(url: str, count: int) -> AsyncIterator[list[Replica]]:
    """So many replicas; on SQLite they share what one process has, which serves alone."""
    shared = Database(url)
    databases = [shared if shared.is_a_file else Database(url) for _ in range(count)]
    made = [Replica(f"process-{n}", database) for n, database in enumerate(databases)]
    running = [asyncio.create_task(one.committer.run()) for one in made]
    try:
        yield made
    finally:
        for one in made:
            one.committer.close()
        await asyncio.gather(*running)
        for database in {*databases, shared}:
            await database.close()


def give(turn_id: str, conversation_id: str = "c1", request_id: str = "") -> GiveTurn:
    key = RequestKey("default", "gus", "StartTurn", request_id)
    turn = a_turn(turn_id, conversation_id=conversation_id)
    return GiveTurn(turn, IfBusy.BRANCH, "", Repeatable(key, "d") if request_id else None)


def opened(conversation_id: str = "c1") -> OpenConversation:
    return OpenConversation(ConversationKey("default", conversation_id), "answer", None, person("gus"), sees_all=False)


def append(hold: Hold, *words: str) -> Append:
    return Append(hold, [("answer", WriterStarted("process", word)) for word in words])


async def assert_sound(database: Database) -> None:
    """Hold every turn's journal to its chain: no gap, nothing changed, the head in the turn's row."""
    wanted = select(tables.turns.c.id, tables.turns.c.tenant, tables.turns.c.line, tables.turns.c.chain)
    reading = Reading(database)
    for turn_id, tenant, line, head in await database.read(lambda connection: connection.execute(wanted).all()):
        chain = journal.first_chain(tenant, turn_id)
        records = await reading.records(turn_id)
        assert [record.line for record in records] == list(range(1, line + 1))
        for record in records:
            assert journal.is_sound(record, chain)
            chain = record.chain
        assert head == (chain if records else "")
