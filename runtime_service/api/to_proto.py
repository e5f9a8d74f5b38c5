"""Domain values as the contract's messages.

A dataclass's fields have the names of its message's, so one function fills them all; what differs is written out below.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message
from tutelage.runtime.v1 import (
    agents_pb2,
    approval_setting_pb2,
    approvals_pb2,
    conversations_pb2,
    journal_pb2,
    tools_pb2,
    turns_pb2,
)

from runtime_service.domain import rules
from runtime_service.domain.addresses import Address, path_of
from runtime_service.domain.agents import (
    Agent,
    AgentTool,
    DelegateTool,
    HostedLoop,
    HostTool,
)
from runtime_service.domain.approvals import Approval
from runtime_service.domain.calls import Call
from runtime_service.domain.effects import Declaration
from runtime_service.domain.journal import InstructionsTakenUp, Record, TaskStarted, kind_of
from runtime_service.domain.lookups import TurnDetail
from runtime_service.domain.turns import Conversation
from service_kit import messages
from service_kit.messages import within

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

M = TypeVar("M", bound=Message)

MOST_WAITING_BYTES = 1024 * 1024


def filled(message: M, value: DataclassInstance, but: Collection[str] = ()) -> M:
    """Fill a message with a dataclass's fields of the same names, settings and rules too; `but` its caller fills."""
    return messages.filled(message, value, _OWN_FORMS, but)


def rule(one: rules.ApprovalRule) -> approval_setting_pb2.ApprovalRule:
    """Return an approval rule."""
    message = approval_setting_pb2.ApprovalRule(
        put_to=one.put_to,
        approvals_needed=one.approvals_needed,
        not_the_giver=one.not_the_giver,
        expires_after_seconds=one.expires_after_seconds,
    )
    match one.kind:
        case rules.RuleKind.CHANGES:
            message.changes.tools_alone = one.tools_alone
        case rules.RuleKind.ALL:
            message.all.SetInParent()
        case rules.RuleKind.NAMES:
            message.names.names.extend(one.names)
        case _:
            pass
    return message


def setting(one: rules.Setting) -> approval_setting_pb2.ApprovalSetting:
    """Return an approval setting."""
    message = approval_setting_pb2.ApprovalSetting()
    match one:
        case rules.RuleSetting():
            message.rule.CopyFrom(rule(one.rule))
        case rules.Expression():
            message.expression = one.text
        case rules.Decider():
            message.decider = one.name
        case rules.NothingAsked():
            message.nothing.SetInParent()
    return message


_OWN_FORMS: messages.OwnForms = {
    rules.ApprovalRule: rule,
    rules.RuleSetting: setting,
    rules.Expression: setting,
    rules.Decider: setting,
    rules.NothingAsked: setting,
}


def agent(one: Agent) -> agents_pb2.Agent:
    """Return an agent as registered."""
    message = filled(agents_pb2.Agent(), one, but=("spec",))
    spec = one.spec
    filled(message.spec, spec, but=("runs", "tools"))
    if isinstance(spec.runs, HostedLoop):
        message.spec.hosted.model = spec.runs.model
    for use in spec.tools:
        match use:
            case HostTool():
                message.spec.tools.add(tool=use.name)
            case AgentTool():
                message.spec.tools.add(agent=use.name)
            case DelegateTool():
                message.spec.tools.add(delegate=use.name)
            case _:
                message.spec.tools.add(mcp_server=use.name)
    return message


def tool(one: Declaration) -> tools_pb2.Tool:
    """Return a tool as its host declared it."""
    message = filled(tools_pb2.Tool(), one)
    if one.timeout_seconds is not None:
        message.timeout.FromMilliseconds(round(one.timeout_seconds * 1000))
    return message


def conversation(one: Conversation) -> conversations_pb2.Conversation:
    """Return a conversation."""
    message = filled(conversations_pb2.Conversation(), one, but=("approve",))
    if one.approve is not None:
        message.approve.CopyFrom(setting(one.approve.setting))
    return message


def approval(one: Approval) -> approvals_pb2.Approval:
    """Return an approval."""
    return filled(approvals_pb2.Approval(), one)


def unfinished(one: Call) -> turns_pb2.UnfinishedCall:
    """Return a call that may have run."""
    return filled(turns_pb2.UnfinishedCall(call_id=one.id), one)


def record(one: Record) -> journal_pb2.Record:
    """Return a record of a journal."""
    message = filled(journal_pb2.Record(), one, but=("what",))
    what = getattr(message, kind_of(one.what))
    what.SetInParent()
    filled(what, one.what)
    return message


def turn(detail: TurnDetail) -> turns_pb2.Turn:
    """Return a turn with what belongs to it. What waits is cut to 1 MiB (R12)."""
    one = detail.turn
    message = filled(turns_pb2.Turn(), one, but=("settings",))
    message.work.skill, message.work.input = one.skill, one.input
    message.work.work_for, message.work.scope = one.work_for.id, one.scope
    message.unfinished.extend(unfinished(call) for call in detail.unfinished)
    message.receipts.extend(_receipts(detail))
    message.waiting_count = detail.waiting_count
    message.waiting.extend(within([approval(waits) for waits in detail.waiting], MOST_WAITING_BYTES))
    return message


def _receipts(detail: TurnDetail) -> Sequence[turns_pb2.Receipt]:
    """Return what each task of a turn ran with, each take-up a receipt of its own."""
    receipts = []
    begun: dict[str, tuple[Address, TaskStarted]] = {}
    for address, what in detail.tasks:
        if isinstance(what, TaskStarted):
            begun[what.task_id] = (Address(address), what)
        take_up = what.number if isinstance(what, InstructionsTakenUp) else 0
        where, started = begun[what.task_id]
        receipts.append(
            turns_pb2.Receipt(
                task_id=what.task_id,
                path=path_of(where),
                agent=started.agent,
                skill=started.skill,
                skill_version=started.skill_version,
                instruction_set=what.block.instruction_set,
                instructions_sent=what.block.instruction_ids,
                instructions_hash=what.block.sha256,
                left_out=what.block.left_out,
                take_up=take_up,
            )
        )
    return receipts
