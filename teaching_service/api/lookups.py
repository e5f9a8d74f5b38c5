"""What the servicers look up and change: the store's side, filled in by the composition root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from service_kit.feeds import Position
from service_kit.idempotency import Repeatable
from teaching_service.domain.access import Account, Viewer
from teaching_service.domain.block import Block
from teaching_service.domain.corrections import Correction, CorrectionDraft
from teaching_service.domain.explaining import Explanation
from teaching_service.domain.instructions import Instruction, InstructionDraft, Work
from teaching_service.domain.lookups import (
    CorrectionsWanted,
    Effect,
    InstructionsWanted,
    News,
    Preview,
    SetCheck,
    TasksWanted,
)
from teaching_service.domain.sets import Activation, InstructionSet
from teaching_service.domain.tasks import Proposal, Task


class Lookups(Protocol):
    """What there is, as it stands; each docstring is the store's."""

    async def task(self, viewer: Viewer, task_id: str) -> Task | None: ...
    async def tasks(self, viewer: Viewer, wanted: TasksWanted, before: int | None, most: int) -> Sequence[Task]: ...
    async def explanation(self, viewer: Viewer, task_id: str) -> Explanation | None: ...
    async def set_checks(self, tenant: str, task_ids: Sequence[str]) -> Sequence[SetCheck]: ...
    async def correction(self, viewer: Viewer, correction_id: str) -> Correction | None: ...
    async def corrections(
        self, viewer: Viewer, wanted: CorrectionsWanted, before: int | None, most: int
    ) -> Sequence[Correction]: ...
    async def instruction(self, viewer: Viewer, instruction_id: str) -> Instruction | None: ...
    async def instructions(
        self, viewer: Viewer, wanted: InstructionsWanted, after: tuple[int, int, int] | None, most: int
    ) -> Sequence[Instruction]: ...
    async def effect(self, viewer: Viewer, instruction_id: str) -> Effect | None: ...
    async def newest_set(self, tenant: str, agent: str) -> InstructionSet: ...
    async def set_numbered(self, tenant: str, agent: str, number: int) -> InstructionSet | None: ...
    async def sets(self, tenant: str, agent: str, before: int | None, most: int) -> Sequence[InstructionSet]: ...
    async def preview(self, viewer: Viewer, agent: str, work: Work, with_instruction_id: str) -> Preview: ...
    async def news(self, viewer: Viewer, position: Position, most: int) -> Sequence[tuple[Position, News]]: ...
    async def horizon(self) -> Position: ...


class Changes(Protocol):
    """What people and models say."""

    async def correct_work(
        self, viewer: Viewer, by: Account, task_id: str, draft: CorrectionDraft, again: Repeatable | None
    ) -> Correction: ...
    async def withdraw(self, viewer: Viewer, by: Account, correction_id: str, why: str) -> Correction: ...
    async def propose(
        self, viewer: Viewer, by: Account, draft: InstructionDraft, proposed_by_agent: str, again: Repeatable | None
    ) -> Instruction: ...
    async def revise(
        self, viewer: Viewer, by: Account, instruction_id: str, guidance: str, why: str
    ) -> Instruction: ...
    async def reject(self, viewer: Viewer, by: Account, instruction_id: str, why: str) -> Instruction: ...
    async def activate(
        self, viewer: Viewer, by: Account, what: Activation, why: str, expected_set: int | None,
        again: Repeatable | None,
    ) -> InstructionSet: ...  # fmt: skip
    async def retire(
        self, viewer: Viewer, by: Account, instruction_id: str, why: str, expected_set: int | None,
        again: Repeatable | None,
    ) -> InstructionSet: ...  # fmt: skip
    async def roll_back(
        self, viewer: Viewer, by: Account, agent: str, to_set: int, why: str, expected_set: int | None,
        again: Repeatable | None, *, skill: str, without_erased: bool,
    ) -> InstructionSet: ...  # fmt: skip


class TaskChanges(Protocol):
    """What the runtime says of the work that it does."""

    async def begin(self, task: Task) -> Block: ...
    async def take_up(self, tenant: str, task_id: str, number: int) -> Block: ...
    async def record_proposals(self, tenant: str, proposals: Sequence[Proposal]) -> None: ...
