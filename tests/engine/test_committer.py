"""Units share a transaction, and only what is at fault is refused (`runtime.md` R5.5): on a real file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from runtime_service.domain.journal import WriterStarted
from runtime_service.domain.ledger import Committed, Hold, Ledger, Unit
from runtime_service.domain.problems import PartUnavailable, WriterSuperseded
from runtime_service.domain.turns import Attended, Turn, TurnId
from runtime_service.engine.committer import Committer
from runtime_service.engine.units.giving import GiveAttendedTurn
from runtime_service.engine.units.turns import Append
from runtime_service.store.migrations import migrate
from runtime_service.store.transactions import Transactions
from service_kit.database import Database
from tests.domain.made import a_turn

A = TurnId("a")


class Counting(Transactions):
    """The real transactions, and how many units each had."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.units: list[int] = []

    async def run(self, units: Sequence[Unit[Any]]) -> Committed:
        self.units.append(len(units))
        return await super().run(units)


class Turns:
    """The turns' rows as committed."""

    def __init__(self) -> None:
        self.rows: dict[TurnId, Turn] = {}

    def committed(self, ledger: Ledger) -> None:
        self.rows |= ledger.turns.changed

    def hold(self, turn_id: TurnId) -> Hold:
        return Hold(turn_id, self.rows[turn_id].writer, self.rows[turn_id].line)


@pytest.fixture
async def transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counting]:
    monkeypatch.setattr("service_kit.database.BUSY_SECONDS", 0.1)
    url = f"sqlite:///{tmp_path}/runtime.db"
    await asyncio.to_thread(migrate, url)
    database = Database(url)
    yield Counting(database)
    await database.close()


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
async def committer(transactions: Counting, turns: Turns) -> AsyncIterator[Committer]:
    committer = Committer(transactions, turns)
    running = asyncio.create_task(committer.run())
    yield committer
    committer.close()
    await running


def give(turn_id: str) -> GiveAttendedTurn:
    turn = a_turn(turn_id, conversation_id="", number=1, attended=Attended.BY_A_STREAM)
    return GiveAttendedTurn(turn, "process")


async def come_to(committer: Committer, *units: Unit[Any]) -> list[Any]:
    """Submit units at once, and return each one's answer or its refusal."""
    return await asyncio.gather(*[committer.submit(unit) for unit in units], return_exceptions=True)


async def test_units_that_come_together_are_committed_together(committer: Committer, transactions: Counting) -> None:
    assert await come_to(committer, give("a"), give("b"), give("c")) == ["a", "b", "c"]
    assert transactions.units == [3]


async def test_a_database_that_is_busy_is_waited_for_once_for_all_units(
    committer: Committer, transactions: Counting, turns: Turns, tmp_path: Path
) -> None:
    """Each is told that nothing was done, and when to try again; then it takes them."""
    await come_to(committer, give("a"))
    units: list[Unit[Any]] = [
        give("b"),
        give("c"),
        Append(turns.hold(A), [("answer", WriterStarted("process", "given"))]),
    ]
    with closing(sqlite3.connect(tmp_path / "runtime.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = await come_to(committer, *units)

    assert [(type(one), one.retry_after) for one in refused] == [(PartUnavailable, 1.0)] * 3
    assert transactions.units == [1, 3]
    assert await come_to(committer, give("b"), give("c")) == ["b", "c"]


async def test_a_unit_that_the_database_does_not_take_is_refused_alone(committer: Committer) -> None:
    await come_to(committer, give("a"))

    before, again, behind = await come_to(committer, give("b"), give("a"), give("c"))

    assert (before, type(again), behind) == ("b", PartUnavailable, "c")


async def test_nothing_is_written_behind_a_writers_unit_that_was_not(committer: Committer, turns: Turns) -> None:
    """The journal would have a gap that its chain does not show."""
    await come_to(committer, give("a"))
    hold = turns.hold(A)
    record = [("answer", WriterStarted("process", "given"))]
    not_taken = Append(hold, record, tools=("\ud800", ()))

    first, behind = await come_to(committer, not_taken, Append(hold, record))

    assert (type(first), type(behind)) == (PartUnavailable, WriterSuperseded)
