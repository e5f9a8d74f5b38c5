"""The runtime's one window on the teaching service.

Without a teaching service every block is empty and its set is 0, which is a good mode of its own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from runtime_service.domain.journal import BlockReceipt
from runtime_service.domain.turns import Turn

RENDER_VERSION = 1


@dataclass(frozen=True, slots=True)
class Block:
    """What a task's model is told by people: the text, last in its system prompt, and what is kept of it."""

    text: str
    receipt: BlockReceipt
    # What the task runs with, in words: the first line of its record.
    words: str


class Teaching(Protocol):
    """What the engine asks of teaching."""

    async def begin_task(
        self, turn: Turn, task_id: str, agent: str, skill: str, skill_version: str, path: str
    ) -> Block:
        """Begin a task and return its block. The same task again: the same block, whatever was taught since."""
        ...


class NobodyTeaches:
    """There is no teaching service."""

    async def begin_task(
        self, turn: Turn, task_id: str, agent: str, skill: str, skill_version: str, path: str
    ) -> Block:
        """Return the empty block of set 0."""
        nothing = hashlib.sha256(b"").hexdigest()
        receipt = BlockReceipt(
            instruction_set=0, instruction_ids=(), sha256=nothing, left_out=0, render_version=RENDER_VERSION
        )
        return Block("", receipt, f"Set 0 of {agent}: 0 sent, 0 left out.")
