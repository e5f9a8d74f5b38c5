"""`tutelage approvals`: what waits for a person, and the person's answer."""

from __future__ import annotations

import sys
import uuid
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer

from tutelage.cli.layout import print_line, print_named
from tutelage.cli.pages import pages
from tutelage.cli.problems import CommandError, run
from tutelage.cli.prompt import confirm
from tutelage.cli.reach import DEFAULT_DATA_DIR, DataDir, reach
from tutelage.client import Tutelage
from tutelage.journal_lines import approval_state_name, time_of, who
from tutelage.runtime.v1.approvals_pb2 import (
    DECISION_APPROVE,
    DECISION_DENY,
    Approval,
    DecideApprovalRequest,
    GetApprovalRequest,
    ListApprovalsRequest,
    WatchApprovalsResponse,
)
from tutelage.shown import MOST_CHARACTERS, shown, shown_json

app = typer.Typer(no_args_is_help=True, help="See what waits for a person, and answer it.")

# More of it than in a list, so that hardly anybody says yes to what they have not seen.
MOST_TO_APPROVE = 20_000

ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="The approval.")]


@app.command("list")
def list_approvals(data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """List what waits, oldest first."""
    run(_list(data_dir))


@app.command()
def watch(data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Show what waits, and then each event as it comes, until Ctrl-C."""
    run(_watch(data_dir))


@app.command()
def approve(
    approval_id: ApprovalId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask again at the prompt.")] = False,
    fingerprint: Annotated[str, typer.Option(help="What you saw earlier; anything else is not approved.")] = "",
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Show what would run, and say yes to exactly that."""
    run(_approve(approval_id, yes, fingerprint, data_dir))


@app.command()
def deny(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="Why; the model is told.")],
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Say no. The tool does not run, and the model is told why."""
    run(_deny(approval_id, reason, data_dir))


async def _list(data_dir: Path) -> None:
    waiting = 0
    async with reach(data_dir) as runtime:
        async for page in pages(lambda at: runtime.approvals.ListApprovals(ListApprovalsRequest(page_token=at))):
            for approval in page.approvals:
                _print(approval)
            waiting += len(page.approvals)
    if not waiting:
        typer.echo("Nothing waits.")


async def _watch(data_dir: Path) -> None:
    async with reach(data_dir) as runtime:
        # A watch waits for a service that is away. That there is one, and lets us in, is asked first.
        waiting = await runtime.approvals.ListApprovals(ListApprovalsRequest(page_size=1))
        if not waiting.approvals:
            typer.echo("Nothing waits yet. What comes is shown here, until Ctrl-C.")
            sys.stdout.flush()
        async with aclosing(runtime.watch_approvals()) as events:
            async for event in events:
                _print_event(event)


def _print_event(event: WatchApprovalsResponse) -> None:
    match event.WhichOneof("event"):
        case "waiting":
            for approval in event.waiting.approvals:
                _print(approval)
        case "settled":
            _print_short(event.settled.approval)
        case "outcome":
            _print_short(event.outcome.approval)
    sys.stdout.flush()


async def _approve(approval_id: str, yes: bool, pinned: str, data_dir: Path) -> None:
    async with reach(data_dir) as runtime:
        found = await runtime.approvals.GetApproval(GetApprovalRequest(approval_id=approval_id))
        approval = found.approval
        _print(approval, MOST_TO_APPROVE)
        if pinned and pinned != approval.fingerprint:
            raise CommandError("This is not what you saw: its fingerprint is another. Nothing was decided.")
        if not yes:
            await confirm("Approve exactly this?", "Not approved. To say no, use `tutelage approvals deny`.")
        await _decide(
            runtime,
            DecideApprovalRequest(
                approval_id=approval_id,
                decision=DECISION_APPROVE,
                fingerprint=approval.fingerprint,
                request_id=uuid.uuid4().hex,
            ),
        )


async def _deny(approval_id: str, reason: str, data_dir: Path) -> None:
    async with reach(data_dir) as runtime:
        await _decide(
            runtime,
            DecideApprovalRequest(
                approval_id=approval_id, decision=DECISION_DENY, reason=reason, request_id=uuid.uuid4().hex
            ),
        )


async def _decide(runtime: Tutelage, request: DecideApprovalRequest) -> None:
    _print_short((await runtime.approvals.DecideApproval(request)).approval)


def _print(approval: Approval, most: int = MOST_CHARACTERS) -> None:
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
    print_line("  input")
    for line in shown_json(approval.input_json, most).split("\n"):
        print_line(f"    {line}")


def _print_short(approval: Approval) -> None:
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
