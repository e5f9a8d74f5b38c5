"""An approval as a person is shown it: all that a yes covers, and how to answer."""

from __future__ import annotations

from tutelage.cli.layout import print_below, print_line, print_named
from tutelage.journal_lines import approval_state_name, time_of, who
from tutelage.runtime.v1.approvals_pb2 import APPROVAL_STATE_PENDING, Approval
from tutelage.shown import MOST_CHARACTERS, shown, shown_json


def is_pending(approval: Approval) -> bool:
    """Tell whether an approval still waits for an answer."""
    return approval.state == APPROVAL_STATE_PENDING


def print_approval(approval: Approval, most: int = MOST_CHARACTERS) -> None:
    """Print all that a yes covers, escaped."""
    facts = (
        ("state", approval_state_name(approval.state)),
        ("does", approval.tool_description),
        ("call", approval.address),
        ("turn", approval.turn_id),
        ("for", who(approval.work_for)),
        ("given by", who(approval.given_by)),
        ("put to", ", ".join(approval.put_to)),
        ("asked", f"{time_of(approval.ask_time)} by {approval.asked_by_rule}"),
        ("said", approval.said),
        ("fingerprint", approval.fingerprint),
    )
    print_named(f"{approval.tool}  {approval.id}", facts)
    print_below("input", shown_json(approval.input_json, most))


def print_settled(approval: Approval) -> None:
    """Print what became of an approval, in a line."""
    by = ", ".join(f"{who(answer.by)} {answer.reason}".rstrip() for answer in approval.answers)
    parts = (
        approval_state_name(approval.state),
        approval.tool,
        approval.id,
        by and f"by {by}",
        approval.outcome,
    )
    print_line(shown("  ".join(part for part in parts if part)))


def print_question(approval: Approval) -> None:
    """Print what a turn asks and how to answer it; what was answered meanwhile, in a line."""
    if not is_pending(approval):
        print_settled(approval)
        return
    print_approval(approval)
    print_line(f"  yes         tutelage approvals approve {approval.id}")
    print_line(f"  no          tutelage approvals deny {approval.id} --reason TEXT")
