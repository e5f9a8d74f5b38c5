"""What can be looked up, and through whose eyes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime_service.domain.approvals import Approval, ApprovalState
from runtime_service.domain.calls import Call
from runtime_service.domain.journal import InstructionsTakenUp, TaskStarted
from runtime_service.domain.turns import Turn, TurnState


@dataclass(frozen=True, slots=True)
class Viewer:
    """Whose eyes a query looks through. `sees_all`: everything of the tenant."""

    tenant: str
    account: str
    roles: frozenset[str]
    sees_all: bool

    @property
    def put_to(self) -> list[str]:
        """Return what an approval that is put to them names."""
        return [self.account, *(f"role:{role}" for role in sorted(self.roles))]


@dataclass(frozen=True, slots=True)
class TurnsWanted:
    """Which turns. What is empty does not narrow."""

    conversation_id: str = ""
    agent: str = ""
    states: tuple[TurnState, ...] = ()
    parent_turn_id: str = ""
    before_turn_id: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalsWanted:
    """Which approvals. What is empty does not narrow."""

    states: tuple[ApprovalState, ...] = ()
    agent: str = ""
    conversation_id: str = ""
    turn_id: str = ""
    tool: str = ""
    put_to_me: bool = False


@dataclass(frozen=True, slots=True)
class TurnDetail:
    """A turn with what belongs to it: what waits, what may have run, what its tasks ran with."""

    turn: Turn
    waiting: Sequence[Approval]
    waiting_count: int
    unfinished: Sequence[Call]
    tasks: Sequence[tuple[str, TaskStarted | InstructionsTakenUp]]
