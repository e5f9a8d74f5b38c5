"""How a call is run by a host: found a session, sent, and followed to its end (`runtime.md` R5.2, R6.5, R6.6).

Invariants:
- A call that changes things leaves the runtime only after its `ToolStarted`, which found its yes standing, is on disk;
  once that is on disk it is sent, whoever was cancelled meanwhile.
- A call that was started is not started again, but for a host's `not_run` or a person's `run_again`.
- A call that was started never gets an end without its host's or a person's word.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from runtime_service.domain import told
from runtime_service.domain.calls import Call, Outcome, Resolve, Result
from runtime_service.domain.hosts import CallId, Incarnation
from runtime_service.domain.journal import ToolEnd, ToolStarted, UnfinishedResolved
from runtime_service.domain.replay import CallPast
from runtime_service.domain.replicas import SessionElsewhere
from runtime_service.domain.turns import Turn
from runtime_service.engine.host_session import HostSession, SendCall
from runtime_service.engine.hosts import Hosts, ReadLost
from runtime_service.engine.making import JudgeAgain, Leave, Making, NotToBeHad, finish
from runtime_service.engine.questions import Questions
from runtime_service.engine.toolbox import Toolbox
from runtime_service.engine.units.calls import MarkUnfinished, SessionEnded, StartCall
from runtime_service.engine.writer import Rest, Writer

# How often something that is under way is looked at where nothing tells of it.
LOOK_SECONDS = 1.0


class Attempts:
    """The calls of one turn that hosts run, for one writer."""

    def __init__(
        self, writer: Writer, questions: Questions, toolbox: Toolbox, hosts: Hosts, *, tool_seconds: float
    ) -> None:
        self._writer = writer
        self._questions = questions
        self._toolbox = toolbox
        self._hosts = hosts
        self._tool_seconds = tool_seconds
        self._tenant = writer.turn.tenant

    async def run(self, making: Making, leave: Leave) -> None:
        """Run a call and record its result. Raises `JudgeAgain`, `YesGone`, `NotToBeHad`."""
        past = self._writer.past.call(making.task.address, making.call.invocation)
        if past.started or self._toolbox.effects_now(self._tenant, making.shown).changes:
            await self._change(making, leave, past)
        else:
            await self._read(making, leave)

    # Calls that only look

    async def _read(self, making: Making, leave: Leave) -> None:
        """Run a call that changes nothing: in memory alone, and again where its result was lost (R5.2, R5.3)."""
        attempt = 0
        while True:
            attempt += 1
            session = await self._session(making, leave)
            await self._questions.check(making, leave)
            sent = SendCall(
                call_id=CallId(uuid.uuid4().hex),
                tool=making.call.tool,
                input_json=leave.input_json,
                idempotency_key=f"{self._writer.turn.id}/{making.address}",
                turn_id=self._writer.turn.id,
                address=making.address,
                attempt=attempt,
                timeout_seconds=self._timeout(making),
                begin_by_seconds=0.0,
            )
            try:
                result = await self._hosts.read(session, sent)
            except ReadLost:
                continue
            except TimeoutError:
                late = told.as_json(told.TOOK_TOO_LONG)
                finish(self._writer, making, ToolEnd.FAILED, late, leave=leave, call_id=sent.call_id)
                return
            if result.outcome is Outcome.NOT_RUN:
                await self._hosts.changed(_backoff(attempt))
                continue
            end, output = _ending(result)
            kept = finish(self._writer, making, end, output, leave=leave, call_id=sent.call_id)
            kept.add_done_callback(partial(self._let_forget, session.incarnation, sent.call_id))
            return

    def _let_forget(self, incarnation: Incarnation, call_id: CallId, kept: asyncio.Future[Turn]) -> None:
        """Tell a host that a read's result is on disk, or that nobody needs it."""
        self._hosts.taken(incarnation, [call_id])

    # Calls that change things

    async def _change(self, making: Making, leave: Leave, past: CallPast) -> None:
        """Run a call that changes things: once, but for `not_run` and a person's word (R6.5)."""
        while True:
            call = self._newest(past)
            if call is None or _ran_out(call, past):
                call = await self._start(making, leave, past, call)
            call = await self._settled(call)
            if call.resolution is not None:
                if await self._resolved(making, leave, call):
                    return
            elif call.result is not None and call.result.outcome is not Outcome.NOT_RUN:
                end, output = _ending(call.result)
                copied = (call.id,)
                finish(self._writer, making, end, output, leave=leave, call_id=call.id, copied_results=copied)
                return
            else:
                await self._hosts.changed(_backoff(call.attempt))

    def _newest(self, past: CallPast) -> Call | None:
        """Return the newest attempt's row; None where there is none, or a person asked for it to run again."""
        if not past.started:
            return None
        call_id = past.started[-1].call_id
        call = self._writer.calls.get(CallId(call_id))
        # A call whose row does not say what became of it is never taken for one that did not run.
        assert call is not None or past.resolved[call_id].run_again, call_id
        return call

    async def _start(self, making: Making, leave: Leave, past: CallPast, before: Call | None) -> Call:
        """Write that the call starts, and send it. Raises as `run` does where it may not."""
        while True:
            session = await self._session(making, leave, started=bool(past.started))
            await self._questions.check(making, leave)
            call, record = self._attempt(making, leave, past, session)
            did_not_run = before.id if before is not None and before.resolution is None else None
            unit = StartCall(self._writer.hold, making.task.address, record, call, did_not_run)
            started = self._writer.submit(unit)
            self._hosts.send_once_started(session, call, started)
            try:
                await asyncio.shield(started)
            except SessionEnded:
                # Its hello is on its way, or this process's lease begins anew.
                await self._hosts.changed(_backoff(0))
                continue
            self._writer.past.add(making.task.address, record)
            return self._writer.calls[call.id]

    def _attempt(
        self, making: Making, leave: Leave, past: CallPast, session: HostSession | SessionElsewhere
    ) -> tuple[Call, ToolStarted]:
        turn, asked, now, timeout = self._writer.turn, making.call, datetime.now(UTC), self._timeout(making)
        call = Call(
            id=CallId(uuid.uuid4().hex),
            tenant=turn.tenant,
            turn_id=turn.id,
            address=making.address,
            invocation=asked.invocation,
            tool=asked.tool,
            input_json=leave.input_json,
            attempt=past.started[-1].attempt + 1 if past.started else 1,
            host=session.host,
            incarnation=session.incarnation,
            session=session.number,
            timeout_seconds=timeout,
            start_time=now,
            deadline=now + timedelta(seconds=timeout),
            approval_id=leave.approval_id,
        )
        record = ToolStarted(
            call_id=call.id,
            invocation=asked.invocation,
            tool=asked.tool,
            input_json=asked.input_json,
            effects=self._toolbox.effects_now(self._tenant, making.shown),
            attempt=call.attempt,
            edited_input_json=leave.edited_input_json,
            host=call.host,
            incarnation=call.incarnation,
            session=call.session,
        )
        return call, record

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
                await writer.heard(call_id, seconds=min(patience, LOOK_SECONDS))
            else:
                self._hosts.cancel(call.incarnation, call_id)
                await writer.submit(MarkUnfinished(writer.hold, call_id))
        return call

    async def _resolved(self, making: Making, leave: Leave, call: Call) -> bool:
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
        copied = (call.id,)
        if resolve is Resolve.RUN_AGAIN:
            await self._stopped(call)
            self._writer.record(making.task.address, record, copied_resolutions=copied)
            return False
        output = text if resolve is Resolve.OUTPUT else told.as_json(text)
        finish(
            self._writer,
            making,
            ToolEnd.RESOLVED,
            output,
            leave=leave,
            call_id=call.id,
            before=(record,),
            copied_resolutions=copied,
        )
        return True

    async def _stopped(self, call: Call) -> None:
        """Tell a connected incarnation to stop a call that is to run again, and wait for its last word (R6.6)."""
        self._hosts.cancel(call.incarnation, call.id)
        until = time.monotonic() + self._hosts.reconnect_seconds
        while self._hosts.holds(call.incarnation, call.id) and self._writer.calls[call.id].result is None:
            if time.monotonic() >= until:
                return
            await self._writer.heard(call.id, seconds=LOOK_SECONDS)

    # What both need

    async def _session(self, making: Making, leave: Leave, *, started: bool = False) -> HostSession | SessionElsewhere:
        """Return a session to send a call to, of a host with the declaration that it was judged by.

        Waits for one; after `reconnect_within` one with another declaration makes the gate look again. Where no host is
        to be had, a call that was approved or started before rests until one is; any other is not to be had. Raises
        `YesGone` where its yes falls meanwhile.
        """
        declaration = making.shown.declaration
        tool = declaration.name
        while True:
            self._writer.check_yes(leave.approval_id)
            session = self._hosts.session_for(self._tenant, tool, declaration.hash)
            if session is not None:
                return session
            offers = self._hosts.offers(self._tenant, tool)
            left = self._hosts.seconds_to_wait(self._tenant, tool, declaration.hash)
            if left > 0 or any(offer.hash == declaration.hash for offer in offers):
                await self._hosts.changed(min(left or LOOK_SECONDS, LOOK_SECONDS))
            elif offers:
                raise JudgeAgain(replace(making, shown=replace(making.shown, declaration=offers[0])))
            elif started or leave.approval_id:
                cause = f"no connected host offers {tool}"
                words = (f"tool:{tool}", *filter(None, [leave.approval_id]))
                await self._writer.rest(Rest(cause=cause, awaits=tool), *words)
            else:
                raise NotToBeHad

    def _timeout(self, making: Making) -> float:
        return making.shown.declaration.timeout_seconds or self._tool_seconds


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
