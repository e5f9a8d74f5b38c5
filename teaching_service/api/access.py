"""Who may call what: the rows of `runtime.md` R10 as one table, and who the caller is to the domain.

What a caller may see of what exists, and whose work they may correct, follows from the thing itself: store and domain
decide it. The five verbs that teach are guarded here by kind and role, and once more in the domain (T2.2).
"""

from __future__ import annotations

from typing import Any

from service_kit.admission import Admits, Table
from service_kit.identity import Caller, current_caller, is_account
from teaching_service.domain.access import TEACHES, Account, Viewer
from teaching_service.domain.principals import Principal, PrincipalKind, Proof
from teaching_service.domain.problems import InvalidFields, NotAdmitted

PERSONS_ROLES = ("uses", "supervises", "audits", "teaches", "privacy", "builds")
RUNTIME = "runtime"
TENANT_KEY = "tutelage-tenant"

ANYBODY = Admits()
WHO_READS = Admits(PERSONS_ROLES)
WHO_PROPOSES = Admits((*PERSONS_ROLES, RUNTIME))
A_TEACHER = Admits((TEACHES,), "PERSON")
THE_RUNTIME = Admits((RUNTIME,), "SERVICE")

TABLE: Table = {
    "CorrectionService": {
        "CorrectWork": ANYBODY,
        "WithdrawCorrection": ANYBODY,
        "GetCorrection": ANYBODY,
        "ListCorrections": ANYBODY,
    },
    "InstructionService": {
        "ProposeInstruction": WHO_PROPOSES,
        "DraftInstruction": WHO_READS,
        "ReviseInstruction": A_TEACHER,
        "ActivateInstruction": A_TEACHER,
        "RejectInstruction": A_TEACHER,
        "RetireInstruction": A_TEACHER,
        "RollBackInstructions": A_TEACHER,
        "GetInstruction": WHO_READS,
        "ListInstructions": WHO_READS,
        "GetEffect": WHO_READS,
        "GetInstructionSet": WHO_READS,
        "ListInstructionSets": WHO_READS,
        "PreviewBlock": WHO_READS,
    },
    "TaskService": {
        "BeginTask": THE_RUNTIME,
        "CheckSets": THE_RUNTIME,
        "TakeUpInstructions": THE_RUNTIME,
        "RecordProposals": THE_RUNTIME,
        "GetTask": ANYBODY,
        "ListTasks": ANYBODY,
        "ExplainTask": ANYBODY,
    },
    "TeachingEventService": {"WatchTeaching": ANYBODY},
    "PrivacyService": {"ExportPerson": ANYBODY, "ErasePerson": ANYBODY},
}


def account(caller: Caller) -> Account:
    """Return the caller as the domain knows them."""
    principal = Principal(caller.id, PrincipalKind[caller.kind], caller.display_name, caller.on_behalf_of)
    proof = Proof(caller.issuer, caller.key_id, caller.token_sha256, caller.auth_time, caller.acr)
    return Account(principal, caller.roles, proof)


def viewer(caller: Caller) -> Viewer:
    """Return whose eyes a query looks through."""
    return Viewer(caller.tenant, caller.id, caller.roles)


def reads_instructions(caller: Caller) -> bool:
    """Whether the caller may read instructions and sets."""
    return not caller.roles.isdisjoint(PERSONS_ROLES)


def is_runtime(caller: Caller) -> bool:
    """Whether it is the runtime's own account. A person or an agent with its role is not."""
    return caller.kind == PrincipalKind.SERVICE.name and RUNTIME in caller.roles


def named_tenant(context: Any) -> str:
    """Return the tenant that the runtime's account names for this call: it serves them all, so it must say."""
    named = [str(value) for key, value in context.invocation_metadata() if key == TENANT_KEY]
    if len(named) != 1 or not is_account(named[0]):
        raise InvalidFields([(TENANT_KEY, "Name one tenant, in the metadata of this name.")])
    return named[0]


def proposer(context: Any) -> tuple[Viewer, bool]:
    """Return whose eyes a proposal is made through, and whether the runtime makes it for a model.

    From any other account the named tenant is ignored.
    """
    caller = current_caller()
    if is_runtime(caller):
        return Viewer(named_tenant(context), caller.id, caller.roles), True
    if not reads_instructions(caller):
        raise NotAdmitted("propose an instruction", PERSONS_ROLES)
    return viewer(caller), False


def check_may_tell_of(viewer: Viewer, person: str) -> None:
    """Let through who may see instructions for one person: they, who teaches, supervises or audits."""
    if not viewer.sees_what_is_for(person):
        raise NotAdmitted("see or propose what is for another person", ("teaches", "supervises", "audits"))
