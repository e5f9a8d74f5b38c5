"""Writes the tables in docs/ that have their source in the code, or checks that they are up to date.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; what is around it is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import runtime_service.settings
import teaching_service.settings
from docs import commands
from runtime_service.api import access as runtime_access
from runtime_service.api.agents import AgentService
from runtime_service.api.approvals import ApprovalService
from runtime_service.api.conversations import ConversationService
from runtime_service.api.tool_hosts import ToolHostService
from runtime_service.api.turns import TurnService
from service_kit.admission import Admits, Table
from service_kit.errors import STATUS_OF
from service_kit.settings import ServiceSettings
from teaching_service.api import access as teaching_access
from teaching_service.api.corrections import CorrectionService
from teaching_service.api.events import TeachingEventService
from teaching_service.api.instructions import InstructionService
from teaching_service.api.tasks import TaskService

DOCS = Path(__file__).parent
ERRORS_PROTO = DOCS.parent / "protos" / "tutelage" / "common" / "v1" / "errors.proto"
SERVED: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        *(AgentService, ApprovalService, ConversationService, ToolHostService, TurnService),
        *(CorrectionService, InstructionService, TaskService, TeachingEventService),
    )
}
KINDS = {"PERSON": "a person", "SERVICE": "a program", "": "anybody"}
# What a caller does about a reason; what it means is said in the contract.
WHAT_TO_DO: Mapping[str, str] = {
    "NOT_SIGNED_IN": "Get a token, or a new one: `tutelage token`.",
    "NOT_ADMITTED": "Ask for one of the roles in the metadata's `roles`.",
    "PERSON_REQUIRED": "Let a person sign in and do it.",
    "INVALID_FIELD": "Mend each field that `BadRequest` names. Nothing was written.",
    "NO_SUCH_THING": "Check the id, and whether this account may see it.",
    "REQUEST_ID_REUSED": "Make a new `request_id` for a new request.",
    "QUOTA_EXCEEDED": "Wait as long as `RetryInfo` says.",
    "PART_UNAVAILABLE": "Make the same call again.",
    "NOT_IN_THIS_RELEASE": "Do without it for now.",
    "SIGN_IN_AGAIN": "Sign in anew, as the metadata asks.",
    "DEFECT": "Look for the metadata's `id` in the service's log, and report it.",
    "APPROVAL_REQUIRED": "Give the work as a turn of a conversation.",
    "TURN_WAITING": "Answer what it asks, or abandon it.",
    "TURN_UNFINISHED": "Name each unfinished call in `ResumeTurn`: what it returned, that it failed, or run again.",
    "TURN_ENDED": "Start another turn.",
    "WRITER_SUPERSEDED": "Stop: another process goes on with the turn.",
    "ALREADY_DECIDED": "Nothing. The metadata says who decided, when and how.",
    "FINGERPRINT_CHANGED": "Read the approval again, and answer what it shows now.",
    "INSTRUCTIONS_CHANGED": "Wait for what the turn asks next.",
    "APPROVAL_EXPIRED": "Nothing. The model is told that nobody answered.",
    "NOT_PUT_TO_YOU": "Let somebody in the approval's `put_to` answer.",
    "NO_TOOL_HOST": "Start the host that offers the tool.",
    "CURSOR_EXPIRED": "Watch again without a cursor.",
    "CONVERSATION_BUSY": "Wait, abandon that turn, or say in `if_busy` to queue or to branch. "
    "Of one that failed: start another turn.",
    "INPUT_DOES_NOT_FIT": "Mend the input; each wrong field is named.",
    "TURN_HELD": "Try again once the lease has ended.",
    "LIMIT_REACHED": "Raise the agent's limit, or give smaller turns.",
    "INSTRUCTION_STATE": "Read the instruction again, and do what its state allows.",
    "TOO_MUCH_TO_SEND": "Retire or shorten an instruction first.",
    "SET_MOVED_ON": "Read the set again, and make the change to that.",
    "CORRECTION_GONE": "Nothing. It cannot be built on any more.",
    "MEMBERS_ERASED": "Restore without them, by `without_erased`, or leave it.",
    "ALREADY_ON_SET": "Nothing. It is so already.",
    "WORDS_CHANGED": "Read the words as they are now, and decide on those.",
}


def settings(of: type[ServiceSettings]) -> str:
    """Every setting: its variable, its default, what it does."""
    rows = []
    for name, field in of.model_fields.items():
        default = f"`{field.default}`" if field.default not in (None, "", ()) else ""
        rows.append((f"`{of.prefix()}{name.upper()}`", default, field.description or ""))
    return _table(("variable", "default", "what it sets"), rows)


def access(table: Table) -> str:
    """Every RPC: which account may call it, and whether this release serves it."""
    rows = [
        (f"`{service}.{method}`", _who(admits), "yes" if method in vars(SERVED.get(service, object)) else "not yet")
        for service, methods in table.items()
        for method, admits in methods.items()
    ]
    return _table(("call", "who may make it", "in this release"), rows)


def errors() -> str:
    """Every reason: its status, what it means, what to do. Raises where proto and service differ on a status."""
    rows = []
    for reason, comment in reasons(ERRORS_PROTO.read_text()):
        status, _, meaning = comment.partition(". ")
        if status != STATUS_OF[reason].name:
            raise ValueError(f"{reason} is {status} in the contract and {STATUS_OF[reason].name} in the service")
        rows.append((f"`{reason}`", f"`{status}`", meaning, WHAT_TO_DO[reason]))
    return _table(("reason", "status", "what happened", "what to do"), rows)


def reasons(proto: str) -> Iterable[tuple[str, str]]:
    """Yield each reason that is ever sent, with its comment in the contract as one line."""
    for comment, name in re.findall(r"((?: *//.*\n)+) *ERROR_REASON_(\w+) =", proto):
        if name != "UNSPECIFIED":
            yield name, " ".join(line.strip().removeprefix("//").strip() for line in comment.strip().splitlines())


TABLES: Mapping[str, Callable[[], str]] = {
    "settings": partial(settings, runtime_service.settings.Settings),
    "teaching_settings": partial(settings, teaching_service.settings.Settings),
    "access": partial(access, runtime_access.TABLE),
    "teaching_access": partial(access, teaching_access.TABLE),
    "errors": errors,
    "commands": lambda: _table(("command", "what it does"), commands.index()),
    "exits": lambda: _table(("code", "what it means"), commands.exit_codes()),
    "cli": commands.pages,
}


def written(page: str) -> str:
    """Return a page with its tables as the code has them now."""
    return re.sub(
        r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}",
        page,
        flags=re.DOTALL,
    )


def _who(admits: Admits) -> str:
    if admits.roles == runtime_access.PERSONS_ROLES:
        return "anybody with a role of a person's"
    if admits == teaching_access.WHO_PROPOSES:
        return "anybody with a role of a person's; the runtime's own account"
    roles = " or ".join(f"`{role}`" for role in admits.roles)
    return f"{KINDS[admits.kind]} with {roles}" if roles else KINDS[admits.kind]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def main() -> None:
    """Write the tables, or with `--check` exit with the names of the pages that are out of date."""
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        before = page.read_text()
        after = written(before)
        if after != before:
            stale.append(page.name)
            if "--check" not in sys.argv[1:]:
                page.write_text(after)
    if stale and "--check" in sys.argv[1:]:
        sys.exit("docs are not up to date, run `make generate`: " + ", ".join(stale))


if __name__ == "__main__":
    main()
