"""Rows as domain values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import RowMapping

from teaching_service.domain.corrections import Correction, CorrectionDraft
from teaching_service.domain.instructions import Instruction, InstructionDraft
from teaching_service.domain.sets import InstructionSet
from teaching_service.domain.tasks import Task


def _names(kind: type) -> list[str]:
    return [field.name for field in fields(kind) if field.name not in ("says", "sent")]


_TASK = _names(Task)
_CORRECTION = _names(Correction)
_CORRECTION_SAYS = _names(CorrectionDraft)
_INSTRUCTION = _names(Instruction)
_INSTRUCTION_SAYS = _names(InstructionDraft)
_SET = _names(InstructionSet)


def _picked(row: RowMapping, names: list[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _own(value: object, names: list[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names if name != "made"}


def task_of(row: RowMapping) -> Task:
    """Return the task that a row is, without what it was sent."""
    return Task(**_picked(row, _TASK))


def task_row(task: Task) -> Mapping[str, Any]:
    """Return a task's row."""
    return _own(task, _TASK) | {"work_for_id": task.work_for.id, "given_by_id": task.given_by.id}


def correction_of(row: RowMapping) -> Correction:
    """Return the correction that a row is."""
    return Correction(says=CorrectionDraft(**_picked(row, _CORRECTION_SAYS)), **_picked(row, _CORRECTION))


def correction_row(correction: Correction) -> Mapping[str, Any]:
    """Return a correction's row."""
    says = _own(correction.says, _CORRECTION_SAYS)
    return _own(correction, _CORRECTION) | says | {"by_id": correction.by.id}


def instruction_of(row: RowMapping) -> Instruction:
    """Return the instruction that a row is."""
    return Instruction(says=InstructionDraft(**_picked(row, _INSTRUCTION_SAYS)), **_picked(row, _INSTRUCTION))


def instruction_row(instruction: Instruction) -> Mapping[str, Any]:
    """Return an instruction's row."""
    return _own(instruction, _INSTRUCTION) | _own(instruction.says, _INSTRUCTION_SAYS)


def set_of(row: RowMapping) -> InstructionSet:
    """Return the set that a row is."""
    return InstructionSet(**_picked(row, _SET))


def set_row(made: InstructionSet) -> Mapping[str, Any]:
    """Return a set's row; who made it stands in columns of its own too, for the database to check."""
    assert made.by is not None
    who = {"by_id": made.by.id, "by_kind": made.by.kind.name, "by_on_behalf_of": made.by.on_behalf_of}
    return _own(made, _SET) | who
