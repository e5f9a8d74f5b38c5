"""Units that share a transaction come to what they come to one after the other (`runtime.md` R5.5).

Every two and every three of what can happen to a turn, in every order, in every way to divide them into transactions,
against a real database: whoever shares a transaction with whom is chance, so it may change nothing.

In each case a turn runs, one question of it waits, one of its calls is under way at a host, another may have run.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Table, select

from runtime_service.domain.addresses import Address
from runtime_service.domain.approvals import Answer, Approval, ApprovalState, Decision
from runtime_service.domain.calls import Call, Outcome, Resolution, Resolve, Result
from runtime_service.domain.effects import Effects
from runtime_service.domain.hosts import CallId, Hello, Incarnation, Session
from runtime_service.domain.journal import ApprovalRecorded, ModelReplied, ToolStarted, TurnEnd, WriterStarted
from runtime_service.domain.ledger import Committed, Hold, Ledger, Needs, Unit
from runtime_service.domain.principals import Principal, PrincipalKind, Proof
from runtime_service.domain.rules import ApprovalRule, RuleKind
from runtime_service.domain.turns import Conversation, Turn, TurnId, TurnState
from runtime_service.engine.units.approvals import DecideApproval, ExpireApprovals, SupersedeQuestions
from runtime_service.engine.units.calls import MarkUnfinished, StartCall
from runtime_service.engine.units.hosts import EndSession, OpenSession, TakeResults
from runtime_service.engine.units.resuming import ResumeTurn
from runtime_service.engine.units.turns import AbandonTurn, Append, EndTurn, LetGo, TakeTurn
from runtime_service.store import tables
from runtime_service.store.leases import Leases
from runtime_service.store.migrations import migrate
from runtime_service.store.transactions import Transactions
from service_kit.database import Database

ALL = int(os.environ.get("TUTELAGE_ROUNDS", "1")) > 1
SEED = int(os.environ.get("TUTELAGE_SEED", "0"))
SAMPLE = 100
AT_ONCE = 100
ANN = Principal("ann", PrincipalKind.PERSON)
PROOF = Proof(issuer="here")
RULE = ApprovalRule(RuleKind.CHANGES, put_to=("ann",))
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
# How many of three units come in the first transaction, in the second, in the third.
APART: tuple[int, ...] = (1, 1, 1)
DIVISIONS: tuple[tuple[int, ...], ...] = ((3,), (1, 2), (2, 1))


@dataclass
class Case:
    """A turn of its own, and what happens to it."""

    number: int
    words: tuple[str, ...]
    division: tuple[int, ...]
    answers: list[Any] = field(default_factory=list)
    # What the feeds tell of it, in order.
    news: list[tuple[str, str, str]] = field(default_factory=list)
    hold: Hold = field(init=False)

    def __post_init__(self) -> None:
        self.hold = Hold(TurnId(self.name("turn")), 1, 2)

    def name(self, what: str) -> str:
        """Name a thing of this case."""
        return f"{self.number:06}-{what}"

    def batches(self) -> Iterator[list[Unit[Any]]]:
        """Return the units of each transaction, made as it begins."""
        words = iter(self.words)
        for count in self.division:
            yield [WORDS[word](self) for word in itertools.islice(words, count)]

    def heard(self, ledger: Ledger) -> None:
        """Learn what the writer learns of a commit."""
        turn = ledger.turns.get(self.hold.turn_id)
        if turn is not None and turn.writer == self.hold.writer:
            self.hold.line = turn.line
        elif turn is not None:
            self.hold.lost = True


# What there is, and what can happen


@dataclass(frozen=True, slots=True)
class Prepare:
    """Write what a case begins with."""

    case: Case

    @property
    def needs(self) -> Needs:
        return Needs()

    def run(self, ledger: Ledger) -> None:
        case = self.case
        turn = Turn(
            id=case.hold.turn_id, tenant="t", root_id=case.hold.turn_id, conversation_id=case.name("conversation"),
            number=1, agent="agent", agent_version="1", skill="", input="go", work_for=ANN, given_by=ANN, scope="",
            settings=(), state=TurnState.RUNNING, create_time=NOON, update_time=NOON, writer=1, process="p",
        )  # fmt: skip
        conversation = Conversation(case.name("conversation"), "t", "agent", None, ANN, NOON, turns=1)
        ledger.conversations.put(conversation.key, conversation)
        started = WriterStarted(process="p", why="given")
        replied = ModelReplied("", "m", "", (), 1, 1, 0, "", "")
        ledger.append(ledger.put_turn(turn), [("agent", started), ("agent", replied)])
        ledger.approvals.put(case.name("question"), _approval(case))
        incarnation = Incarnation(case.name("host"))
        ledger.sessions.put(incarnation, Session(incarnation, "t", "hand", "h", 1, "p", NOON))
        for call in (_call(case, 1), replace(_call(case, 2), unfinished=True)):
            ledger.calls.put(call.id, call)


def _approval(case: Case) -> Approval:
    return Approval(
        id=case.name("question"), turn_id=case.hold.turn_id, asking_turn_id=case.hold.turn_id, tenant="t",
        agent="agent", path="agent/write", invocation=3, address=Address("agent/write#3"), tool="write",
        input_json="{}", effects=Effects.CHANGES, fingerprint="f", work_for=ANN, given_by=ANN, put_to=("ann",),
        ask_time=NOON, expire_time=datetime(2100, 1, 1, tzinfo=UTC), rule=RULE, task_id=case.name("task"), step=1,
    )  # fmt: skip


def _call(case: Case, number: int, approval_id: str = "") -> Call:
    return Call(
        id=CallId(case.name(f"call{number}")), tenant="t", turn_id=case.hold.turn_id,
        address=f"agent/write#{number}", invocation=number, tool="write", input_json="{}", attempt=1, host="h",
        incarnation=Incarnation(case.name("host")), session=1, timeout_seconds=600, start_time=NOON,
        deadline=datetime(2100, 1, 1, tzinfo=UTC), approval_id=approval_id,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Later:
    """A unit whose clock runs ahead: what would expire in time has expired."""

    unit: Unit[Any]

    @property
    def needs(self) -> Needs:
        return self.unit.needs

    def run(self, ledger: Ledger) -> Any:
        now, ledger.now = ledger.now, ledger.now + timedelta(days=365 * 100)
        try:
            return self.unit.run(ledger)
        finally:
            ledger.now = now


def _decides(decision: Decision) -> Callable[[Case], Unit[Any]]:
    answer = Answer(decision, ANN, proof=PROOF)
    return lambda case: DecideApproval(case.name("question"), "t", answer, "f", frozenset())


def _reports(number: int, outcome: Outcome) -> Callable[[Case], Unit[Any]]:
    result = Result(outcome, '"ok"' if outcome is Outcome.RETURNED else "")
    return lambda case: TakeResults(
        Incarnation(case.name("host")), "t", "hand", {CallId(case.name(f"call{number}")): result}
    )


def _resolves(resolve: Resolve) -> Callable[[Case], Unit[Any]]:
    word = Resolution(resolve, '"seen"' if resolve is Resolve.OUTPUT else "", ANN, PROOF)
    return lambda case: ResumeTurn(case.hold.turn_id, ANN, [(CallId(case.name("call2")), word)])


def _hello(*holding: str) -> Callable[[Case], Unit[Any]]:
    def unit(case: Case) -> Unit[Any]:
        held = frozenset(CallId(case.name(one)) for one in holding)
        return OpenSession(Hello("t", "hand", "h", Incarnation(case.name("host")), (), 0, held), "p")

    return unit


def _starts(number: int, approval: str = "") -> Callable[[Case], Unit[Any]]:
    def unit(case: Case) -> Unit[Any]:
        call = _call(case, number, case.name(approval) if approval else "")
        record = ToolStarted(call.id, number, "write", "{}", Effects.CHANGES, 1, "", "h", call.incarnation, 1)
        return StartCall(case.hold, "agent", record, call)

    return unit


def _copies(case: Case) -> Unit[Any]:
    ids = (CallId(case.name("call1")), CallId(case.name("call2")))
    yes = ApprovalRecorded(case.name("question"), ApprovalState.APPROVED, ())
    return Append(case.hold, [("agent", yes)], copied_results=ids, copied_resolutions=ids)


WORDS: Mapping[str, Callable[[Case], Unit[Any]]] = {
    "yes": _decides(Decision.APPROVE),
    "no": _decides(Decision.DENY),
    "expiry": lambda case: Later(ExpireApprovals((case.name("question"),))),
    "fall": lambda case: SupersedeQuestions((case.name("question"),)),
    "stop": lambda case: AbandonTurn(case.hold.turn_id, ANN, "enough", "q"),
    "result": _reports(1, Outcome.RETURNED),
    "not run": _reports(1, Outcome.NOT_RUN),
    "late result": _reports(2, Outcome.RETURNED),
    "late not run": _reports(2, Outcome.NOT_RUN),
    "third result": _reports(3, Outcome.RETURNED),
    "seen": _resolves(Resolve.OUTPUT),
    "run again": _resolves(Resolve.RUN_AGAIN),
    "hello": _hello(),
    "hello that holds": _hello("call1", "call2", "call3", "call4"),
    "session ends": lambda case: EndSession(Incarnation(case.name("host")), 1),
    "start": _starts(3),
    "start on a yes": _starts(4, "question"),
    "lost": lambda case: MarkUnfinished(case.hold, CallId(case.name("call1"))),
    "copy": _copies,
    "wait": lambda case: LetGo(case.hold, ""),
    "interrupt": lambda case: LetGo(case.hold, "it may have run", awaits_tools=("write",)),
    "end": lambda case: EndTurn(case.hold, TurnEnd.DONE, "done"),
    "take": lambda case: TakeTurn(case.hold.turn_id, "p"),
}


# One after the other, and together


@pytest.fixture
async def database(tmp_path: Path) -> Any:
    """A database with a process whose lease runs."""
    url = f"sqlite:///{tmp_path / 'rows.db'}"
    await asyncio.to_thread(migrate, url)
    opened = Database(url)
    await Leases(opened).begin("p", 3600.0)
    yield opened
    await opened.close()


async def test_whoever_shares_a_transaction_changes_nothing(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """R5.5, A12, D9: all orders of three, each divided in every way."""
    orders = list(itertools.permutations(WORDS, 3))
    chosen = orders if ALL else [*_of_two(), *random.Random(SEED).sample(orders, SAMPLE)]
    wrong: list[str] = []
    for start in range(0, len(chosen), AT_ONCE):
        some = chosen[start : start + AT_ONCE]
        numbers = itertools.count(start * 4)
        cases = {
            (words, division): Case(next(numbers), words, division)
            for words in some
            for division in (APART, *DIVISIONS)
        }
        came_to = await _run(database, list(cases.values()))
        for words, division in itertools.product(some, DIVISIONS):
            apart, together = came_to[cases[words, APART].number], came_to[cases[words, division].number]
            wrong += [
                f"{', '.join(words)} as {division}: {what}\n  apart: {apart[what]}\n  together: {together[what]}"
                for what in apart
                if apart[what] != together[what]
            ]
    with capsys.disabled():
        print(f"\n{len(chosen)} of {len(orders)} orders of three, each divided in 4 ways")  # noqa: T201
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])


async def test_a_word_that_fell_before_it_was_copied_leaves_the_newer_one_to_copy(database: Database) -> None:
    """R3.1, R5.1: or else the turn could be let go of with a word that its writer has not copied."""
    fell = Case(1, ("yes", "fall", "copy"), APART)
    stood = Case(2, ("yes", "copy", "wait"), APART)
    let_go = Case(3, ("fall", "copy", "wait"), APART)
    came_to = await _run(database, [fell, stood, let_go])

    def to_copy(case: Case) -> tuple[str, str]:
        [question] = came_to[case.number]["question"]
        return question[0].removeprefix("ApprovalState."), question[-1]

    assert to_copy(fell) == ("SUPERSEDED", "True")
    assert to_copy(stood) == ("APPROVED", "False")
    assert let_go.answers[-1] is False


def _of_two() -> list[tuple[str, ...]]:
    """Every order of two, which are what most faults need."""
    return [(*two, "take") for two in itertools.permutations(WORDS, 2) if "take" not in two]


async def _run(database: Database, cases: Sequence[Case]) -> dict[int, dict[str, Any]]:
    """Run cases side by side, each in its own transactions' order; return what each came to."""
    transactions = Transactions(database)
    await transactions.run([Prepare(case) for case in cases])
    batches = {case.number: case.batches() for case in cases}
    while True:
        units = [(case, unit) for case in cases for unit in next(batches[case.number], ())]
        if not units:
            break
        done: Committed = await transactions.run([unit for _, unit in units])
        for (case, _), answer in zip(units, done.answers, strict=True):
            case.answers.append(answer)
        by_number = {case.number: case for case in cases}
        for news in done.ledger.news:
            number, _, subject = news.subject.partition("-")
            by_number[int(number)].news.append((news.feed, news.kind, subject))
        for case in {id(case): case for case, _ in units}.values():
            case.heard(done.ledger)
    return await database.read(lambda connection: {case.number: _came_to(connection, case) for case in cases})


def _came_to(connection: Connection, case: Case) -> dict[str, Any]:
    """Return all that a case left, without ids and times."""
    turn_id = case.hold.turn_id
    host = case.name("host")

    def rows(table: Table, where: Any, *names: str) -> list[tuple[Any, ...]]:
        found = connection.execute(select(*(table.c[name] for name in names)).where(where))
        return sorted(tuple(str(value).replace(f"{case.number:06}-", "") for value in row) for row in found)

    turns, approvals, calls, sessions = tables.turns, tables.approvals, tables.calls, tables.sessions
    records = tables.records
    flags = ("used", "closed", "to_copy")
    answers = [type(one).__name__ if isinstance(one, Exception) else "done" for one in case.answers]
    return {
        "answers": answers,
        "turn": rows(turns, turns.c.id == turn_id, "state", "cause", "writer", "process", "line", "output",
                     "awaits_tools", "ready_because", "tries"),
        "question": rows(approvals, approvals.c.asking_turn_id == turn_id, "state", "outcome", *flags),
        "calls": rows(calls, calls.c.turn_id == turn_id, "id", "session", "unfinished", "result", "resolution", "late",
                      "result_copied", "resolution_copied", "open", "to_copy"),
        "session": rows(sessions, sessions.c.incarnation == host, "number", "process"),
        "records": rows(records, records.c.turn_id == turn_id, "line", "writer", "address", "kind"),
        "news": case.news,
    }  # fmt: skip
