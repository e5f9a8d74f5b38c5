"""Two committers on one database against a model that does one unit after the other (`runtime.md` R5.5, issue 5.6).

Bursts of units of several turns and writers, stale ones, poisoned ones and ones that are refused without harm among
them, are submitted at once. In whichever order the units came to be run: each caller is told what the model says, the
database has what the model has, and each process's units were run in the order in which it submitted them.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from runtime_service.domain.journal import TurnEnd, TurnEnded, WriterStarted
from runtime_service.domain.ledger import Committed, Hold, Ledger, Needs, NotNow, Unit
from runtime_service.domain.problems import PartUnavailable, WriterSuperseded
from runtime_service.domain.turns import Turn, TurnId, TurnState
from runtime_service.engine.committer import Committer
from runtime_service.engine.units.resuming import ResumeTurn
from runtime_service.engine.units.turns import EndTurn, LetGo, TakeTurn
from runtime_service.store import tables
from runtime_service.store.migrations import migrate
from runtime_service.store.reading import Reading
from runtime_service.store.transactions import Transactions
from service_kit.database import Database
from tests.domain.made import person
from tests.store.made import append, assert_sound, give, opened

TURNS = [TurnId("a"), TurnId("b"), TurnId("c")]
POISON = "poison"


@dataclass(frozen=True)
class Fickle:
    """A unit that writes and then refuses without harm: nothing of it may stay, and its writer goes on."""

    hold: Hold

    @property
    def needs(self) -> Needs:
        return Needs(turns=(self.hold.turn_id,))

    def run(self, ledger: Ledger) -> None:
        turn = ledger.turn(self.hold.turn_id)
        ledger.append(turn, [(turn.agent, WriterStarted("nobody", "fickle"))])
        raise NotNow


@dataclass(frozen=True)
class Step:
    """One thing that one process submits, and whether it lets others run before the next.

    `old`: with which of its holds on the turn, the newest first.
    """

    process: int
    what: str
    turn: TurnId
    old: int
    waits: bool


steps = st.builds(
    Step,
    process=st.integers(0, 1),
    what=st.sampled_from(["take", "take", "add", "add", "add", "add", POISON, "fickle", "let go", "resume", "end"]),
    turn=st.sampled_from(TURNS),
    old=st.sampled_from([0, 0, 0, 1]),
    waits=st.booleans(),
)
bursts = st.lists(st.lists(steps, min_size=1, max_size=10), min_size=1, max_size=6)


# The model: one unit after the other


@dataclass
class Row:
    """A turn as the model has it: who has it, whether anybody does, and what was written."""

    state: TurnState = TurnState.READY
    writer: int = 0
    why: str = "given"
    words: list[str] = field(default_factory=list)


class Model:
    """What units come to, done one after the other."""

    def __init__(self) -> None:
        self.rows = {turn: Row() for turn in TURNS}
        self._lost: set[int] = set()

    def does(self, step: Step, word: str, hold: Hold | None) -> object:
        """Do one step and return what its caller is told."""
        row = self.rows[step.turn]
        if hold is None:
            return self._take(row) if step.what == "take" else self._resume(row)
        if step.what == "fickle":
            return NotNow
        mine = row.state is TurnState.RUNNING and row.writer == hold.writer and id(hold) not in self._lost
        if not mine or step.what == POISON:
            self._lost.add(id(hold))
            return PartUnavailable if mine else WriterSuperseded
        match step.what:
            case "add":
                row.words.append(word)
                return Turn
            case "let go":
                row.state = TurnState.INTERRUPTED
                return bool
            case _:
                row.state = TurnState.FAILED
                row.words.append("end")
                return list

    def _take(self, row: Row) -> object:
        if row.state not in (TurnState.READY, TurnState.RUNNING):
            return type(None)
        row.words.append(row.why if row.state is TurnState.READY else "taken over")
        row.state, row.writer = TurnState.RUNNING, row.writer + 1
        return Turn

    def _resume(self, row: Row) -> object:
        if row.state in (TurnState.INTERRUPTED, TurnState.FAILED):
            row.state, row.why = TurnState.READY, "resumed"
        return type(None)


# The processes


class Watched:
    """The store, and in which order its transactions did units; what failed alone stands there too."""

    def __init__(self, transactions: Transactions, done: list[Unit[Any]]) -> None:
        self._transactions = transactions
        self._done = done

    async def run(self, units: Sequence[Unit[Any]]) -> Committed:
        try:
            committed = await self._transactions.run(units)
        except Exception:
            self._done += units if len(units) == 1 else []
            raise
        self._done += units
        return committed


class Process:
    """A replica that keeps its writers' holds as the scheduler does, and goes on with those that it lost."""

    def __init__(self, process: str, database: Database, done: list[Unit[Any]]) -> None:
        self.process, self.database = process, database
        self.holds: dict[TurnId, list[Hold]] = {turn: [] for turn in TURNS}
        self.committer = Committer(Watched(Transactions(database), done), self)

    def committed(self, ledger: Ledger) -> None:
        for turn in ledger.turns.changed.values():
            holds = self.holds[turn.id]
            for hold in holds:
                if hold.writer == turn.writer:
                    hold.line = turn.line
            if turn.held and turn.process == self.process and turn.writer not in {hold.writer for hold in holds}:
                holds.insert(0, Hold(turn.id, turn.writer, turn.line))

    async def commit(self, *units: Unit[Any]) -> None:
        """Submit units and wait until all are done."""
        await asyncio.gather(*map(self.committer.submit, units))

    def unit(self, step: Step, word: str) -> tuple[Unit[Any], Hold | None] | None:
        """Return what a step submits; None where it has no such hold."""
        if step.what == "take":
            return TakeTurn(step.turn, self.process), None
        if step.what == "resume":
            return ResumeTurn(step.turn, person("gus"), ()), None
        if len(self.holds[step.turn]) <= step.old:
            return None
        hold = self.holds[step.turn][step.old]
        match step.what:
            case "add":
                return append(hold, word), hold
            case "let go":
                return LetGo(hold, cause="It rests."), hold
            case "end":
                return EndTurn(hold, TurnEnd.FAILED), hold
            case "fickle":
                return Fickle(hold), hold
            case _:
                return append(hold, POISON), hold


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """A database that takes no poison."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runtime.db"
        migrate(f"sqlite:///{file}")
        with closing(sqlite3.connect(file)) as database:
            database.execute(
                f"CREATE TRIGGER poison BEFORE INSERT ON records WHEN NEW.facts LIKE '%{POISON}%'"
                " BEGIN SELECT RAISE(ABORT, 'poison'); END"
            )
        yield file


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bursts)
@example(
    [
        [Step(0, "take", TURNS[0], 0, False), Step(0, "take", TURNS[1], 0, False)],
        # What a transaction refused that was undone, was not refused: the letting go stands.
        [
            Step(0, "let go", TURNS[0], 0, False),
            Step(0, "add", TURNS[0], 0, False),
            Step(0, POISON, TURNS[1], 0, False),
        ],
    ]
)
async def test_whatever_is_submitted_comes_to_what_the_model_says(template: Path, bursts: list[list[Step]]) -> None:
    """Stale units are dropped alone and a writer's later ones with them; a poisoned one fails alone; order is kept."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(template, folder)
        database = Database(f"sqlite:///{folder}/runtime.db")
        done: list[Unit[Any]] = []
        both = [Process(f"process-{n}", database, done) for n in range(2)]
        running = [asyncio.create_task(one.committer.run()) for one in both]
        for turn in TURNS:
            await both[0].commit(opened(turn), give(turn, turn))
        done.clear()
        model = Model()
        try:
            for number, burst in enumerate(bursts):
                await _hold_to_model(both, done, model, burst, f"burst-{number}")
            await _hold_to_rows(database, model)
        finally:
            for one in both:
                one.committer.close()
            await asyncio.gather(*running)
            await database.close()


async def _hold_to_model(
    both: Sequence[Process], done: list[Unit[Any]], model: Model, burst: list[Step], name: str
) -> None:
    """Submit a burst, and hold what each caller is told to what the model says, in the order in which it was done."""
    submitted: list[tuple[Step, str, Unit[Any], Hold | None, asyncio.Future[Any]]] = []
    for place, step in enumerate(burst):
        word = f"{name}-{place}"
        process = both[step.process]
        if (made := process.unit(step, word)) is not None:
            submitted.append((step, word, *made, process.committer.submit(made[0])))
        if step.waits:
            await asyncio.sleep(0)
    answers = await asyncio.gather(*(future for *_, future in submitted), return_exceptions=True)
    told = {id(unit): type(answer) for (_, _, unit, _, _), answer in zip(submitted, answers, strict=True)}
    by_id = {id(unit): (step, word, hold) for step, word, unit, hold, _ in submitted}
    in_order, done[:] = list(done), []

    assert [told[id(unit)] for unit in in_order] == [model.does(*by_id[id(unit)]) for unit in in_order]
    for number in range(len(both)):
        own = [unit for step, _, unit, _, _ in submitted if step.process == number]
        ran = [unit for unit in in_order if by_id[id(unit)][0].process == number]
        assert [id(unit) for unit in ran] == [id(unit) for unit in own]


async def _hold_to_rows(database: Database, model: Model) -> None:
    """Hold what is on disk to what the model has."""
    await assert_sound(database)
    rows = await database.read(lambda connection: connection.execute(select(tables.turns)).mappings().all())
    for row in rows:
        expected = model.rows[row["id"]]
        records = await Reading(database).records(row["id"])
        words = [record.what.why for record in records if isinstance(record.what, WriterStarted)]
        assert (row["state"], row["writer"]) == (expected.state, expected.writer)
        assert words == [word for word in expected.words if word != "end"]
        assert sum(isinstance(record.what, TurnEnded) for record in records) == expected.words.count("end")
