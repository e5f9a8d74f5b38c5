"""A commit whose answer was lost: what was kept is told as kept, what was not is done again (`runtime.md` R5.5)."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from sqlalchemy.engine import make_url

from runtime_service.domain.turns import Turn, TurnId
from runtime_service.engine.units.turns import LetGo, TakeTurn
from runtime_service.store import tables
from tests.conftest import MakeDatabase
from tests.cut import Cut, Proxy
from tests.store.made import append, assert_sound, give, opened, replicas

pytestmark = pytest.mark.parametrize("kind", ["postgresql"], indirect=True)


@pytest.mark.parametrize("cut", Cut)
async def test_units_whose_commit_was_not_answered_are_written_once(cut: Cut, make_database: MakeDatabase) -> None:
    """The last chain tells, or the database's log of transactions where no record was added; nobody is superseded."""
    proxy = Proxy(make_url(await make_database("runtime")))
    async with proxy.listening() as through, replicas(through.render_as_string(hide_password=False), 1) as [one]:
        await one.commit(opened(), give("a"))
        proxy.cut = cut
        [taken] = await one.commit(TakeTurn(TurnId("a"), one.process))
        for n in range(3):
            proxy.cut = cut
            [appended] = await one.commit(append(one.hold(taken.id), f"{n}"))
            assert isinstance(appended, Turn)
        proxy.cut = cut
        assert await one.commit(give("b")) == ["b"]
        proxy.cut = cut
        assert await one.commit(LetGo(one.hold(taken.id), cause="")) == [True]

        await assert_sound(one.database)
        rows = await one.database.read(
            lambda connection: connection.execute(select(tables.turns.c.id, tables.turns.c.line)).all()
        )
        assert sorted((row.id, row.line) for row in rows) == [("a", 5), ("b", 0)]
    assert proxy.cuts == 6
