"""What waits for the disk and what does not: commits are held back, and what is sent meanwhile is seen (A16, R5.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from itertools import accumulate
from typing import Any

import pytest
from tutelage.tools import READS, tool

from runtime_service.domain.journal import kind_of
from runtime_service.domain.ledger import Committed, Unit
from runtime_service.engine.committer import Committer
from runtime_service.engine.host_session import HostSession, SendCall
from runtime_service.engine.units.calls import StartCall
from runtime_service.engine.units.turns import Append
from runtime_service.store.transactions import Transactions
from tests.services.book import Book
from tests.services.service import NOTHING_ASKED, Service, calls, within_deadline

pytestmark = pytest.mark.usefixtures("host")

READ = ("read_note", {"name": "spring"})
WRITE = ("write_note", {"name": "spring", "text": "tulips"})


class Disk:
    """The commits of this process and what hosts are sent, in their order. It can hold commits back.

    Of what a commit brought it tells the kinds of its records, and calls by their address.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self._came = asyncio.Event()
        # Holds from the first transaction on that has such a unit.
        self._holds: Callable[[Unit[Any]], bool] | None = None
        self._held = False
        self._may_end = asyncio.Semaphore(0)
        run, submit, send = Transactions.run, Committer.submit, HostSession.send

        async def held(transactions: Transactions, units: Sequence[Unit[Any]]) -> Committed:
            self._held = self._held or any(self._holds(unit) for unit in units) if self._holds else False
            if self._held:
                self.see("a commit is held")
                await self._may_end.acquire()
            done = await run(transactions, units)
            for unit in units:
                self.see(*_brought(unit))
            return done

        def submitted(committer: Committer, unit: Unit[Any]) -> asyncio.Future[Any]:
            if isinstance(unit, StartCall):
                self.see(f"submitted {unit.call.address}")
            return submit(committer, unit)

        def sent(session: HostSession, call: SendCall) -> None:
            self.see(f"sent {call.address}")
            send(session, call)

        monkeypatch.setattr(Transactions, "run", held)
        monkeypatch.setattr(Committer, "submit", submitted)
        monkeypatch.setattr(HostSession, "send", sent)

    def hold(self, holds: Callable[[Unit[Any]], bool]) -> None:
        """Let no transaction end any more, from the first on that has such a unit."""
        self._holds = holds

    def let_one_end(self) -> None:
        """Let one transaction end."""
        self._may_end.release()

    def let_go(self) -> None:
        """Hold nothing any more."""
        self._holds = None
        self._may_end.release()

    async def until(self, what: str, times: int = 1) -> None:
        """Wait until something was seen so often."""
        while self.seen.count(what) < times:
            self._came.clear()
            await within_deadline(self._came.wait())

    def see(self, *what: str) -> None:
        """Write down what was seen."""
        self.seen += what
        self._came.set()


def _brought(unit: Unit[Any]) -> Iterator[str]:
    match unit:
        case Append():
            yield from (f"wrote {kind_of(what)}" for _, what in unit.records)
        case StartCall():
            yield from ("wrote tool_started", f"wrote {unit.call.address}")
        case _:
            yield f"wrote {type(unit).__name__}"


@pytest.fixture
def disk(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The disk of the service."""
    disk = Disk(monkeypatch)
    yield disk
    disk.let_go()


async def test_reads_and_replies_are_not_waited_for_and_a_change_is(service: Service, book: Book, disk: Disk) -> None:
    """No commit can end: reads go out and come back, a change does not, and nothing is shown (A16, R5.2)."""
    watched = asyncio.Event()

    @tool(effects=READS)
    async def look() -> str:
        """Look until somebody watches."""
        await watched.wait()
        return "seen"

    await service.agent(
        "gardener",
        calls(READ, ("look", {}), when="step == 0"),
        calls(READ, when="step == 1", say="Looking."),
        calls(READ, WRITE, when="step == 2"),
        {"say": "Done."},
        approve=NOTHING_ASKED,
        tools=["read_note", "look", "write_note"],
    )
    reads = ["gardener/read_note#1", "gardener/look#2", "gardener/read_note#3", "gardener/read_note#4"]
    disk.hold(lambda unit: isinstance(unit, Append))
    async with service.host("looking", look):
        turn_id = await service.asked_of("gardener")
        watching = asyncio.create_task(_watch(service, turn_id, disk))
        await disk.until("shown writer_started")
        watched.set()
        await disk.until("submitted gardener/write_note#5")
        await disk.until(f"sent {reads[-1]}")

    assert len(service.paid("gardener")) == 3
    since = disk.seen[disk.seen.index("wrote TakeTurn") :]
    assert not [what for what in since if what.startswith("wrote") and what != "wrote TakeTurn"]
    assert [what for what in since if what.startswith("sent")] == [f"sent {address}" for address in reads]

    # The transaction that is held has the task's beginning alone; the next one all that came since.
    disk.let_one_end()
    await disk.until("a commit is held", 2)
    await disk.until("shown task_started")
    assert "sent gardener/write_note#5" not in disk.seen
    disk.let_go()
    await watching

    before_it = disk.seen[: disk.seen.index("sent gardener/write_note#5")]
    assert before_it.index("wrote gardener/write_note#5") > max(
        place for place, what in enumerate(before_it) if what == "wrote model_replied"
    )
    assert before_it.count("wrote model_replied") == 3
    assert len(book.runs("write_note")) == 1
    for kind in ("task_started", "model_replied", "tool_started", "tool_done"):
        told = [what for what in disk.seen if what in (f"wrote {kind}", f"shown {kind}")]
        assert never_ahead(told, "wrote"), told


async def _watch(service: Service, turn_id: str, disk: Disk) -> None:
    async with aclosing(service["gus"].watch_turn(turn_id)) as events:
        async for event in events:
            if event.HasField("record"):
                disk.see(f"shown {event.record.WhichOneof('what')}")


def never_ahead(events: Sequence[str], first: str) -> bool:
    """Whether there were never more of the others than of those that come first, and as many at last."""
    ahead = [0, *accumulate(1 if event.startswith(first) else -1 for event in events)]
    return min(ahead) == ahead[-1] == 0


async def test_every_change_is_on_disk_before_it_is_sent_though_many_go_out_at_once(
    service: Service, book: Book, disk: Disk
) -> None:
    """Commits counted against sends, over turns side by side (A16, R5.2)."""
    together = calls(*[READ, WRITE] * 4, when="step < 2")
    tools = ["read_note", "write_note"]
    await service.agent("gardener", together, {"say": "Done."}, approve=NOTHING_ASKED, tools=tools)

    turns = [await service.asked_of("gardener") for _ in range(4)]
    for turn_id in turns:
        await service.ended(turn_id)

    changes = [f"gardener/write_note#{number}" for number in range(2, 17, 2)]
    for address in changes:
        events = [what for what in disk.seen if what in (f"wrote {address}", f"sent {address}")]
        assert len(events) == 2 * len(turns)
        assert never_ahead(events, "wrote"), events
    assert len(book.runs("write_note")) == len(book.runs("read_note")) == len(changes) * len(turns)
