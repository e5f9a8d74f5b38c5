"""What replicas of the service tell each other, through rows alone: nobody of them keeps anything that matters.

A host is connected to one replica, and the turn that calls its tool may be held by another. So a call goes to a host
through its row, and what people and hosts say reaches the holder of a turn through theirs (`runtime.md` R3.1, R6.6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime_service.domain.approvals import Approval
from runtime_service.domain.calls import Call, Result
from runtime_service.domain.effects import Declaration
from runtime_service.domain.hosts import CallId, Incarnation
from runtime_service.domain.turns import TurnId


@dataclass(frozen=True, slots=True)
class SessionElsewhere:
    """A session that another replica holds. What is sent over it goes there through a row."""

    tenant: str
    host: str
    incarnation: Incarnation
    number: int
    offers: Mapping[str, Declaration]


@dataclass(frozen=True, slots=True)
class Read:
    """A call that only looks, on its way to a host that is connected elsewhere."""

    id: CallId
    tenant: str
    # Who waits for it: for as long as its lease runs and the row is there.
    process: str
    incarnation: Incarnation
    session: int
    tool: str
    input_json: str
    idempotency_key: str
    turn_id: TurnId
    address: str
    attempt: int
    timeout_seconds: float
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """What a replica has in hand when it looks at what the others did."""

    process: str
    sessions: Mapping[Incarnation, int]
    # What its hosts were sent for turns that others hold.
    sent: Sequence[CallId]
    # What it waits for from hosts elsewhere.
    reads: Sequence[CallId]
    # Its turns, with the number of its writer in each.
    turns: Mapping[TurnId, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """What others did, as the rows of one snapshot say."""

    sessions: Sequence[SessionElsewhere]
    # Calls and reads for hosts that are connected here, sent or not.
    calls: Sequence[Call]
    reads: Sequence[Read]
    # Of what was sent for others: what nobody waits for any more, and what has its result.
    given_up: Sequence[CallId]
    settled: Sequence[CallId]
    results: Mapping[CallId, Result]
    # Words about its turns that their writers have not copied, and the turns that another writer took.
    approvals: Sequence[Approval]
    words: Sequence[Call]
    lost: Sequence[TurnId]
