"""Calls that left the runtime: one row for each attempt at a tool that changes things.

What a host or a person says of a call is written to its row in the transaction that decides it; the turn's writer
copies it into the journal before it acts on it (`runtime.md` R5.1). R6.5 and R6.6 are the rules of this module.

Invariants:
- A call has at most one result and at most one resolution; the first of the two settles it.
- A call without either may have run. Nothing here ever lets it run again but a person's word.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import datetime

from runtime_service.domain.hosts import CallId, Incarnation
from runtime_service.domain.journal import LateResult
from runtime_service.domain.principals import Principal, Proof
from runtime_service.domain.turns import TurnId


class Outcome(enum.Enum):
    """How a host says that a call ended."""

    RETURNED = "RETURNED"
    FAILED = "FAILED"
    NOT_RUN = "NOT_RUN"


@dataclass(frozen=True, slots=True)
class Result:
    """What a host said of a call. `text` is the output as JSON text, or the error."""

    outcome: Outcome
    text: str


class Resolve(enum.Enum):
    """What a person says of an unfinished call."""

    OUTPUT = "OUTPUT"
    ERROR = "ERROR"
    RUN_AGAIN = "RUN_AGAIN"


@dataclass(frozen=True, slots=True)
class Resolution:
    """A person's word on an unfinished call. `text` is the output as JSON text, or the error."""

    resolve: Resolve
    text: str
    by: Principal
    proof: Proof


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt at a tool that changes things."""

    id: CallId
    tenant: str
    turn_id: TurnId
    address: str
    invocation: int
    tool: str
    input_json: str
    attempt: int
    host: str
    incarnation: Incarnation
    session: int
    timeout_seconds: float
    start_time: datetime
    deadline: datetime
    approval_id: str = ""
    # It may have run, and nobody is waited for any more: a person has to say, or its host reports after all.
    unfinished: bool = False
    result: Result | None = None
    resolution: Resolution | None = None
    # What came was the result of a call that something else had settled: evidence (`LateResult`).
    late: bool = False
    result_copied: bool = False
    resolution_copied: bool = False

    @property
    def open(self) -> bool:
        """Whether nobody has said yet what became of it."""
        return self.result is None and self.resolution is None

    @property
    def did_not_run(self) -> bool:
        """Whether its host said that it has certainly not run, and nobody has said anything else."""
        return self.result is not None and self.result.outcome is Outcome.NOT_RUN and self.resolution is None

    @property
    def to_copy(self) -> bool:
        """Whether there is a word here that its turn's writer has not copied yet."""
        result = self.result is not None and not self.result_copied
        return result or (self.resolution is not None and not self.resolution_copied)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at the same call, now and after any crash."""
        return f"{self.turn_id}/{self.address}"

    def resulted(self, result: Result, *, turn_over: bool) -> Call:
        """Return it with what its host said: settled by it where nobody resolved it and its turn lives, else late."""
        late = self.resolution is not None or turn_over
        return replace(self, result=result, late=late, unfinished=False)

    @property
    def parent_address(self) -> str:
        """The address of the call that makes it: where its records stand."""
        return self.address.rpartition("/")[0]

    def resolved(self, resolution: Resolution) -> Call:
        """Return it with a person's word."""
        return replace(self, resolution=resolution, unfinished=False)


def late_result(call: Call) -> tuple[str, LateResult]:
    """Return the record, with its address, of a result that settles nothing (R6.6)."""
    assert call.result is not None
    failed = call.result.outcome is Outcome.FAILED
    return call.parent_address, LateResult(call.id, call.result.text, failed, call.host)
