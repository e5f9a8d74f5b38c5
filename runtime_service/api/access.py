"""Who may call what: the rows of `runtime.md` R10 as one table, and what follows from whose a thing is."""

from __future__ import annotations

from runtime_service.domain.lookups import Viewer
from runtime_service.domain.principals import Principal, PrincipalKind, Proof
from runtime_service.domain.problems import NotAdmitted
from runtime_service.domain.turns import Turn
from service_kit.admission import Admits, Table
from service_kit.identity import Caller

PERSONS_ROLES = ("uses", "supervises", "audits", "teaches", "privacy", "builds")
SEES_ALL = frozenset({"supervises", "audits", "teaches"})


ANYBODY = Admits()
WHO_READS = Admits(PERSONS_ROLES)
WHO_USES = Admits(("uses", "supervises"))
A_PERSON = Admits(kind="PERSON")
A_HOST = Admits(("hosts",), kind="SERVICE")
A_PROGRAM = Admits(("programs",), kind="SERVICE")

TABLE: Table = {
    "AgentService": {"PutAgent": Admits(("builds",)), "GetAgent": WHO_READS, "ListAgents": WHO_READS},
    "ConversationService": {
        "OpenConversation": WHO_USES,
        "GetConversation": ANYBODY,
        "ListConversations": ANYBODY,
        "SetConversationApproval": ANYBODY,
        "EraseConversation": Admits(("privacy",)),
    },
    "TurnService": {
        "StartTurn": WHO_USES,
        "CallAgent": WHO_USES,
        "StreamAgent": WHO_USES,
        "GetTurn": ANYBODY,
        "ListTurns": ANYBODY,
        "WatchTurn": ANYBODY,
        "ListRecords": ANYBODY,
        "ResumeTurn": ANYBODY,
        "AbandonTurn": ANYBODY,
    },
    "ApprovalService": {
        "GetApproval": ANYBODY,
        "ListApprovals": ANYBODY,
        "WatchApprovals": ANYBODY,
        "DecideApproval": A_PERSON,
        "DecideTurn": A_PERSON,
    },
    "GrantService": {"GiveGrant": Admits(("uses",), "PERSON"), "ListGrants": ANYBODY, "RevokeGrant": ANYBODY},
    "ToolHostService": {"Serve": A_HOST, "ReportResults": A_HOST, "ListTools": WHO_READS},
    "ProgramService": {
        "WatchReadyTurns": A_PROGRAM,
        "OpenTurn": A_PROGRAM,
        "KeepTurn": A_PROGRAM,
        "AskModel": A_PROGRAM,
        "BeginModelRequest": A_PROGRAM,
        "FinishModelRequest": A_PROGRAM,
        "BeginTool": A_PROGRAM,
        "FinishTool": A_PROGRAM,
        "AskAgent": A_PROGRAM,
        "CloseTurn": A_PROGRAM,
    },
}


def principal(caller: Caller) -> Principal:
    """Return the caller as it is recorded."""
    return Principal(caller.id, PrincipalKind[caller.kind], caller.display_name, caller.on_behalf_of)


def proof(caller: Caller) -> Proof:
    """Return how the caller was proven."""
    return Proof(caller.issuer, caller.key_id, caller.token_sha256, caller.auth_time, caller.acr)


def viewer(caller: Caller) -> Viewer:
    """Return whose eyes a query looks through."""
    return Viewer(caller.tenant, caller.id, caller.roles, not caller.roles.isdisjoint(SEES_ALL))


def supervises(caller: Caller) -> bool:
    """Whether the caller supervises agents."""
    return "supervises" in caller.roles


def may_work_for(caller: Caller, work_for: str) -> bool:
    """Whether the caller may give work for this person: themselves, whom they act for, or anybody if they supervise."""
    return work_for in (caller.id, caller.on_behalf_of) or supervises(caller)


def admit_to_stop(caller: Caller, turn: Turn) -> None:
    """Let through who may resume or abandon a turn: for whom it is, who gave it, who supervises."""
    if caller.id not in (turn.work_for.id, turn.given_by.id) and not supervises(caller):
        raise NotAdmitted("stop or resume this turn", ("supervises",))
