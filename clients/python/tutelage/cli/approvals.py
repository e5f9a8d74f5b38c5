"""`tutelage approvals`: what waits for a person, and the person's answer."""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import Annotated

import typer

from tutelage.cli.arguments import ApprovalId, AsJson, AsJsonLines, Timeout, Yes
from tutelage.cli.asked import print_approval, print_settled
from tutelage.cli.commands import at_runtime, examples, once
from tutelage.cli.layout import print_json_line, tell
from tutelage.cli.pages import listed
from tutelage.cli.problems import CommandError
from tutelage.cli.prompt import agreed
from tutelage.cli.waits import waiting
from tutelage.client import Tutelage
from tutelage.runtime.v1.approvals_pb2 import (
    DECISION_APPROVE,
    DECISION_DENY,
    DecideApprovalRequest,
    GetApprovalRequest,
    ListApprovalsRequest,
    ListApprovalsResponse,
    WatchApprovalsResponse,
)

app = typer.Typer(no_args_is_help=True, help="See what waits for a person, and answer it.")

# More of it than in a list, so that hardly anybody says yes to what they have not seen.
MOST_TO_APPROVE = 20_000


@app.command("list", epilog=examples("tutelage approvals list", "tutelage approvals list --json"))
@at_runtime
async def list_approvals(runtime: Tutelage, as_json: AsJson = False) -> None:
    """List what waits, oldest first."""
    tell(await listed(runtime.approvals.ListApprovals, ListApprovalsRequest()), as_json, _print_all)


@app.command(epilog=examples("tutelage approvals watch", "tutelage approvals watch --json --timeout 60"))
@at_runtime
async def watch(
    runtime: Tutelage,
    after: Annotated[
        str, typer.Option(metavar="CURSOR", help="Every event since this one. None: all that waits now, first.")
    ] = "",
    timeout: Timeout = None,
    as_json: AsJsonLines = False,
) -> None:
    """Show what waits, and then each event as it comes, until Ctrl-C."""
    # A watch waits for a service that is away. That there is one, and lets us in, is asked first.
    now = await runtime.approvals.ListApprovals(ListApprovalsRequest(page_size=1))
    if not now.approvals and not as_json:
        typer.echo("Nothing waits yet. What comes is shown here, until Ctrl-C.")
        sys.stdout.flush()
    cursor = after

    def to_go_on() -> str:
        return f"tutelage approvals watch --after {cursor}" if cursor else "tutelage approvals watch"

    async with waiting(timeout, to_go_on) as progress, aclosing(runtime.watch_approvals(cursor=after)) as events:
        progress.say("Watching what waits")
        async for event in events:
            with progress.hidden():
                _print_event(event, as_json)
            cursor = event.cursor or cursor


@app.command(
    epilog=examples("tutelage approvals approve 5f3a", "tutelage approvals approve 5f3a --yes --fingerprint c0ffee")
)
@at_runtime
async def approve(
    runtime: Tutelage,
    approval_id: ApprovalId,
    yes: Yes = False,
    fingerprint: Annotated[str, typer.Option(help="What you saw earlier; anything else is not approved.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show what would run, and say yes to exactly that."""
    found = await runtime.approvals.GetApproval(GetApprovalRequest(approval_id=approval_id))
    approval = found.approval
    if not as_json:
        print_approval(approval, MOST_TO_APPROVE)
    if fingerprint and fingerprint != approval.fingerprint:
        raise CommandError("This is not what you saw: its fingerprint is another. Nothing was decided.")
    otherwise = "Not approved. To say no, use `tutelage approvals deny`."
    await agreed(yes, as_json, "Approve exactly this?", otherwise)
    request = DecideApprovalRequest(
        approval_id=approval_id,
        decision=DECISION_APPROVE,
        fingerprint=approval.fingerprint,
        request_id=once(),
    )
    await _decide(runtime, request, as_json)


@app.command(epilog=examples('tutelage approvals deny 5f3a --reason "Not today."'))
@at_runtime
async def deny(
    runtime: Tutelage,
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="Why; the model is told.")],
    as_json: AsJson = False,
) -> None:
    """Say no. The tool does not run, and the model is told why."""
    request = DecideApprovalRequest(approval_id=approval_id, decision=DECISION_DENY, reason=reason, request_id=once())
    await _decide(runtime, request, as_json)


def _print_all(found: ListApprovalsResponse) -> None:
    for approval in found.approvals:
        print_approval(approval)
    if not found.approvals:
        typer.echo("Nothing waits.")


async def _decide(runtime: Tutelage, request: DecideApprovalRequest, as_json: bool) -> None:
    tell((await runtime.approvals.DecideApproval(request)).approval, as_json, print_settled)


def _print_event(event: WatchApprovalsResponse, as_json: bool) -> None:
    if as_json:
        if not event.HasField("bookmark"):
            print_json_line(event)
        return
    match event.WhichOneof("event"):
        case "waiting":
            for approval in event.waiting.approvals:
                print_approval(approval)
        case "settled":
            print_settled(event.settled.approval)
        case "outcome":
            print_settled(event.outcome.approval)
    sys.stdout.flush()
