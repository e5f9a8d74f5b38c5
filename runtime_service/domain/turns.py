"""The states of a turn and the moves between them.

A turn is one request to an agent. Its row says where it stands; its journal says what was done. Rules: `runtime.md`
R3.1 (letting go), R5.1 (who writes), R6 (going on), R9 (conversations).

Invariants:
- A move that `MOVES` does not list is a defect, never an answer to a caller.
- `writer` only grows. Whoever took the turn last is the one writer whose records are kept.
- `line` and `chain` are those of the journal's last record: a unit that does not know them writes nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple, NewType

from runtime_service.domain.journal import ModelReplied
from runtime_service.domain.principals import Principal
from runtime_service.domain.rules import SettingInForce

TurnId = NewType("TurnId", str)


class ConversationKey(NamedTuple):
    """What tells a conversation from every other: callers choose ids, each tenant for itself."""

    tenant: str
    id: str


LONGEST_BACKOFF = timedelta(hours=1)


class TurnState(enum.Enum):
    """Where a turn stands: `turns.proto`."""

    READY = "READY"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    INTERRUPTED = "INTERRUPTED"
    DONE = "DONE"
    FAILED = "FAILED"
    ABANDONED = "ABANDONED"
    QUEUED = "QUEUED"

    @property
    def ended(self) -> bool:
        """Whether it has ended. A FAILED turn may be resumed all the same (R9)."""
        return self in (TurnState.DONE, TurnState.FAILED, TurnState.ABANDONED)

    @property
    def over(self) -> bool:
        """Whether nothing but a late result may follow (R5.1)."""
        return self in (TurnState.DONE, TurnState.ABANDONED)


_S = TurnState
MOVES: dict[TurnState, frozenset[TurnState]] = {
    _S.QUEUED: frozenset({_S.READY, _S.ABANDONED}),
    _S.READY: frozenset({_S.RUNNING, _S.ABANDONED}),
    # A writer takes a turn over from one whose lease has ended: RUNNING again.
    _S.RUNNING: frozenset({_S.RUNNING, _S.READY, _S.WAITING, _S.INTERRUPTED, _S.DONE, _S.FAILED, _S.ABANDONED}),
    _S.WAITING: frozenset({_S.READY, _S.ABANDONED}),
    # The scheduler takes an interrupted turn up by itself (R6.7).
    _S.INTERRUPTED: frozenset({_S.READY, _S.RUNNING, _S.ABANDONED}),
    _S.FAILED: frozenset({_S.READY}),
    _S.DONE: frozenset(),
    _S.ABANDONED: frozenset(),
}


class IfBusy(enum.Enum):
    """What a new turn does where its branch has one that has not ended: `turns.proto`."""

    UNSPECIFIED = "UNSPECIFIED"
    QUEUE = "QUEUE"
    REFUSE = "REFUSE"
    BRANCH = "BRANCH"


class Attended(enum.Enum):
    """Who a turn runs for. One without a conversation ends with its caller, and is never taken over (R3.2)."""

    # A turn of a conversation: it waits, saved, and any process goes on with it.
    BY_NOBODY = "BY_NOBODY"
    # `CallAgent`: there is nobody to ask.
    BY_A_CALL = "BY_A_CALL"
    # `StreamAgent`: what it asks waits in its process.
    BY_A_STREAM = "BY_A_STREAM"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a turn cost, over all its writers and every agent in it."""

    model_requests: int = 0
    replies_replayed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micro_usd: int = 0

    def plus(self, reply: ModelReplied) -> Usage:
        """Return it with one more reply paid."""
        return replace(
            self,
            model_requests=self.model_requests + 1,
            input_tokens=self.input_tokens + reply.input_tokens,
            output_tokens=self.output_tokens + reply.output_tokens,
            cost_micro_usd=self.cost_micro_usd + reply.cost_micro_usd,
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn's row."""

    id: TurnId
    tenant: str
    root_id: TurnId
    conversation_id: str
    number: int
    agent: str
    agent_version: str
    skill: str
    input: str
    work_for: Principal
    given_by: Principal
    scope: str
    settings: tuple[SettingInForce, ...]
    state: TurnState
    create_time: datetime
    update_time: datetime
    after_turn_id: str = ""
    parent_turn_id: str = ""
    parent_address: str = ""
    attended: Attended = Attended.BY_NOBODY
    # The call that needed an approval, and failed a plain call by it.
    needed_approval: str = ""
    output: str = ""
    cause: str = ""
    # Why it is free to be taken, for its next writer's record (settled 22).
    ready_because: str = "given"
    writer: int = 0
    process: str = ""
    line: int = 0
    chain: str = ""
    # The tools whose hosts an interrupted turn waits for: the hello of one that offers any makes it READY (R6.7).
    # So does the return of the teaching service, where that is among them by its own name.
    awaits_tools: tuple[str, ...] = ()
    tries: int = 0
    retry_time: datetime | None = None
    usage: Usage = field(default_factory=Usage)
    # In what order turns were made: lists go by it, never by time (settled 17). 0 until it is written.
    made: int = 0

    @property
    def conversation_key(self) -> ConversationKey:
        """Its conversation; of a turn without one, a key that no conversation has."""
        return ConversationKey(self.tenant, self.conversation_id)

    @property
    def held(self) -> bool:
        """Whether a writer has it. That writer's lease may have ended."""
        return self.state is TurnState.RUNNING

    @property
    def saved(self) -> bool:
        """Whether it outlives its process: a turn of a conversation."""
        return self.attended is Attended.BY_NOBODY

    def moved(self, state: TurnState, now: datetime, cause: str = "") -> Turn:
        """Return it in another state, let go of by its process unless that state is RUNNING."""
        assert state in MOVES[self.state], f"{self.id}: {self.state} -> {state}"
        process = self.process if state is TurnState.RUNNING else ""
        return replace(
            self,
            state=state,
            process=process,
            cause=cause,
            awaits_tools=(),
            retry_time=None,
            update_time=now,
        )

    def ready(self, because: str, now: datetime) -> Turn:
        """Return it free to be taken."""
        return replace(self.moved(TurnState.READY, now), ready_because=because)

    def taken(self, process: str, now: datetime) -> Turn:
        """Return it held by its next writer. Every reply it has recorded so far will be replayed."""
        usage = replace(self.usage, replies_replayed=self.usage.replies_replayed + self.usage.model_requests)
        return replace(self.moved(TurnState.RUNNING, now), process=process, writer=self.writer + 1, usage=usage)

    def interrupted(
        self, cause: str, now: datetime, *, awaits_tools: tuple[str, ...], again: bool, after: float = 0.0
    ) -> Turn:
        """Return it stopped on the way; with `again`, to be tried again by itself, later each time (R6.7).

        Not before `after` seconds: what the part that is away asked for.
        """
        tries = self.tries + 1
        wait = max(min(timedelta(seconds=2.0 ** min(tries, 12)), LONGEST_BACKOFF), timedelta(seconds=after))
        return replace(
            self.moved(TurnState.INTERRUPTED, now, cause),
            awaits_tools=awaits_tools,
            tries=tries,
            retry_time=now + wait if again else None,
        )


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation's row."""

    id: str
    tenant: str
    agent: str
    approve: SettingInForce | None
    opened_by: Principal
    create_time: datetime
    turns: int = 0
    # The newest turn that is DONE: what a new one follows (R9).
    newest_done: str = ""
    made: int = 0

    @property
    def key(self) -> ConversationKey:
        """What tells it from every other."""
        return ConversationKey(self.tenant, self.id)


def busy(open_turns: list[Turn], after_turn_id: str) -> Turn | None:
    """Return the turn of that branch that has not ended, the last that was given; None where the branch is free."""
    on_branch = [turn for turn in open_turns if turn.after_turn_id == after_turn_id]
    return max(on_branch, key=lambda turn: turn.number, default=None)
