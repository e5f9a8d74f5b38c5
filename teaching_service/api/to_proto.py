"""Domain values as the contract's messages: fields have the names of their message's."""

from __future__ import annotations

from tutelage.teaching.v1 import corrections_pb2, instructions_pb2, tasks_pb2

from service_kit.messages import filled
from teaching_service.domain.block import Block
from teaching_service.domain.corrections import Correction
from teaching_service.domain.instructions import Instruction
from teaching_service.domain.sets import InstructionSet
from teaching_service.domain.tasks import Task


def correction(one: Correction) -> corrections_pb2.Correction:
    """Return a correction."""
    return filled(corrections_pb2.Correction(), one)


def instruction(one: Instruction) -> instructions_pb2.Instruction:
    """Return an instruction."""
    message = filled(instructions_pb2.Instruction(drawn_from=one.drawn_from), one)
    if one.active_since is not None:
        message.active_since.FromDatetime(one.active_since)
    return message


def instruction_set(one: InstructionSet) -> instructions_pb2.InstructionSet:
    """Return a set."""
    return filled(instructions_pb2.InstructionSet(), one)


def block(one: Block) -> tasks_pb2.InstructionBlock:
    """Return what a task was sent."""
    return filled(tasks_pb2.InstructionBlock(), one)


def task(one: Task) -> tasks_pb2.Task:
    """Return a task."""
    return filled(tasks_pb2.Task(), one)
