"""Takes turns that are free, runs each under its own writer, and notices what was committed (`runtime.md` R6.1, R6.7).

Invariants:
- A writer is begun by the commit that took its turn, so it misses no word that was said since.
- A turn whose run ends in a way that nobody foresaw is handed back, later each time; it is never dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from runtime_service.domain.approvals import Approval
from runtime_service.domain.calls import Call
from runtime_service.domain.earlier import Earlier
from runtime_service.domain.journal import Record, TurnEnd
from runtime_service.domain.ledger import Ledger
from runtime_service.domain.problems import ApprovalRequired, LimitReached, PartUnavailable, WriterSuperseded
from runtime_service.domain.turns import Turn, TurnId, TurnState
from runtime_service.engine.agent_loop import AgentLoop
from runtime_service.engine.committer import Committer
from runtime_service.engine.gate import Gate
from runtime_service.engine.handing_back import OutputDoesNotFit
from runtime_service.engine.hosts import Hosts
from runtime_service.engine.lease import Lease
from runtime_service.engine.memory import DelegateCalls, Memory
from runtime_service.engine.models import ModelRefused, Models
from runtime_service.engine.toolbox import Catalogue, Toolbox
from runtime_service.engine.units.approvals import ExpireApprovals
from runtime_service.engine.units.turns import HandBack, TakeTurn, WakeTurns
from runtime_service.engine.words import Words
from runtime_service.engine.writer import Released, Stuck, Writer
from runtime_service.teaching_link import TEACHING, Teaching
from service_kit.errors import PartUnavailable as DatabaseAway

log = structlog.get_logger()

# How often the database is asked what is free, where nothing tells of it.
POLL_SECONDS = 1.0
MOST_RUNNING = 2_000
MOST_WOKEN_AT_ONCE = 1_000


class TurnStore(DelegateCalls, Protocol):
    """The store's side: what the scheduler looks up."""

    async def free_turns(self, most: int, not_these: Collection[TurnId]) -> Sequence[TurnId]:
        """Return turns that may be taken, the longest free first."""
        ...

    async def turns_awaiting(self, tenant: str | None, tools: Collection[str]) -> Sequence[TurnId]:
        """Return the interrupted turns, of a tenant or of all, that wait for one of these tools or parts."""
        ...

    async def expired_approvals(self, most: int) -> Sequence[str]:
        """Return the approvals that wait and whose time ran out."""
        ...

    async def records(self, turn_id: TurnId) -> Sequence[Record]:
        """Return a turn's records, in order."""
        ...

    async def earlier(self, turn: Turn) -> Earlier:
        """Return what the turns of its branch before it were asked and handed back (R9)."""
        ...


class Scheduler:
    """Runs turns. It listens to the committer."""

    def __init__(
        self,
        store: TurnStore,
        catalogue: Catalogue,
        models: Models,
        teaching: Teaching,
        lease: Lease,
        words: Words,
        *,
        tool_seconds: float,
        ring: Callable[[Iterable[str]], None],
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._models = models
        self._teaching = teaching
        self._lease = lease
        self._words = words
        self._tool_seconds = tool_seconds
        self._ring = ring
        self._writers: dict[TurnId, Writer] = {}
        self._free = asyncio.Event()
        self._new: list[Writer] = []
        # By tenant; None: whoever waits for it.
        self._arrived: dict[str | None, set[str]] = defaultdict(set)
        # Turns that this process holds and does not go on with, and why.
        self._to_hand_back: dict[TurnId, tuple[int, str]] = {}
        self._swept_at = 0.0
        self._stopping = False

    def join(self, committer: Committer, hosts: Hosts) -> None:
        """Take the parts that listen to this one in their turn."""
        self._committer = committer
        self._hosts = hosts
        self._toolbox = Toolbox(self._catalogue, hosts)
        self._lease.on_lapse.append(self._drop_all)

    # What was committed

    def committed(self, ledger: Ledger) -> None:
        """Look at what a transaction changed: begin and end writers, bring them words, tell who watches."""
        for turn in ledger.turns.changed.values():
            self._look_at(turn, ledger)
        for approval in ledger.approvals.changed.values():
            self._bring(approval)
        for call in ledger.calls.changed.values():
            self._bring_call(call)
        topics = {f"turn:{turn_id}" for turn_id in ledger.turns.changed}
        self._ring(topics | {f"feed:{news.feed}:{news.tenant}" for news in ledger.news})

    def _look_at(self, turn: Turn, ledger: Ledger) -> None:
        writer = self._writers.get(turn.id)
        if writer is not None and writer.hold.writer == turn.writer:
            writer.hold.line = turn.line
        elif writer is not None:
            writer.supersede()
        taken_now = writer is None or writer.hold.writer != turn.writer
        if turn.held and turn.process == self._lease.process and taken_now:
            begun = Writer(turn, ledger.approvals_of(turn.id), ledger.calls_of(turn.id), self._committer)
            self._writers[turn.id] = begun
            self._new.append(begun)
            self._free.set()
        elif turn.state is TurnState.READY:
            self._free.set()
        elif here := [tool for tool in turn.awaits_tools if self._hosts.offers(turn.tenant, tool)]:
            # A host came while the turn was being let go of.
            self._host_came(turn.tenant, here)

    def _bring(self, approval: Approval) -> None:
        writer = self._writers.get(TurnId(approval.asking_turn_id))
        if writer is not None:
            writer.hear_approval(approval)

    def _bring_call(self, call: Call) -> None:
        if (writer := self._writers.get(call.turn_id)) is not None:
            writer.hear_call(call)

    # Other replicas

    def held(self) -> Mapping[TurnId, int]:
        """Return the turns that are held here, with the number of each writer."""
        return {turn_id: writer.hold.writer for turn_id, writer in self._writers.items()}

    def hear(self, approvals: Sequence[Approval], calls: Sequence[Call], lost: Sequence[TurnId]) -> None:
        """Bring writers what was said of their turns elsewhere, and end those whose turn another writer took."""
        for approval in approvals:
            self._bring(approval)
        for call in calls:
            self._bring_call(call)
        for turn_id in lost:
            if (writer := self._writers.get(turn_id)) is not None:
                writer.supersede()

    # Taking and running

    async def run(self) -> None:
        """Take and run turns until `stop`; then hand back what is held."""
        self._hosts.on_arrival.append(self._host_came)
        self._teaching.on_return.append(self._teaching_came)
        running: set[asyncio.Task[None]] = set()
        # What was free before this process began is taken at once, not at the first poll.
        self._free.set()
        async with asyncio.TaskGroup() as group:
            while not self._stopping:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._free.wait()
                self._free.clear()
                new, self._new = self._new, []
                for writer in new:
                    task = group.create_task(self._run(writer))
                    running.add(task)
                    task.add_done_callback(running.discard)
                try:
                    await self._look_for_work()
                except Exception:
                    log.exception("scheduler.look_failed")
            for task in running:
                task.cancel()
        try:
            await self._hand_back()
        except PartUnavailable:
            # Their lease ends with this process: whoever comes next takes them over.
            log.warning("scheduler.not_handed_back", turns=len(self._to_hand_back))

    def stop(self) -> None:
        """Take no more, and hand back what is held: another process goes on with it, or the next one here."""
        self._stopping = True
        self._free.set()

    async def _look_for_work(self) -> None:
        await self._hand_back()
        await self._wake_awaiting()
        room = MOST_RUNNING - len(self._writers)
        if room > 0 and not self._stopping:
            free = await self._store.free_turns(room, self._writers.keys())
            taking = [self._committer.submit(TakeTurn(one, self._lease.process)) for one in free]
            if taking:
                await asyncio.wait(taking)
        if time.monotonic() - self._swept_at >= POLL_SECONDS:
            self._swept_at = time.monotonic()
            if expired := await self._store.expired_approvals(most=1_000):
                await self._committer.commit(ExpireApprovals(tuple(expired)))

    async def _wake_awaiting(self) -> None:
        """Make turns READY that were interrupted for want of something that is here now (R6.7)."""
        arrived, self._arrived = self._arrived, defaultdict(set)
        try:
            for tenant, tools in arrived.items():
                turn_ids = await self._store.turns_awaiting(tenant, tools)
                for start in range(0, len(turn_ids), MOST_WOKEN_AT_ONCE):
                    await self._committer.commit(WakeTurns(tuple(turn_ids[start : start + MOST_WOKEN_AT_ONCE])))
        except Exception:
            for tenant, tools in arrived.items():
                self._arrived[tenant] |= tools
            raise

    async def _hand_back(self) -> None:
        if not self._to_hand_back:
            return
        held = dict(self._to_hand_back)
        await self._committer.commit(HandBack(held))
        for turn_id in held:
            self._to_hand_back.pop(turn_id, None)

    def _host_came(self, tenant: str, tools: Iterable[str]) -> None:
        for tool in tools:
            self._arrived[tenant].add(tool)
            for writer in list(self._writers.values()):
                if writer.turn.tenant == tenant:
                    writer.wake(f"tool:{tool}")
        self._free.set()

    def _teaching_came(self) -> None:
        self._arrived[None].add(TEACHING)
        for writer in list(self._writers.values()):
            writer.wake(TEACHING)
        self._free.set()

    def _drop_all(self) -> None:
        """The lease lapsed: whatever is held may be another's by now."""
        for writer in self._writers.values():
            writer.supersede()

    async def _run(self, writer: Writer) -> None:
        """Run a turn until it ends, is let go of, or is lost."""
        turn = writer.turn
        over, cause = False, ""
        with structlog.contextvars.bound_contextvars(turn=turn.id, writer=turn.writer, tenant=turn.tenant):
            log.info("turn.taken", agent=turn.agent)
            try:
                await self._until_over(writer)
                over = True
            except* Released:
                over = True
                log.info("turn.let_go")
            except* WriterSuperseded:
                log.info("turn.superseded")
            except* Stuck as problems:
                await self._end(writer, TurnEnd.ABANDONED, cause=_first_sentence(problems))
                over = True
                log.info("turn.abandoned")
            except* (PartUnavailable, DatabaseAway) as problems:
                cause = str(problems.exceptions[0])
                log.warning("turn.part_unavailable")
            except* Exception:
                cause = "a defect of the service, which its log tells of"
                log.exception("turn.defect")
            finally:
                if self._writers.get(turn.id) is writer:
                    del self._writers[turn.id]
                if not over:
                    self._to_hand_back[turn.id] = (turn.writer, cause)
                self._free.set()

    async def _end(self, writer: Writer, end: TurnEnd, *, cause: str, needed_approval: str = "") -> None:
        """End a turn that did not hand back; hosts are told of what is under way all the same."""
        for call in await writer.end(end, cause=cause, needed_approval=needed_approval):
            self._hosts.cancel(call.incarnation, call.id)

    async def _until_over(self, writer: Writer) -> None:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(writer.let_go_when_at_rest())
            # The first writer finds what it has just written itself: nothing was done yet.
            writer.open(await self._store.records(writer.turn.id) if writer.turn.writer > 1 else [])
            earlier = await self._store.earlier(writer.turn)
            await self._to_its_end(writer, earlier)
            watching.cancel()

    async def _to_its_end(self, writer: Writer, earlier: Earlier) -> None:
        gate = Gate(writer, self._toolbox, self._hosts, self._teaching, tool_seconds=self._tool_seconds)
        memory = Memory(self._store, writer)
        loop = AgentLoop(
            writer, gate, self._models, self._toolbox, self._catalogue, self._teaching, self._words, memory
        )
        try:
            output = await loop.run(earlier)
        except* (ModelRefused, OutputDoesNotFit, LimitReached) as problems:
            await self._end(writer, TurnEnd.FAILED, cause=_first_sentence(problems))
            log.info("turn.failed")
        except* ApprovalRequired as problems:
            address = str(_first(problems).metadata["address"])
            cause = _first_sentence(problems)
            await self._end(writer, TurnEnd.FAILED, cause=cause, needed_approval=address)
            log.info("turn.needed_approval")
        else:
            await writer.end(TurnEnd.DONE, output=output)
            log.info("turn.done")


def _first_sentence(problems: BaseExceptionGroup[Exception]) -> str:
    return str(_first(problems))


def _first(problems: BaseExceptionGroup[Exception]) -> Any:
    first: BaseException = problems
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
