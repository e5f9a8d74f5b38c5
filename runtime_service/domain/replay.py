"""What a turn's records say was done: all that a hosted loop is rebuilt from (`runtime.md` R6.2).

The n-th reply of an address is its n-th step; a call is its reply's `invocation`. Nothing is compared, so a deploy
changes nothing of what was done. A call's records stand at the address of the call that makes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from runtime_service.domain.journal import (
    ApprovalAsked,
    ApprovalRecorded,
    InstructionsTakenUp,
    LateResult,
    ModelReplied,
    OutputDidNotFit,
    Record,
    TaskStarted,
    ToolDone,
    ToolStarted,
    TurnEnded,
    UnfinishedResolved,
    What,
)
from runtime_service.domain.turns import Usage


@dataclass(slots=True)
class CallPast:
    """What was recorded of one call, in order."""

    asked: list[ApprovalAsked] = field(default_factory=list)
    # By approval.
    recorded: dict[str, ApprovalRecorded] = field(default_factory=dict)
    started: list[ToolStarted] = field(default_factory=list)
    # By attempt.
    resolved: dict[str, UnfinishedResolved] = field(default_factory=dict)
    done: ToolDone | None = None


@dataclass(slots=True)
class TaskPast:
    """What was recorded of one agent's call."""

    started: TaskStarted | None = None
    # Where it was started in the journal. 0: by the writer at work.
    line: int = 0
    take_ups: list[InstructionsTakenUp] = field(default_factory=list)
    replies: list[ModelReplied] = field(default_factory=list)
    # What the model was told of what it handed back and did not fit, by the step that handed it back.
    did_not_fit: dict[int, str] = field(default_factory=dict)
    # Its step when the turn last failed. Whoever resumes it gives it as many tries again.
    failed_at: int = 0
    calls: dict[int, CallPast] = field(default_factory=lambda: defaultdict(CallPast))


class Past:
    """The records of a turn, found by the call that they belong to. Grows as the writer adds to it."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        # What the turn has cost so far, over all its writers.
        self.usage = Usage()
        # Attempts whose result settled nothing and was kept as evidence.
        self.late: set[str] = set()
        self._tasks: dict[str, TaskPast] = defaultdict(TaskPast)
        self._calls_by_approval: dict[str, CallPast] = {}
        self._calls_by_attempt: dict[str, CallPast] = {}
        for record in records:
            self.add(record.address, record.what, record.line)

    def task(self, address: str) -> TaskPast:
        """Return what was recorded of an agent's call: empty where nothing was."""
        return self._tasks[address]

    def call(self, address: str, invocation: int) -> CallPast:
        """Return what was recorded of a call by the agent at that address."""
        return self._tasks[address].calls[invocation]

    def add(self, address: str, what: What, line: int = 0) -> None:
        """Take a record in; with its line, where an earlier writer wrote it."""
        task = self._tasks[address]
        match what:
            case TaskStarted():
                task.started, task.line = what, line
            case InstructionsTakenUp():
                task.take_ups.append(what)
            case ModelReplied():
                task.replies.append(what)
                self.usage = self.usage.plus(what)
            case OutputDidNotFit(words):
                task.did_not_fit[len(task.replies)] = words
            case TurnEnded():
                for each in self._tasks.values():
                    each.failed_at = len(each.replies)
            case ApprovalAsked():
                call = task.calls[what.invocation]
                call.asked.append(what)
                self._calls_by_approval[what.approval_id] = call
            case ApprovalRecorded():
                self._calls_by_approval[what.approval_id].recorded[what.approval_id] = what
            case ToolStarted():
                call = task.calls[what.invocation]
                call.started.append(what)
                self._calls_by_attempt[what.call_id] = call
            case UnfinishedResolved():
                self._calls_by_attempt[what.call_id].resolved[what.call_id] = what
            case ToolDone():
                task.calls[what.invocation].done = what
            case LateResult():
                self.late.add(what.call_id)
            case _:
                pass
