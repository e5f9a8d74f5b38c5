"""Why the runtime refused something. One class for each reason, and one root.

RuntimeProblem
├── about a turn          TurnWaiting, TurnUnfinished, TurnEnded, TurnHeld, WriterSuperseded, LimitReached,
│                         ConversationBusy, ApprovalRequired
├── about an answer       AlreadyDecided, FingerprintChanged, InstructionsChanged, ApprovalExpired,
│                         NotPutToYou
├── about who asks        PersonRequired, NotAdmitted, NoSuchThing
├── about what was sent   InvalidFields, InputDoesNotFit, RequestIdReused, JsonProblem (canonical_json.py)
└── about the service     NoToolHost, PartUnavailable, NotInThisRelease

`reason` is the name of an `ErrorReason` without its prefix. `str(problem)` is the sentence for the caller:
what is wrong, and what to do about it. `metadata` holds ids, never anybody's words. One interceptor maps
them all to a status.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import ClassVar

from runtime_service.domain.times import rfc3339


class RuntimeProblem(Exception):
    """The root. Never raised itself."""

    reason: ClassVar[str]

    def __init__(
        self,
        sentence: str,
        *,
        fields: Iterable[tuple[str, str]] = (),
        retry_after: float | None = None,
        **metadata: str,
    ) -> None:
        super().__init__(sentence)
        self.metadata: dict[str, str] = {key: value for key, value in metadata.items() if value}
        self.fields: tuple[tuple[str, str], ...] = tuple(fields)
        self.retry_after = retry_after


class TurnWaiting(RuntimeProblem):
    """Something was asked of a turn that waits for a person."""

    reason = "TURN_WAITING"

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"Turn {turn_id} waits for a person. Answer what it asks, or abandon it.", turn_id=turn_id)


class TurnUnfinished(RuntimeProblem):
    """A turn has calls that may have run, and nobody said what became of them."""

    reason = "TURN_UNFINISHED"

    def __init__(self, turn_id: str, call_ids: Sequence[str] = ()) -> None:
        super().__init__(
            f"Turn {turn_id} has calls that may have run. Say in ResumeTurn what became of each.",
            turn_id=turn_id,
            call_ids=",".join(call_ids),
        )


class TurnEnded(RuntimeProblem):
    """Something was asked of a turn that has ended."""

    reason = "TURN_ENDED"

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"Turn {turn_id} has ended. Start another one.", turn_id=turn_id)


class TurnHeld(RuntimeProblem):
    """Another writer holds the turn, and its lease runs."""

    reason = "TURN_HELD"

    def __init__(self, turn_id: str, retry_after: float | None = None) -> None:
        super().__init__(
            f"Another process holds turn {turn_id}. Try again once its lease has ended.",
            turn_id=turn_id,
            retry_after=retry_after,
        )


class WriterSuperseded(RuntimeProblem):
    """A later writer took the turn over: nothing more of this one is recorded."""

    reason = "WRITER_SUPERSEDED"

    def __init__(self, turn_id: str, writer: int) -> None:
        super().__init__(
            f"Writer {writer} of turn {turn_id} is no longer its newest. Stop: nothing more is recorded.",
            turn_id=turn_id,
            writer=str(writer),
        )


class LimitReached(RuntimeProblem):
    """A turn reached a limit that its own agent sets. `limit` names a field of `Limits`."""

    reason = "LIMIT_REACHED"

    def __init__(self, turn_id: str, agent: str, limit: str, most: int, used: int) -> None:
        super().__init__(
            f"The turn has reached a limit of its agent {agent}: at most {most} {_LIMITED[limit]}, "
            f"and it came to {used}. "
            "Give the agent a greater one, or the work in smaller turns.",
            turn_id=turn_id,
            agent=agent,
            limit=limit,
            most=str(most),
            used=str(used),
        )


_LIMITED = {
    "model_requests": "model requests",
    "output_tokens": "output tokens",
    "cost_micro_usd": "millionths of a dollar",
    "depth": "agents below each other",
}


class ConversationBusy(RuntimeProblem):
    """The branch has a turn that has not ended, or one in the place of `failed`."""

    reason = "CONVERSATION_BUSY"

    def __init__(self, conversation_id: str, turn_id: str = "", failed: str = "") -> None:
        super().__init__(
            f"Turn {failed} failed, and turn {turn_id} was given in its place. Start another turn."
            if failed
            else f"Conversation {conversation_id} has a turn that has not ended. "
            "Wait for it, abandon it, or say in `if_busy` to queue or to branch.",
            conversation_id=conversation_id,
            turn_id=turn_id,
        )


class ApprovalRequired(RuntimeProblem):
    """A rule asks a person, and a plain call has nobody to ask."""

    reason = "APPROVAL_REQUIRED"

    def __init__(self, turn_id: str, address: str) -> None:
        super().__init__(
            f"{address} needs a person's approval, and a plain call has nobody to ask. It did not run. "
            "Start a turn of a conversation instead.",
            turn_id=turn_id,
            address=address,
        )


class AlreadyDecided(RuntimeProblem):
    """Somebody decided this before, and otherwise. `decision` is the state or the answer that stands."""

    reason = "ALREADY_DECIDED"

    def __init__(
        self, approval_id: str = "", *, by: str = "", time: datetime | None = None, decision: str = ""
    ) -> None:
        when = rfc3339(time) if time else ""
        stands = f": {decision}, by {by} at {when}" if by else f": {decision}" if decision else ""
        super().__init__(
            f"This is decided already{stands}. Nothing was changed.",
            approval_id=approval_id,
            by=by,
            time=when,
            decision=decision,
        )


class FingerprintChanged(RuntimeProblem):
    """What the answerer saw is not what waits."""

    reason = "FINGERPRINT_CHANGED"

    def __init__(self, approval_id: str) -> None:
        super().__init__(
            "What you saw is not what waits now. Read the approval again, and answer that.",
            approval_id=approval_id,
        )


class InstructionsChanged(RuntimeProblem):
    """The instruction set changed since the agent asked: its question no longer stands."""

    reason = "INSTRUCTIONS_CHANGED"

    def __init__(self, approval_id: str) -> None:
        super().__init__(
            "The agent's instructions changed since it asked, so nothing was decided. "
            "It takes them up now; what it proposes again is asked anew.",
            approval_id=approval_id,
        )


class ApprovalExpired(RuntimeProblem):
    """The approval's time ran out before this answer."""

    reason = "APPROVAL_EXPIRED"

    def __init__(self, approval_id: str, expire_time: datetime | None = None) -> None:
        super().__init__(
            "The time for this answer ran out, so the call does not run. The model is told that nobody answered.",
            approval_id=approval_id,
            expire_time=rfc3339(expire_time) if expire_time else "",
        )


class NotPutToYou(RuntimeProblem):
    """The approval was not put to the caller, or the caller gave the work and may not say yes to it."""

    reason = "NOT_PUT_TO_YOU"

    def __init__(self, approval_id: str, *, gave_it: bool = False) -> None:
        super().__init__(
            "You gave this work, and its rule wants somebody else's yes."
            if gave_it
            else "This was not put to you. Ask one of those in its `put_to`.",
            approval_id=approval_id,
        )


class PersonRequired(RuntimeProblem):
    """Only a person who signed in and speaks for themselves may do this. `what` completes "Only … may …"."""

    reason = "PERSON_REQUIRED"

    def __init__(self, what: str = "do this") -> None:
        super().__init__(f"Only a signed-in person may {what}: no program, no agent, and neither on a person's behalf.")


class NotAdmitted(RuntimeProblem):
    """The caller's roles do not admit this. `roles` are those of which one is needed."""

    reason = "NOT_ADMITTED"

    def __init__(self, what: str = "do this", roles: Sequence[str] = ()) -> None:
        needed = f" It needs {' or '.join(f'`{role}`' for role in roles)}." if roles else ""
        super().__init__(f"Your roles do not let you {what}.{needed}", roles=",".join(roles))


class NoSuchThing(RuntimeProblem):
    """Nothing of that id exists that the caller may see. `kind` is its word: turn, approval, agent."""

    reason = "NO_SUCH_THING"

    def __init__(self, kind: str, thing_id: str) -> None:
        super().__init__(
            f"There is no {kind} `{thing_id}` that you may see. Check the id, and who you are signed in as.",
            kind=kind,
            id=thing_id,
        )


class InvalidFields(RuntimeProblem):
    """Fields of a request are not allowed. Names every one of them at once (R12)."""

    reason = "INVALID_FIELD"

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        wrong = tuple(fields)
        super().__init__(" ".join(f"{path}: {sentence}" for path, sentence in wrong), fields=wrong)


class InputDoesNotFit(RuntimeProblem):
    """An input does not fit its schema. `fields` say where, and what is wrong."""

    reason = "INPUT_DOES_NOT_FIT"

    def __init__(self, tool: str, fields: Iterable[tuple[str, str]]) -> None:
        wrong = tuple(fields)
        said = " ".join(f"{path}: {sentence}" for path, sentence in wrong)
        super().__init__(f"The input does not fit the schema of {tool}. {said}", fields=wrong, tool=tool)


class RequestIdReused(RuntimeProblem):
    """The same `request_id`, or an id that the caller chose, was used before for something else."""

    reason = "REQUEST_ID_REUSED"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"`{request_id}` was used before for something else. Choose a new one.", request_id=request_id)


class NoToolHost(RuntimeProblem):
    """No connected host offers the tool."""

    reason = "NO_TOOL_HOST"

    def __init__(self, tool: str) -> None:
        super().__init__(f"No connected host offers {tool}. Start one, and try again.", tool=tool)


class PartUnavailable(RuntimeProblem):
    """A part that the call needs does not answer. Nothing was done."""

    reason = "PART_UNAVAILABLE"

    def __init__(self, part: str, retry_after: float | None = None) -> None:
        super().__init__(
            f"The {part} does not answer. Nothing was done; make the call again.",
            part=part,
            retry_after=retry_after,
        )


class NotInThisRelease(RuntimeProblem):
    """The contract has it, and this release does not do it yet."""

    reason = "NOT_IN_THIS_RELEASE"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not in this release.", what=what)
