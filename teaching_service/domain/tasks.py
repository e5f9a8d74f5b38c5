"""Tasks: pieces of work, and the receipts of what each was sent (T6)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from teaching_service.domain.block import Block
from teaching_service.domain.instructions import Work
from teaching_service.domain.principals import Principal
from teaching_service.domain.problems import IdReused, InvalidFields


@dataclass(frozen=True, slots=True)
class Task:
    """One task's row, with its blocks: as it started, and each time it took up what changed."""

    id: str
    tenant: str
    agent: str
    skill: str
    skill_version: str
    turn_id: str
    path: str
    work_for: Principal
    given_by: Principal
    scope: str
    start_time: datetime
    sent: tuple[Block, ...] = ()
    made: int = 0

    @property
    def work(self) -> Work:
        """The work, as far as it decides what applies to it."""
        return Work(self.skill, self.scope, self.work_for.id)


def check_same(begun: Task, again: Task) -> None:
    """Check that a task that is begun again is the same piece of work. Raises `IdReused`.

    Its skill's version is not looked at: between a crash and the second try there may have been a deploy.
    """

    def what(task: Task) -> tuple[str, ...]:
        return task.agent, task.skill, task.turn_id, task.path, task.work_for.id, task.given_by.id, task.scope

    if what(begun) != what(again):
        raise IdReused("task", begun.id)


def check_take_up(task: Task, number: int) -> bool:
    """Say whether a take-up is the task's next; False for one that was made before. Raises `InvalidFields`."""
    if not 1 <= number <= len(task.sent):
        raise InvalidFields([("number", f"The next is {len(task.sent)}.")])
    return number == len(task.sent)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Something that a task proposed, and to whom it was put: account ids and `role:NAME`."""

    task_id: str
    proposal_id: str
    put_to: tuple[str, ...]
