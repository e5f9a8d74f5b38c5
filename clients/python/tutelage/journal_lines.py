"""Records and principals as lines that a person reads.

The texts in them are as they stand: show the lines by `shown`.
"""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from tutelage.common.v1.principal_pb2 import Principal
from tutelage.runtime.v1.approvals_pb2 import ApprovalState
from tutelage.runtime.v1.effects_pb2 import Verdict
from tutelage.runtime.v1.journal_pb2 import Record, ToolEnd, TurnEnd
from tutelage.runtime.v1.turns_pb2 import TurnState


def line_of(record: Record) -> str:
    """Tell in one line what a record says happened."""
    kind = record.WhichOneof("what") or "erased"
    return f"{kind}: {_told(kind, record)}".removesuffix(": ")


def state_name(state: TurnState.ValueType) -> str:
    """Name a turn's state: `WAITING`."""
    return TurnState.Name(state).removeprefix("TURN_STATE_")


def approval_state_name(state: ApprovalState.ValueType) -> str:
    """Name an approval's state: `PENDING`."""
    return ApprovalState.Name(state).removeprefix("APPROVAL_STATE_")


def who(principal: Principal) -> str:
    """Name an account: `gus`, `Gus (gus)`, `desk for gus`."""
    named = f"{principal.display_name} ({principal.id})" if principal.display_name else principal.id
    return f"{named} for {principal.on_behalf_of}" if principal.on_behalf_of else named


def time_of(time: Timestamp) -> str:
    """Write a time in UTC, to the second."""
    return time.ToDatetime().strftime("%Y-%m-%d %H:%M:%SZ") if time.seconds else ""


def _told(kind: str, record: Record) -> str:
    match kind:
        case "turn_given":
            given = record.turn_given
            return f"{who(given.given_by)} asks {given.agent}: {given.input}"
        case "writer_started":
            return f"{record.writer_started.process}, {record.writer_started.why}"
        case "task_started":
            return record.task_started.words or record.task_started.agent
        case "instructions_taken_up":
            taken = record.instructions_taken_up
            return f"from set {taken.from_set} to {taken.block.instruction_set}"
        case "model_replied":
            calls = [f"{each.tool}#{each.invocation} {each.input_json}" for each in record.model_replied.calls]
            return " | ".join(part for part in (record.model_replied.text, *calls) if part)
        case "output_did_not_fit":
            return record.output_did_not_fit.told
        case "decided_at_once":
            decided = record.decided_at_once
            verdict = Verdict.Name(decided.verdict).removeprefix("VERDICT_")
            return f"{decided.tool}#{decided.invocation} {verdict} by {decided.by} {decided.reason}".rstrip()
        case "approval_asked":
            asked = record.approval_asked
            return f"{asked.tool}#{asked.invocation} {asked.input_json} ({asked.asked_by_rule})"
        case "approval_recorded":
            recorded = record.approval_recorded
            by = [f"{who(answer.by)} {answer.reason}".rstrip() for answer in recorded.answers]
            return f"{approval_state_name(recorded.state)} by {', '.join(by) or 'nobody'}"
        case _:
            return _told_of_calls(kind, record)


def _told_of_calls(kind: str, record: Record) -> str:
    match kind:
        case "tool_started":
            started = record.tool_started
            return f"{started.tool}#{started.invocation} attempt {started.attempt} at {started.host}"
        case "tool_done":
            done = record.tool_done
            end = ToolEnd.Name(done.end).removeprefix("TOOL_END_")
            return f"{done.tool}#{done.invocation} {end} {done.note}{done.output_json}"
        case "unfinished_resolved":
            resolved = record.unfinished_resolved
            outcome = "run again" if resolved.run_again else resolved.error or resolved.output_json
            return f"{resolved.call_id} by {who(resolved.by)}: {outcome}"
        case "turn_ended":
            ended = record.turn_ended
            end = TurnEnd.Name(ended.end).removeprefix("TURN_END_")
            return f"{end} {ended.output or ended.cause}"
        case "late_result":
            late = record.late_result
            return f"{late.call_id} from {late.host}: {late.output_json}"
        case "child_turn_started":
            return record.child_turn_started.turn_id
        case _:
            return ""
