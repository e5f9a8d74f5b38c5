"""The block: what a piece of work is sent of what people told its agent, exact to the byte (T5).

Published in docs/sets.md. A block is kept as ids, hash and version, and rendered from the instructions' words.

Invariants: `sha256` is of exactly the text's UTF-8 bytes; instructions are sent whole or left out; where too much
applies the least specific are left out, from the front.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from teaching_service.domain.instructions import Instruction, Work

RENDER_VERSION = 1
HEADING = "What people have told you since you were written. Where two of these disagree, the later one holds."


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one piece of work is sent: instructions, and characters of the text."""

    most_instructions: int = 20
    most_characters: int = 6_000

    def holds(self, instructions: Sequence[Instruction]) -> bool:
        """Whether they may be sent together."""
        return len(instructions) <= self.most_instructions and len(render(instructions)) <= self.most_characters


@dataclass(frozen=True, slots=True)
class Block:
    """What a task was sent: `InstructionBlock`. `words` is the first line of the task's record."""

    set_number: int
    set_hash: str
    instruction_ids: tuple[str, ...]
    text: str
    sha256: str
    left_out: int
    words: str
    render_version: int = RENDER_VERSION


def in_order(instructions: Iterable[Instruction]) -> list[Instruction]:
    """Return instructions as they are sent: the most specific last, within each by first activation (T5.2)."""
    return sorted(instructions, key=lambda one: one.place)


def render(instructions: Sequence[Instruction]) -> str:
    """Return the text, render version 1. Nothing applies: no text, no heading."""
    if not instructions:
        return ""
    lines = [f"{number}. {one.says.guidance}" for number, one in enumerate(instructions, 1)]
    return "\n".join([HEADING, *lines])


def applying(active: Iterable[Instruction], work: Work) -> list[Instruction]:
    """Return those of an agent's active instructions that apply to a piece of work, in order."""
    return in_order(one for one in active if one.says.applies_to(work))


def sent(apply: Sequence[Instruction], limits: Limits) -> Sequence[Instruction]:
    """Return those that are sent of those that apply: the least specific are left out, from the front (T5.3)."""
    while not limits.holds(apply):
        apply = apply[1:]
    return apply


def block_of(agent: str, set_number: int, set_hash: str, apply: Sequence[Instruction], limits: Limits) -> Block:
    """Return what a piece of work is sent, where these apply to it."""
    chosen = sent(apply, limits)
    text = render(chosen)
    left_out = len(apply) - len(chosen)
    return Block(
        set_number=set_number,
        set_hash=set_hash,
        instruction_ids=tuple(one.id for one in chosen),
        text=text,
        sha256=sha256(text.encode()).hexdigest(),
        left_out=left_out,
        words=first_line(agent, set_number, len(chosen), left_out),
    )


def first_line(agent: str, set_number: int, count: int, left_out: int) -> str:
    """Return the first line of a task's record: what it runs with, in words."""
    return f"Set {set_number} of {agent}: {count} sent, {left_out} left out."
