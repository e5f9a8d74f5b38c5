"""Who may teach, correct, propose and read (`runtime.md` R10, T1.2, T2.2): the kind of caller first, then the role.

The guard in front of every call asks the same; here it holds whoever calls.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from teaching_service.domain.principals import Principal, PrincipalKind, Proof
from teaching_service.domain.problems import NotAdmitted, PersonRequired

TEACHES = "teaches"
SEES_ALL = frozenset({"supervises", "audits", TEACHES})
CORRECTS_ALL = frozenset({"supervises", TEACHES})


@dataclass(frozen=True, slots=True)
class Account:
    """Who does something: as recorded, with the roles of the moment and how it was proven."""

    principal: Principal
    roles: frozenset[str] = frozenset()
    proof: Proof = field(default_factory=Proof)

    def is_put_to(self, put_to: Collection[str]) -> bool:
        """Whether something is put to them, by name or by a role."""
        return self.principal.id in put_to or any(f"role:{role}" in put_to for role in self.roles)


@dataclass(frozen=True, slots=True)
class Viewer:
    """Whose eyes a query looks through: what they may see follows from their roles."""

    tenant: str
    account: str
    roles: frozenset[str]

    @property
    def sees_all(self) -> bool:
        """Whether they see all work, and instructions for anybody."""
        return not self.roles.isdisjoint(SEES_ALL)

    @property
    def put_to(self) -> list[str]:
        """Return what a proposal that is put to them names."""
        return [self.account, *(f"role:{role}" for role in sorted(self.roles))]

    def sees_what_is_for(self, person: str) -> bool:
        """Whether they see an instruction for one person, or for nobody in particular."""
        return self.sees_all or person in ("", self.account)


def admit_teacher(account: Account, what: str) -> None:
    """Let a signed-in person with the role `teaches` through, and nobody else. `what` completes "You may not …"."""
    if not account.principal.is_person:
        raise PersonRequired(what)
    if TEACHES not in account.roles:
        raise NotAdmitted(what, (TEACHES,))


def admit_corrector(account: Account, *, work_for: str, given_by: str, put_to: Collection[str]) -> None:
    """Let through whom the work was for, who gave it, to whom a proposal of it was put, who supervises or teaches.

    Never an agent, and nobody for merely reading it (T1.2).
    """
    refuse_agents(account)
    if account.principal.id in (work_for, given_by) or account.is_put_to(put_to):
        return
    if account.roles.isdisjoint(CORRECTS_ALL):
        raise NotAdmitted("correct this work", sorted(CORRECTS_ALL))


def refuse_agents(account: Account) -> None:
    """Refuse an agent's own account, before anything is looked at: no agent corrects work."""
    if account.principal.kind is PrincipalKind.AGENT:
        raise NotAdmitted("correct work as an agent")
