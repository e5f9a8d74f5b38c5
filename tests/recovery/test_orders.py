"""Every order of what is said of a turn: an answer, a stop, an expiry, a result, an end, and the turn's own letting go.

A first run of a turn tells its places, the units that make its course. Then there is one turn for each word at each
place (in a transaction of its own, or in that unit's, before or behind it), for each two words at each two places, and
for each three words in each order at one place: exhaustively, so that a wrong order is found surely. Who shares a
transaction with whom changes nothing (`test_one_transaction.py`), so two and three words come apart. All turns share
one service. `make test` tries a share of them, another one by `TUTELAGE_SEED`; `make test-long` tries all.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import structlog
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalRule, ApprovalSetting, NamesRule

import runtime_service.server
from runtime_service.domain.approvals import ApprovalState
from runtime_service.domain.calls import Outcome
from runtime_service.domain.journal import (
    ApprovalAsked,
    ApprovalRecorded,
    LateResult,
    ModelReplied,
    Record,
    ToolDone,
    ToolEnd,
    ToolStarted,
    TurnEnded,
    UnfinishedResolved,
)
from runtime_service.domain.problems import RuntimeProblem
from runtime_service.domain.turns import TurnState
from runtime_service.store.reading import Reading
from service_kit.database import Database
from tests.recovery.hand_host import HandHost, changes, failed, reads, returned
from tests.recovery.house import House, Rules, house, until
from tests.recovery.orders import Course, OrderedCommitter, Where, Word

ALL = int(os.environ.get("TUTELAGE_ROUNDS", "1")) > 1
SEED = int(os.environ.get("TUTELAGE_SEED", "0"))
SINGLE, MORE = 90, 60
AT_ONCE = 400
ASKED = ApprovalSetting(rule=ApprovalRule(names=NamesRule(names=["write"]), expires_after_seconds=3600))
# What a model is told of a call, by what became of the question about it.
ENDS = {
    ApprovalState.APPROVED: {ToolEnd.RETURNED, ToolEnd.FAILED, ToolEnd.RESOLVED},
    ApprovalState.DENIED: {ToolEnd.REFUSED},
    ApprovalState.EXPIRED: {ToolEnd.REFUSED},
    ApprovalState.SUPERSEDED: {ToolEnd.SUPERSEDED},
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A turn to be spoken of, and the words that there are."""

    name: str
    rules: Rules
    words: tuple[str, ...]
    below: tuple[str, ...] = ()


def _calls(*tools: str) -> Rules:
    calls = [{"tool": tool, "input": {"input": "go"} if tool == "low" else {}} for tool in tools]
    return [{"when": "step == 0", "calls": calls}, {"say": "Done."}]


SCENES = (
    Scene("one", _calls("look", "write"), ("yes0", "no0", "expiry0", "fall0", "stop", "result0", "not_run0", "lost0")),
    Scene("two", _calls("write", "write"), ("yes0", "no0", "yes1", "no1", "expiry1", "fall0", "stop", "result0")),
    Scene("deep", _calls("low"), ("yes0", "no0", "expiry0", "fall0", "stop"), below=("low",)),
    Scene("hang", _calls("hang"), ("result0", "not_run0", "lost0", "seen0", "again0", "again1", "result1", "stop")),
)


@dataclass
class Stage:
    """A service whose committer takes words, and a host that answers at once, but for what hangs."""

    here: House
    host: HandHost

    async def play(self, scene: Scene, courses: Sequence[Course]) -> None:
        """Have turns run their courses, so many at once, each to its end."""
        for start in range(0, len(courses), AT_ONCE):
            some = courses[start : start + AT_ONCE]
            await asyncio.gather(*(self._begin(scene, course) for course in some))

            async def all_over(some: Sequence[Course] = some) -> bool:
                return all(course.over for course in some)

            try:
                await until(all_over, "every turn's end", 30 + len(some) / 10)
            except AssertionError:
                left = "\n".join(f"{one}: {one.turn and one.turn.state}, {one.units}" for one in some if not one.over)
                raise AssertionError(f"what waits for ever:\n{left}") from None

    async def _begin(self, scene: Scene, course: Course) -> None:
        words = f"{scene.name} {len(OrderedCommitter.courses)}"
        OrderedCommitter.courses[words] = course
        await self.here.start(await self.here.conversation(scene.name, ASKED), words)

    async def answer(self) -> None:
        """Be the host: answer all that came, at once; what hangs is given up when nobody waits for it any more."""
        stream, looked = self.host.stream, 0
        while True:
            await asyncio.sleep(0.005)
            calls = [await stream.call() for _ in range(stream.unread)]
            results = [returned(call) for call in calls if call.tool != "hang" or call.attempt > 1]
            new, looked = stream.seen[looked:], len(stream.seen)
            results += [failed(call_id, "stopped") for kind, call_id in new if kind == "cancelled"]
            if results:
                await self.host.say(*results)


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """The stage of all orders."""
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
        stack.callback(structlog.reset_defaults)
        patch.setattr(runtime_service.server, "Committer", OrderedCommitter)
        here = await stack.enter_async_context(house(tmp_path_factory.mktemp("orders")))
        tools = [reads("look"), changes("write"), changes("hang")]
        host = await stack.enter_async_context(HandHost(here, *tools, capacity=100_000))
        await host.connect()
        made = Stage(here, host)
        answering = asyncio.create_task(made.answer())
        await here.agent("low", _calls("write"), ["write"])
        for scene in SCENES:
            await here.agent(scene.name, scene.rules, ["look", "write", "hang"], below=scene.below)
        yield made
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
async def test_every_order(stage: Stage, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """R3.1, R5.1, R6.5, 24, 24d: whatever comes when, the turn goes on to its end; every word counts or is refused."""
    plain = Course(())
    await stage.play(scene, [plain])
    single = list(_singles(scene, plain))
    more = [*_pairs(scene, plain), *_triples(scene, plain)]
    chance = random.Random(SEED)
    chosen = [*single, *more] if ALL else [*chance.sample(single, SINGLE), *chance.sample(more, MORE)]
    courses = [Course(words) for words in chosen]
    await stage.play(scene, courses)
    tried = sum(not course.unsaid for course in courses)
    with capsys.disabled():
        print(f"\n{scene.name}: {tried} of {len(single) + len(more)} orders tried, at {len(plain.units)} places")  # noqa: T201
    await _hold_all(stage.here, [plain, *courses])
    await stage.here.assert_sound()


def _speakable(scene: Scene, plain: Course) -> dict[int, list[str]]:
    """Return what can be said at each place: of questions that were asked by then, and calls that were started."""
    found = {}
    for place, (approvals, calls) in enumerate(plain.known, 1):
        about_calls = ("result", "not_run", "lost", "seen", "again")
        found[place] = [
            word
            for word in scene.words
            if word == "stop" or int(word[-1]) < (calls if word.startswith(about_calls) else approvals)
        ]
    return found


def _singles(scene: Scene, plain: Course) -> Iterator[tuple[Word, ...]]:
    for place, words in _speakable(scene, plain).items():
        yield from ((Word(word, place, where),) for word in words for where in Where)


def _pairs(scene: Scene, plain: Course) -> Iterator[tuple[Word, ...]]:
    speakable = _speakable(scene, plain)
    for (first, others), (second, more) in itertools.combinations_with_replacement(speakable.items(), 2):
        for one, other in itertools.product(others, more):
            if one != other:
                yield Word(one, first, Where.APART), Word(other, second, Where.APART)


def _triples(scene: Scene, plain: Course) -> Iterator[tuple[Word, ...]]:
    for place, words in _speakable(scene, plain).items():
        for three in itertools.permutations(words, 3):
            yield tuple(Word(word, place, Where.APART) for word in three)


# What must hold


async def _hold_all(here: House, courses: Sequence[Course]) -> None:
    database = Database(f"sqlite:///{here.database}")
    wrong = []
    try:
        reading = Reading(database)
        for course in courses:
            assert course.turn is not None
            try:
                _hold(course, await reading.records(course.turn.id))
            except AssertionError as problem:
                wrong.append(f"{course}: {problem}")
    finally:
        await database.close()
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])


def _hold(course: Course, records: Sequence[Record]) -> None:
    """Hold a turn that has ended to what was promised, by its journal and by its rows."""
    turn = course.turn
    assert turn is not None
    for word, answer in course.said:
        problem = answer.exception()
        assert problem is None or isinstance(problem, RuntimeProblem), f"{word}: {problem!r}"
    stopped = any(word.what == "stop" and answer.exception() is None for word, answer in course.said)
    assert turn.state is (TurnState.ABANDONED if stopped else TurnState.DONE), turn.state
    whats = [record.what for record in records]
    while isinstance(whats[-1], LateResult):
        whats.pop()
    ended = whats[-1]
    assert isinstance(ended, TurnEnded)
    assert ended.end.name == turn.state.name
    _hold_starts(course, records)
    _hold_approvals(course, records, done=not stopped)
    if not stopped:
        _hold_results(course, records)


def _hold_starts(course: Course, records: Sequence[Record]) -> None:
    """No tool was started oftener than somebody said that it did not run, or to run it again."""
    started = Counter(call.address for call in course.calls.values())
    allowed = Counter(call.address for call in course.calls.values() if call.did_not_run)
    again = {r.what.call_id for r in records if isinstance(r.what, UnfinishedResolved) and r.what.run_again}
    allowed += Counter(call.address for call in course.calls.values() if call.id in again)
    for address, count in started.items():
        assert count <= 1 + allowed[address], f"{address} was started {count} times"
    recorded = {record.what.call_id for record in records if isinstance(record.what, ToolStarted)}
    assert recorded == set(course.calls), "a start is not in both, journal and rows"


def _hold_approvals(course: Course, records: Sequence[Record], *, done: bool) -> None:
    """A call starts on a yes that stands; journal and rows agree; nothing waits any more."""
    asked = {record.what.approval_id for record in records if isinstance(record.what, ApprovalAsked)}
    assert asked == set(course.approvals)
    copies = {r.what.approval_id: r.what for r in records if isinstance(r.what, ApprovalRecorded)}
    started_on = {call.approval_id for call in course.calls.values()}
    for approval in course.approvals.values():
        assert approval.state is not ApprovalState.PENDING
        assert approval.id not in started_on or approval.state is ApprovalState.APPROVED, approval.state
        copy = copies.get(approval.id)
        if done:
            assert not approval.to_copy
            assert copy is not None, f"{approval.state} was not copied"
        if copy is not None:
            # What was copied may have fallen since, where the turn was stopped before that was copied too.
            fell = not done and (approval.to_copy or approval.state is ApprovalState.WITHDRAWN)
            assert copy.state is approval.state or fell, (copy.state, approval.state)
            assert copy.answers == approval.answers


def _hold_results(course: Course, records: Sequence[Record]) -> None:
    """Each call of each reply has one result, which says what became of it."""
    replied = [(record.address, record.what) for record in records if isinstance(record.what, ModelReplied)]
    asked = Counter((address, call.invocation) for address, reply in replied for call in reply.calls)
    dones = [(record.address, record.what) for record in records if isinstance(record.what, ToolDone)]
    assert Counter((address, done.invocation) for address, done in dones) == asked
    assert set(asked.values()) == {1}
    for address, done in dones:
        about = [
            approval
            for approval in course.approvals.values()
            if approval.address.rpartition("/")[0] == address and approval.invocation == done.invocation
        ]
        if about:
            assert done.end in ENDS[about[-1].state], (done.end, about[-1].state)
    for call in course.calls.values():
        assert not call.open, f"{call.address} has no end"
        assert not call.to_copy, f"a word about {call.address} was not copied"
        # A word that came after a person's is evidence; that it did not run is nothing to keep.
        said = call.result is not None and call.result.outcome is not Outcome.NOT_RUN
        assert call.late == (said and call.resolution is not None), call
