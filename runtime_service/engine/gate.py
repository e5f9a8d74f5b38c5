"""The one door to every tool: rule, question, answer, start, result (`runtime.md` R2, R3, R5.2, R6.5).

A call goes through the same steps whoever takes the turn: each step is found in the records, or else done and recorded.

Invariants:
- All calls of one reply are judged before any of them that changes things runs (R3.1).
- A call that changes things leaves the runtime only after its `ToolStarted`, which found its yes standing, is on disk.
- A call that was started is not started again, but for a host's `not_run` or a person's `run_again`.
- Every call gets exactly one `ToolDone`.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from runtime_service.domain import canonical_json, told
from runtime_service.domain.addresses import Address, below, path_of
from runtime_service.domain.agents import TEXT_SCHEMA, Shown
from runtime_service.domain.approvals import Approval, ApprovalState
from runtime_service.domain.calls import Call, Outcome, Resolve, Result
from runtime_service.domain.canonical_json import JsonProblem
from runtime_service.domain.effects import Declaration
from runtime_service.domain.fingerprints import FingerprintFields, fingerprint
from runtime_service.domain.hosts import CallId, Incarnation
from runtime_service.domain.journal import (
    ApprovalAsked,
    ApprovalRecorded,
    BlockReceipt,
    DecidedAtOnce,
    RequestedCall,
    TaskStarted,
    ToolDone,
    ToolEnd,
    ToolStarted,
    UnfinishedResolved,
)
from runtime_service.domain.problems import NoSuchThing
from runtime_service.domain.replay import CallPast
from runtime_service.domain.rules import (
    ApprovalRule,
    JudgedCall,
    Ruling,
    SettingInForce,
    Verdict,
    resolve_put_to,
    rule_on,
)
from runtime_service.domain.turns import Turn
from runtime_service.engine import schemas
from runtime_service.engine.hosts import Hosts, HostSession, ReadLost, SendCall
from runtime_service.engine.models import ModelRefused
from runtime_service.engine.toolbox import Toolbox
from runtime_service.engine.units.approvals import AskPeople, SupersedeQuestions
from runtime_service.engine.units.calls import MarkUnfinished, SessionEnded, StartCall, YesGone
from runtime_service.engine.writer import FOR_A_PERSON, Branches, Rest, Writer
from runtime_service.teaching_link import Teaching

MOST_INPUT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Task:
    """The work within which a call is made: what it began with, who is asked, what its model was shown."""

    address: Address
    started: TaskStarted
    # What its model was last told by people.
    block: BlockReceipt
    settings: tuple[SettingInForce, ...]
    tools: Mapping[str, Shown]
    # Which reply of its model is at work: 1 for the first.
    step: int = 0


@dataclass(frozen=True, slots=True)
class _Making:
    """One call on its way: what its model asked for, and the tool as it is shown now."""

    task: Task
    call: RequestedCall
    shown: Shown
    said: str

    @property
    def address(self) -> Address:
        return below(self.task.address, self.call.tool, self.call.invocation)


@dataclass(frozen=True, slots=True)
class _Question:
    """A call that people are to be asked about, and the ruling by which they are."""

    making: _Making
    ruling: Ruling


class _Declared(Exception):
    """The declaration is another one, or the yes covers something else: the gate looks again (R1.4, R3.5)."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown


class _Again(Exception):
    """What was answered was taken back meanwhile: the call is looked at again from its answer on."""


class _NotToBeHad(Exception):
    """No host came in time."""


RunAgent = Callable[[Task, RequestedCall, Shown, str], Awaitable[str]]


class Gate:
    """Takes the calls of one turn's models through, for one writer."""

    def __init__(
        self, writer: Writer, toolbox: Toolbox, hosts: Hosts, teaching: Teaching, *, tool_seconds: float
    ) -> None:
        self._writer = writer
        self._toolbox = toolbox
        self._hosts = hosts
        self._teaching = teaching
        self._tool_seconds = tool_seconds
        self._tenant = writer.turn.tenant

    async def perform(
        self, task: Task, said: str, calls: Sequence[RequestedCall], run_agent: RunAgent
    ) -> list[ToolDone]:
        """Take a reply's calls through, side by side; return their results, in the reply's order."""
        open_calls = [call for call in calls if self._past(task, call).done is None]
        makings = [making for call in open_calls if (making := self._make(task, said, call)) is not None]
        questions = [question for making in makings if (question := self._judge(making)) is not None]
        if questions:
            await self._ask(questions)
        left = [making for making in makings if self._past(task, making.call).done is None]
        if left:
            branches = self._writer.branches(len(left))
            async with asyncio.TaskGroup() as group:
                for making in left:
                    group.create_task(self._branch(branches, making, run_agent))
        results = [self._past(task, call).done for call in calls]
        assert all(results), "a call has no result"
        return [done for done in results if done is not None]

    async def _branch(self, branches: Branches, making: _Making, run_agent: RunAgent) -> None:
        try:
            await self._take_through(making, run_agent)
        finally:
            branches.ended()

    # Before anything runs: the input, the rules, the question

    def _make(self, task: Task, said: str, call: RequestedCall) -> _Making | None:
        """Look at what the model wrote; where it cannot run, tell the model and return None."""
        shown = task.tools.get(call.tool)
        if shown is None:
            self._done(task, call, ToolEnd.NOT_TO_BE_HAD, told.as_json(told.NO_SUCH_TOOL))
            return None
        making = _Making(task, call, shown, said)
        wrong = None if self._begun(making) else _input_problem(call.input_json, shown.declaration)
        if wrong is not None:
            self._done(task, call, ToolEnd.NOT_TO_BE_HAD, told.as_json(wrong))
            return None
        return making

    def _begun(self, making: _Making) -> bool:
        """Whether it was judged before: asked about, or started."""
        past = self._past(making.task, making.call)
        nested = self._writer.past.task(making.address).started
        return bool(past.asked or past.started or nested)

    def _judge(self, making: _Making) -> _Question | None:
        """Judge a call by all its settings; a refusal is told to the model at once."""
        if self._begun(making):
            return None
        ruling = self._rule_on(making)
        if ruling.verdict is Verdict.ASK:
            return _Question(making, ruling)
        if ruling.verdict is not Verdict.RUN:
            call = making.call
            decided = DecidedAtOnce(call.invocation, call.tool, ruling.asked_by, ruling.verdict, ruling.reason)
            self._writer.record(making.task.address, decided)
            self._done(making.task, call, ToolEnd.REFUSED, told.as_json(told.not_allowed(ruling.reason)))
        return None

    def _rule_on(self, making: _Making) -> Ruling:
        judged = JudgedCall(
            tool=making.call.tool,
            path=path_of(making.address),
            effects=self._toolbox.effects_now(self._tenant, making.shown),
            is_agent=bool(making.shown.agent),
        )
        return rule_on(making.task.settings, judged)

    async def _ask(self, questions: Sequence[_Question], instead_of: str = "") -> None:
        """Put questions to people: approvals, records and news in one transaction (R3.1)."""
        now = datetime.now(UTC)
        approvals, records = [], []
        for question in questions:
            approval, asked = self._question(question, now, instead_of)
            approvals.append(approval)
            records.append((question.making.task.address, asked))
        unit = AskPeople(self._writer.hold, approvals, records, instead_of)
        await self._writer.submit(unit)
        for address, asked in records:
            self._writer.past.add(address, asked)

    def _question(self, question: _Question, now: datetime, instead_of: str) -> tuple[Approval, ApprovalAsked]:
        making, turn = question.making, self._writer.turn
        task, call, declaration = making.task.started, making.call, making.shown.declaration
        assert question.ruling.rule is not None
        rule = replace(
            question.ruling.rule,
            put_to=resolve_put_to(question.ruling.rule, turn.work_for, turn.given_by),
        )
        expires = now + timedelta(seconds=rule.expires_after_seconds) if rule.expires_after_seconds else None
        covered = self._covered(making, rule)
        asked = ApprovalAsked(
            approval_id=uuid.uuid4().hex,
            invocation=call.invocation,
            tool=call.tool,
            input_json=call.input_json,
            fingerprint=fingerprint(covered),
            effects=covered.effects,
            declaration_hash=covered.declaration_hash,
            rule=rule,
            asked_by_rule=question.ruling.asked_by,
            agent_version=task.agent_version,
            skill_version=task.skill_version,
            instruction_set=covered.instruction_set,
            block_sha256=covered.block_sha256,
            expire_time=expires,
            supersedes=instead_of,
        )
        approval = Approval(
            id=asked.approval_id,
            tenant=turn.tenant,
            turn_id=turn.root_id,
            asking_turn_id=turn.id,
            task_id=task.task_id,
            step=making.task.step,
            conversation_id=turn.conversation_id,
            agent=turn.agent,
            path=path_of(making.address),
            invocation=call.invocation,
            address=making.address,
            tool=call.tool,
            tool_description=declaration.description,
            input_json=call.input_json,
            schema_json=declaration.input_schema_json,
            effects=asked.effects,
            fingerprint=asked.fingerprint,
            instruction_set=asked.instruction_set,
            said=making.said,
            work_for=turn.work_for,
            given_by=turn.given_by,
            scope=turn.scope,
            put_to=rule.put_to,
            approvals_needed=rule.approvals_needed,
            ask_time=now,
            expire_time=expires,
            supersedes=instead_of,
            asked_by_rule=asked.asked_by_rule,
            rule=rule,
            declaration_hash=asked.declaration_hash,
            agent_version=task.agent_version,
            skill=task.skill,
            skill_version=task.skill_version,
            block_sha256=asked.block_sha256,
        )
        return approval, asked

    def _covered(self, making: _Making, rule: ApprovalRule) -> FingerprintFields:
        """Return what a yes to this call covers, as it stands now (R3.5)."""
        task = making.task.started
        return FingerprintFields(
            turn_id=self._writer.turn.id,
            address=making.address,
            tool=making.call.tool,
            declaration_hash=making.shown.declaration.hash,
            input_json=making.call.input_json,
            effects=self._toolbox.effects_now(self._tenant, making.shown),
            rule=rule,
            agent_version=task.agent_version,
            skill_version=task.skill_version,
            instruction_set=making.task.block.instruction_set,
            block_sha256=making.task.block.sha256,
        )

    # One call, from its question to its result

    async def _take_through(self, making: _Making, run_agent: RunAgent) -> None:
        """Take one judged call to its result, asking anew wherever what would run is not what was judged."""
        making = await self._as_last_asked(making)
        while True:
            try:
                return await self._once(making, run_agent)
            except _Again:
                continue
            except _Declared as changed:
                making = replace(making, shown=changed.shown)
                if not await self._look_again(making):
                    return None
            except _NotToBeHad:
                return self._done(making.task, making.call, ToolEnd.NOT_TO_BE_HAD, told.as_json(told.NOT_TO_BE_HAD))

    async def _as_last_asked(self, making: _Making) -> _Making:
        """Return the call with the declaration under which it was last asked about."""
        asked = self._past(making.task, making.call).asked
        if not asked or asked[-1].declaration_hash == making.shown.declaration.hash:
            return making
        declaration = await self._toolbox.declaration(self._tenant, making.call.tool, asked[-1].declaration_hash)
        if declaration is None:
            raise NoSuchThing("declaration", asked[-1].declaration_hash)
        return replace(making, shown=replace(making.shown, declaration=declaration))

    async def _look_again(self, making: _Making) -> bool:
        """Judge a call as if it were asked for now. False: the model was told, and nothing more is to do."""
        wrong = _input_problem(making.call.input_json, making.shown.declaration)
        if wrong is not None:
            self._done(making.task, making.call, ToolEnd.NOT_TO_BE_HAD, told.as_json(wrong))
            return False
        ruling = self._rule_on(making)
        asked = self._past(making.task, making.call).asked
        if ruling.verdict is Verdict.ASK:
            await self._ask([_Question(making, ruling)], asked[-1].approval_id if asked else "")
        return True

    async def _once(self, making: _Making, run_agent: RunAgent) -> None:
        past = self._past(making.task, making.call)
        approval = await self._answer(making, past.asked[-1]) if past.asked else None
        if past.done is not None:
            return
        edited = approval.answers[-1].edited_input_json if approval else ""
        note = told.input_changed(edited) if edited else ""
        if making.shown.agent:
            if self._writer.past.task(making.address).started is None:
                await self._check_set(making, approval)
            end, output = await _run_agent(making, edited or making.call.input_json, run_agent)
            self._finish(making, "", end, output, note, approval)
        elif past.started or self._toolbox.effects_now(self._tenant, making.shown).changes:
            await self._change(making, past, edited, note, approval)
        else:
            await self._read(making, edited or making.call.input_json, note, approval)

    async def _answer(self, making: _Making, asked: ApprovalAsked) -> Approval | None:
        """Wait until people have settled a question, and copy what they said; a call that may not run is done with.

        Returns the approval where it is a yes.
        """
        writer = self._writer
        while (approval := writer.approvals.get(asked.approval_id)) is None or (
            approval.state is ApprovalState.PENDING
        ):
            await writer.rest(FOR_A_PERSON, asked.approval_id)
        past = self._past(making.task, making.call)
        recorded = past.recorded.get(approval.id)
        if recorded is None or recorded.state is not approval.state:
            told_now = ApprovalRecorded(approval.id, approval.state, approval.answers)
            writer.record(making.task.address, told_now, copied_approvals=(approval.id,))
        match approval.state:
            case ApprovalState.APPROVED:
                return approval
            case ApprovalState.ANSWERED:
                self._finish(making, "", ToolEnd.ANSWERED, approval.answers[-1].answer_json, "", approval)
            case ApprovalState.EXPIRED:
                self._finish(making, "", ToolEnd.REFUSED, told.as_json(told.NOBODY_ANSWERED), "", None)
            case ApprovalState.SUPERSEDED:
                self._finish(making, "", ToolEnd.SUPERSEDED, told.as_json(told.INSTRUCTIONS_CHANGED), "", None)
            case _:
                reason = approval.answers[-1].reason if approval.answers else ""
                self._finish(making, "", ToolEnd.REFUSED, told.as_json(told.not_allowed(reason)), "", None)
        return None

    async def _check_set(self, making: _Making, approval: Approval | None) -> None:
        """Look once more whether the set under which a call was asked about still stands (R3.6).

        Where it does not, what was asked together is superseded, and `_Again` raised.
        """
        if approval is None:
            return
        task_id = making.task.started.task_id
        standing = await self._writer.until_there(lambda: self._teaching.standing(self._tenant, [task_id]))
        if task_id not in standing:
            await self._writer.submit(SupersedeQuestions((approval.id,)))
            raise _Again

    # Calls that only look

    async def _read(self, making: _Making, input_json: str, note: str, approval: Approval | None) -> None:
        """Run a call that changes nothing: in memory alone, and again where its result was lost (R5.2, R5.3)."""
        timeout = making.shown.declaration.timeout_seconds or self._tool_seconds
        attempt = 0
        while True:
            attempt += 1
            session = await self._session(making, asked=approval is not None)
            await self._check_set(making, approval)
            sent = SendCall(
                call_id=CallId(uuid.uuid4().hex),
                tool=making.call.tool,
                input_json=input_json,
                idempotency_key=f"{self._writer.turn.id}/{making.address}",
                turn_id=self._writer.turn.id,
                address=making.address,
                attempt=attempt,
                timeout_seconds=timeout,
                begin_by_seconds=0.0,
            )
            try:
                result = await self._hosts.read(session, sent)
            except ReadLost:
                continue
            except TimeoutError:
                self._finish(making, sent.call_id, ToolEnd.FAILED, told.as_json(told.TOOK_TOO_LONG), note, approval)
                return
            if result.outcome is Outcome.NOT_RUN:
                await self._hosts.changed(_backoff(attempt))
                continue
            end, output = _ending(result)
            kept = self._finish(making, sent.call_id, end, output, note, approval)
            kept.add_done_callback(partial(self._let_forget, session.hello.incarnation, sent.call_id))
            return

    def _let_forget(self, incarnation: Incarnation, call_id: CallId, kept: asyncio.Future[Turn]) -> None:
        """Tell a host that a read's result is on disk, or that nobody needs it."""
        self._hosts.taken(incarnation, [call_id])

    # Calls that change things

    async def _change(self, making: _Making, past: CallPast, edited: str, note: str, approval: Approval | None) -> None:
        """Run a call that changes things: once, but for `not_run` and a person's word (R6.5)."""
        while True:
            call = self._newest_attempt(past)
            if call is None or _ran_out(call, past):
                before = call.id if call is not None and call.resolution is None else None
                call = await self._start(making, past, edited, approval, before)
            call = await self._settled(call)
            if call.resolution is not None:
                if await self._resolved(making, call, note, approval):
                    return
            elif call.result is not None and call.result.outcome is not Outcome.NOT_RUN:
                end, output = _ending(call.result)
                self._finish(making, call.id, end, output, note, approval, copied=call)
                return
            else:
                await self._hosts.changed(_backoff(call.attempt))

    def _newest_attempt(self, past: CallPast) -> Call | None:
        """Return the newest attempt's row; None where there is none, or a person asked for it to run again."""
        if not past.started:
            return None
        call_id = past.started[-1].call_id
        call = self._writer.calls.get(CallId(call_id))
        # A call whose row does not say what became of it is never taken for one that did not run.
        assert call is not None or past.resolved[call_id].run_again, call_id
        return call

    async def _start(
        self, making: _Making, past: CallPast, edited: str, approval: Approval | None, before: CallId | None
    ) -> Call:
        """Write `ToolStarted`, then send the call. Raises `_Declared` where the yes covers something else."""
        turn, call = self._writer.turn, making.call
        timeout = making.shown.declaration.timeout_seconds or self._tool_seconds
        while True:
            session = await self._session(making, asked=approval is not None)
            if approval and fingerprint(self._covered(making, approval.rule)) != approval.fingerprint:
                raise _Declared(making.shown)
            await self._check_set(making, approval)
            now = datetime.now(UTC)
            row = Call(
                id=CallId(uuid.uuid4().hex),
                tenant=turn.tenant,
                turn_id=turn.id,
                address=making.address,
                invocation=call.invocation,
                tool=call.tool,
                input_json=edited or call.input_json,
                attempt=past.started[-1].attempt + 1 if past.started else 1,
                host=session.hello.host,
                incarnation=session.hello.incarnation,
                session=session.number,
                timeout_seconds=timeout,
                start_time=now,
                deadline=now + timedelta(seconds=timeout),
                approval_id=approval.id if approval else "",
            )
            record = ToolStarted(
                call_id=row.id,
                invocation=call.invocation,
                tool=call.tool,
                input_json=call.input_json,
                effects=self._toolbox.effects_now(self._tenant, making.shown),
                attempt=row.attempt,
                edited_input_json=edited,
                host=row.host,
                incarnation=row.incarnation,
                session=row.session,
            )
            try:
                await self._writer.submit(StartCall(self._writer.hold, making.task.address, record, row, before))
            except SessionEnded:
                continue
            except YesGone:
                raise _Again from None
            self._writer.past.add(making.task.address, record)
            self._hosts.send(session, row)
            return self._writer.calls[row.id]

    async def _settled(self, call: Call) -> Call:
        """Wait until somebody said what became of a call, and return its row then.

        Where its host stays away, or its time is up, it may have run: that is written, and the turn can be let go of.
        """
        writer, call_id = self._writer, call.id
        while (call := writer.calls[call_id]).open:
            if call.unfinished:
                cause = f"{call.tool} may have run, and nobody knows what became of it"
                await writer.rest(Rest(cause=cause), call_id)
                continue
            patience = (call.deadline - datetime.now(UTC)).total_seconds()
            if not self._hosts.is_connected(call.incarnation):
                patience = min(patience, self._hosts.seconds_to_return(call.incarnation))
            if patience > 0:
                await writer.heard(call_id, seconds=min(patience, 1.0))
            else:
                self._hosts.cancel(call.incarnation, call_id)
                await writer.submit(MarkUnfinished(writer.hold, call_id))
        return call

    async def _resolved(self, making: _Making, call: Call, note: str, approval: Approval | None) -> bool:
        """Copy what a person said of an unfinished call. False: it runs again, once its host has been asked to stop."""
        resolution = call.resolution
        assert resolution is not None
        text, resolve = resolution.text, resolution.resolve
        record = UnfinishedResolved(
            call_id=call.id,
            by=resolution.by,
            run_again=resolve is Resolve.RUN_AGAIN,
            output_json=text if resolve is Resolve.OUTPUT else None,
            error=text if resolve is Resolve.ERROR else None,
            proof=resolution.proof,
        )
        if resolve is Resolve.RUN_AGAIN:
            await self._stopped(call)
            self._writer.record(making.task.address, record, copied_resolutions=(call.id,))
            return False
        self._writer.record(making.task.address, record, copied_resolutions=(call.id,))
        output = text if resolve is Resolve.OUTPUT else told.as_json(text)
        self._finish(making, call.id, ToolEnd.RESOLVED, output, note, approval)
        return True

    async def _stopped(self, call: Call) -> None:
        """Tell a connected incarnation to stop a call that is to run again, and wait for its last word (R6.6)."""
        self._hosts.cancel(call.incarnation, call.id)
        waited = 0.0
        while self._hosts.is_connected(call.incarnation) and self._hosts.holds(call.incarnation, call.id):
            if self._writer.calls[call.id].result is not None or waited >= self._hosts.reconnect_seconds:
                return
            await self._writer.heard(call.id, seconds=1.0)
            waited += 1.0

    # What both need

    async def _session(self, making: _Making, *, asked: bool) -> HostSession:
        """Return a session to send a call to, of a host with the declaration that it was judged by.

        Waits for one; after `reconnect_within` takes one with another declaration by raising `_Declared`. Where no host
        is to be had, a call that was approved rests until one is, and any other is not to be had.
        """
        declaration = making.shown.declaration
        tool = declaration.name
        while True:
            session = self._hosts.session_for(self._tenant, tool, declaration.hash)
            if session is not None:
                return session
            offers = self._hosts.offers(self._tenant, tool)
            if any(offer.hash == declaration.hash for offer in offers):
                await self._hosts.changed(1.0)
                continue
            left = self._hosts.seconds_to_wait(self._tenant, tool, declaration.hash)
            if left > 0:
                await self._hosts.changed(min(left, 1.0))
            elif offers:
                raise _Declared(replace(making.shown, declaration=offers[0]))
            elif asked:
                cause = f"no connected host offers {tool}"
                await self._writer.rest(Rest(cause=cause, awaits_tool=tool), f"tool:{tool}")
            else:
                raise _NotToBeHad

    def _finish(
        self, making: _Making, call_id: str, end: ToolEnd, output_json: str, note: str,
        approval: Approval | None, copied: Call | None = None,
    ) -> asyncio.Future[Turn]:  # fmt: skip
        """Record a call's result, and what came of it for whoever approved it."""
        ran = end in (ToolEnd.RETURNED, ToolEnd.FAILED, ToolEnd.RESOLVED)
        call = making.call
        done = ToolDone(call_id, call.invocation, call.tool, output_json, end, note if ran else "")
        asked = self._past(making.task, call).asked
        came = told.outcome(done) if approval is not None else ""
        return self._writer.record(
            making.task.address,
            done,
            closed={asked[-1].approval_id: came} if asked else {},
            copied_results=(copied.id,) if copied else (),
        )

    def _done(self, task: Task, call: RequestedCall, end: ToolEnd, output_json: str) -> None:
        """Record what the model is told of a call that never ran."""
        self._writer.record(task.address, ToolDone("", call.invocation, call.tool, output_json, end))

    def _past(self, task: Task, call: RequestedCall) -> CallPast:
        return self._writer.past.call(task.address, call.invocation)


def _input_problem(input_json: str, declaration: Declaration) -> str | None:
    """Say what is wrong with an input, field by field; None where it fits the declaration's schema."""
    try:
        value = canonical_json.parse(input_json, limit_bytes=MOST_INPUT_BYTES)
    except JsonProblem as problem:
        return str(problem)
    found = schemas.problems(declaration.input_schema_json, value)
    return schemas.told_to_model(found) if found else None


async def _run_agent(making: _Making, input_json: str, run_agent: RunAgent) -> tuple[ToolEnd, str]:
    text = input_json
    if making.shown.declaration.input_schema_json == TEXT_SCHEMA:
        text = str(json.loads(input_json)["input"])
    try:
        output = await run_agent(making.task, making.call, making.shown, text)
    except ModelRefused as problem:
        return ToolEnd.FAILED, told.as_json(str(problem))
    return ToolEnd.RETURNED, told.as_json(output)


def _ending(result: Result) -> tuple[ToolEnd, str]:
    if result.outcome is Outcome.RETURNED:
        return ToolEnd.RETURNED, result.text
    return ToolEnd.FAILED, told.as_json(result.text)


def _ran_out(call: Call, past: CallPast) -> bool:
    """Whether an attempt is over without an end for its call: it did not run, or is to run again."""
    if call.resolution is not None:
        return call.id in past.resolved
    return call.result is not None and call.result.outcome is Outcome.NOT_RUN


def _backoff(attempt: int) -> float:
    return min(0.05 * 2.0**attempt, 5.0)
