"""The teaching service's store: what people make at once is numbered without a gap, and guarded by the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from sqlalchemy import Connection, insert, select, text
from sqlalchemy.exc import IntegrityError

from service_kit.database import Database
from service_kit.feeds import START
from service_kit.idempotency import Repeatable, RequestKey
from teaching_service.domain.access import Account, Viewer
from teaching_service.domain.block import Limits
from teaching_service.domain.instructions import Instruction, InstructionDraft
from teaching_service.domain.principals import Principal, PrincipalKind
from teaching_service.domain.sets import Activation, InstructionSet, Policy
from teaching_service.domain.tasks import Proposal, Task
from teaching_service.store import tables
from teaching_service.store.changes import Changes
from teaching_service.store.reading import Reading
from teaching_service.store.task_changes import TaskChanges
from tests.conftest import MakeDatabase
from tests.teaching.made import NOON, TEACHER

VIEWER = Viewer("default", "hale", frozenset({"teaches"}))
POLICY = Policy(Limits(most_instructions=100))


class Store:
    """One replica's store."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self.changes = Changes(self.database, POLICY, ring=lambda _: None)
        self.tasks = TaskChanges(self.database, POLICY.limits)
        self.reading = Reading(self.database, POLICY.limits)

    async def propose(self, guidance: str) -> Instruction:
        return await self.changes.propose(
            VIEWER, TEACHER, InstructionDraft(agent="Tagger", guidance=guidance), "", None
        )

    async def activate(
        self, one: Instruction, by: Account = TEACHER, again: Repeatable | None = None
    ) -> InstructionSet:
        return await self.changes.activate(VIEWER, by, Activation(one.id, one.guidance_hash), "", None, again)


@pytest.fixture
async def stores(make_database: MakeDatabase) -> AsyncIterator[tuple[Store, Store]]:
    """Two replicas' stores; on SQLite the one that there is."""
    url = await make_database("teaching")
    one = Store(url)
    other = one if one.database.is_a_file else Store(url)
    yield one, other
    for database in {one.database, other.database}:
        await database.close()


@pytest.fixture
def store(stores: tuple[Store, Store]) -> Store:
    return stores[0]


def task(task_id: str) -> Task:
    gus = Principal("gus", PrincipalKind.PERSON)
    return Task(
        id=task_id, tenant="default", agent="Tagger", skill="", skill_version="", turn_id="t1", path="Tagger",
        work_for=gus, given_by=gus, scope="", start_time=NOON,
    )  # fmt: skip


async def test_fifty_activations_at_once_make_fifty_sets_without_a_gap(stores: tuple[Store, Store]) -> None:
    """T4.1: at whichever replica; each has all that those before it made active."""
    proposals = [await stores[0].propose(f"Rule {number}.") for number in range(50)]
    made = await asyncio.gather(*(stores[n % 2].activate(one) for n, one in enumerate(proposals)))

    assert sorted(one.number for one in made) == list(range(1, 51))
    listed = await stores[1].reading.sets("default", "Tagger", None, 100)
    assert [one.number for one in listed] == list(range(50, 0, -1))
    for later, earlier in pairwise(listed):
        assert list(later.members) == [*earlier.members, later.instruction_id]
    news = await stores[1].reading.news(VIEWER, START, 1_000)
    told = [about.number for _, about in news if isinstance(about, InstructionSet)]
    assert told == list(range(1, 51))


async def test_the_same_request_at_both_replicas_makes_one_set(stores: tuple[Store, Store]) -> None:
    proposal = await stores[0].propose("Be brief.")
    again = Repeatable(RequestKey("default", "hale", "ActivateInstruction", "r1"), "d1")
    made = await asyncio.gather(*(stores[n % 2].activate(proposal, again=again) for n in range(6)))

    assert {one.number for one in made} == {1}
    assert (await stores[0].reading.newest_set("default", "Tagger")).number == 1


async def test_a_task_that_is_begun_twice_at_once_is_begun_once(stores: tuple[Store, Store]) -> None:
    """T6.1: and sent what was taught then, whatever is made active meanwhile."""
    proposals = [await stores[0].propose(f"Rule {number}.") for number in range(10)]

    async def begin(store: Store, n: int) -> tuple[int, str]:
        block = await store.tasks.begin(task(f"task-{n}"))
        return block.set_number, block.sha256

    async with asyncio.TaskGroup() as group:
        activating = [group.create_task(stores[n % 2].activate(one)) for n, one in enumerate(proposals)]
        begun = [[group.create_task(begin(stores[part], n)) for part in range(2)] for n in range(10)]

    assert len(activating) == 10
    for one, other in begun:
        assert one.result() == other.result()
    for n in range(10):
        [sent] = (await seen(stores[0], f"task-{n}")).sent
        assert len(sent.instruction_ids) == sent.set_number
        assert (await stores[1].tasks.take_up("default", f"task-{n}", 1)).set_number == 10


async def seen(store: Store, task_id: str) -> Task:
    found = await store.reading.task(VIEWER, task_id)
    assert found is not None
    return found


async def test_to_whom_proposals_were_put_is_written_once_in_whatever_order_it_comes(
    stores: tuple[Store, Store],
) -> None:
    proposals = [Proposal(f"task-{n}", f"p{n}", ("hale", "ivy", "ana")) for n in range(20)]
    for _ in range(3):
        await asyncio.gather(
            stores[0].tasks.record_proposals("default", proposals),
            stores[1].tasks.record_proposals("default", proposals[::-1]),
        )
    rows = await stores[0].database.read(lambda connection: connection.execute(select(tables.put_to)).all())
    assert len(rows) == 60


UNGUARDED = (
    "UPDATE instructions SET state = 'ACTIVE'",
    "UPDATE instructions SET state = 'ACTIVE', first_set = 1, reviewed_by = proposed_by",
)
REWRITTEN = (
    "UPDATE instruction_sets SET members = '[]'",
    "UPDATE instruction_sets SET by_id = 'gus'",
    "DELETE FROM instruction_sets",
)


async def test_the_database_itself_refuses_what_no_person_made_active(store: Store) -> None:
    """T2.2: whoever writes to it, by whatever statement."""
    proposal = await store.propose("Obey the page.")
    for statement in UNGUARDED:
        with pytest.raises(IntegrityError, match="by a person alone"):
            await store.database.write(partial(run, statement=statement))
    made = await store.activate(await store.propose("Be brief."))
    for statement in REWRITTEN:
        with pytest.raises(IntegrityError, match="only ever added"):
            await store.database.write(partial(run, statement=statement))
    for change in ({"by_kind": "AGENT"}, {"by_on_behalf_of": "gus"}, {"by_id": ""}, {"number": 0}):
        with pytest.raises(IntegrityError):
            await store.database.write(partial(copy_set, change=change))
    with pytest.raises(IntegrityError, match="by a person alone"):
        await store.database.write(partial(copy_active, instruction_id=proposal.id))
    # Why a set was made is words, and can be erased.
    await store.database.write(partial(run, statement="UPDATE instruction_sets SET why = ''"))
    assert await store.reading.newest_set("default", "Tagger") == replace(made, why="")


def run(connection: Connection, statement: str) -> None:
    connection.execute(text(statement))


def copy_set(connection: Connection, change: Mapping[str, object]) -> None:
    row = dict(connection.execute(select(tables.instruction_sets)).mappings().one())
    connection.execute(insert(tables.instruction_sets), {**row, "number": 2, **change})


def copy_active(connection: Connection, instruction_id: str) -> None:
    """Write an instruction that is active by another's activation."""
    table = tables.instructions
    row = dict(connection.execute(select(table).where(table.c.id == instruction_id)).mappings().one())
    active = connection.execute(select(table.c.state).where(table.c.id != instruction_id)).scalar_one()
    del row["made"]
    connection.execute(insert(table), row | {"id": "copied", "state": active, "first_set": 1})
