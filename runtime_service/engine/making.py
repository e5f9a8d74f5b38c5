"""A call on its way from a model's reply to its result, and how its result is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from runtime_service.domain import told
from runtime_service.domain.addresses import Address, below
from runtime_service.domain.agents import Shown
from runtime_service.domain.earlier import DelegateCall, Said, delegate_of
from runtime_service.domain.hosts import CallId
from runtime_service.domain.journal import BlockReceipt, RequestedCall, TaskStarted, ToolDone, ToolEnd, What
from runtime_service.domain.rules import SettingInForce
from runtime_service.domain.turns import Turn
from runtime_service.engine.writer import Writer


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
class Making:
    """One call on its way: what its model asked for, and the tool by the declaration that it is judged by."""

    task: Task
    call: RequestedCall
    shown: Shown
    # What the model wrote beside the call.
    said: str
    # It was judged anew and needs no answer: an earlier one is not used.
    free: bool = False
    # The calls of its reply that it begins behind: those before it of the same delegate (R9).
    behind: tuple[int, ...] = ()

    @property
    def address(self) -> Address:
        """Where the call stands."""
        return below(self.task.address, self.call.tool, self.call.invocation)

    @property
    def delegate(self) -> str:
        """Which delegate is called. Empty: none."""
        return delegate_of(self.task.address, self.shown.agent) if self.shown.delegate else ""


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave to run a call: the input to run it with, what the model is told first, and the yes, if one was needed."""

    input_json: str
    edited_input_json: str = ""
    approval_id: str = ""

    @property
    def note(self) -> str:
        """What the model is told before the output."""
        return told.input_changed(self.edited_input_json) if self.edited_input_json else ""


class JudgeAgain(Exception):
    """What would run is not what was judged: another declaration, another fingerprint (R1.4, R3.5)."""

    def __init__(self, making: Making) -> None:
        super().__init__(making.address)
        self.making = making


class NotToBeHad(Exception):
    """No host of a tool came in time."""


def finish(
    writer: Writer,
    making: Making,
    end: ToolEnd,
    output_json: str,
    *,
    leave: Leave | None = None,
    said: Said | None = None,
    call_id: str = "",
    before: tuple[What, ...] = (),
    copied_results: tuple[CallId, ...] = (),
    copied_resolutions: tuple[CallId, ...] = (),
) -> asyncio.Future[Turn]:
    """Record a call's result, behind the records that lead to it, and what came of it for whoever approved it.

    `said`: what an agent was asked and handed back, which a delegate remembers.
    """
    call = making.call
    note = leave.note if leave is not None and end in _RAN else ""
    done = ToolDone(call_id, call.invocation, call.tool, output_json, end, note)
    asked = writer.past.call(making.task.address, call.invocation).asked
    came = told.outcome(done) if leave is not None and leave.approval_id else ""
    remembered = None
    if making.delegate and said is not None:
        remembered = DelegateCall(making.delegate, said)
        writer.delegate_calls.append(remembered)
    return writer.record(
        making.task.address,
        *before,
        done,
        closed={asked[-1].approval_id: came} if asked else {},
        copied_results=copied_results,
        copied_resolutions=copied_resolutions,
        remembered=remembered,
    )


_RAN = (ToolEnd.RETURNED, ToolEnd.FAILED, ToolEnd.RESOLVED)
