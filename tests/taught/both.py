"""Both services as the tests here drive them: the real ones, in this process, on loopback, in one data folder.

The runtime knows teaching by its address alone. Either can be stopped and started again on the same port, so each lives
through the other's absence as it would in life.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tutelage import TutelageError
from tutelage.runtime.v1 import agents_pb2, approvals_pb2, journal_pb2, turns_pb2
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalRule, ApprovalSetting, ChangesRule, NamesRule

from tests.services.service import Service, calls, refusal
from tests.teaching.service import Teaching, text_of

WRITE = ("write_note", {"name": "spring", "text": "tulips"})
READ = ("read_note", {"name": "spring"})
PURPOSE = "You look after the garden's notes."
SKILL = agents_pb2.Skill(name="WriteTag", description="Write the tag of a plant.", version="2")

COMMON_FIRST = "Put the common name first."
IN_BRACKETS = "Put the Latin name in brackets."
NO_PRICES = "Never write a price."

TOLD_TO_PROPOSE_AGAIN = "The instructions changed, so this call did not run. Propose it again if it is still right."
# Holds as the work begins, and whenever the model was just told that its instructions changed.
TO_PROPOSE = "size(results) == 0 || results[size(results) - 1].startsWith('The instructions changed')"
DONE = {"say": "Done."}

TOOLS_ALONE = ApprovalSetting(rule=ApprovalRule(changes=ChangesRule(tools_alone=True)))


def proposes(*asked: tuple[str, Any], say: str = "") -> dict[str, Any]:
    """A script's rule that calls tools, and calls them again once the instructions changed."""
    return calls(*asked, when=TO_PROPOSE, say=say)


def asked_about(*names: str) -> ApprovalSetting:
    """A setting that asks about these calls alone."""
    return ApprovalSetting(rule=ApprovalRule(names=NamesRule(names=names)))


def prompt(*guidances: str, purpose: str = PURPOSE, skill: str = SKILL.description) -> str:
    """The system prompt as a scripted model writes it down: purpose, skill, and the block last."""
    return "\n\n".join(part for part in (purpose, skill, text_of(*guidances)) if part)


class Both:
    """A runtime and the teaching service that it asks."""

    def __init__(self, runtime: Service, teaching: Teaching) -> None:
        self.runtime = runtime
        self.teaching = teaching

    async def agent(self, name: str, *rules: dict[str, Any], **spec: Any) -> None:
        """Register an agent with a purpose and a skill."""
        await self.runtime.agent(name, *rules, **({"purpose": PURPOSE, "skills": [SKILL]} | spec))

    async def tagger(self, *rules: dict[str, Any], **spec: Any) -> None:
        """Register one that writes a note, and writes it again once its instructions changed."""
        await self.agent("Tagger", *(rules or (proposes(WRITE), DONE)), **({"tools": ["write_note"]} | spec))

    async def chain(self, *innermost: dict[str, Any], names: Sequence[str] = ("Head", "Hand", "Tagger")) -> None:
        """Register agents that use each other as tools; the innermost says these rules.

        Their setting asks about tools alone.
        """
        await self.agent(names[-1], *innermost, tools=["read_note", "write_note"])
        for name, below in zip(reversed(names[:-1]), reversed(names[1:]), strict=True):
            down = calls((f"{below}.{SKILL.name}", {"input": "Your turn."}))
            await self.agent(name, down, {"say": f"{name} is done."}, agents=[below], approve=TOOLS_ALONE)

    async def waiting(self, agent: str = "Tagger") -> tuple[str, approvals_pb2.Approval]:
        """Ask an agent for work; return the turn and the question at which it waits, once it was let go of."""
        turn_id = await self.runtime.asked_of(agent)
        return turn_id, await self.runtime.question(turn_id)

    async def changed(self, asked: approvals_pb2.Approval, **answer: Any) -> TutelageError:
        """Say yes under a set that no longer stands; return what that was refused with."""
        error = await refusal(self.runtime.yes(asked, **answer))
        assert error.reason == "INSTRUCTIONS_CHANGED", error
        return error

    def prompts(self, agent: str = "Tagger") -> list[str]:
        """The system prompts that an agent's model was paid for."""
        return [asked["system"] for asked in self.runtime.paid(agent)]

    async def started(self, turn_id: str) -> dict[str, journal_pb2.TaskStarted]:
        """What each task of a turn began with, by its address."""
        records = await self.runtime.records(turn_id)
        return {one.address: one.task_started for one in records if one.HasField("task_started")}

    async def take_ups(self, turn_id: str) -> list[journal_pb2.InstructionsTakenUp]:
        """Each time that a task of a turn took the instructions up."""
        records = await self.runtime.records(turn_id)
        return [one.instructions_taken_up for one in records if one.HasField("instructions_taken_up")]

    async def receipts(self, turn_id: str) -> list[tuple[str, int, int]]:
        """A turn's receipts: path, the how-manieth take-up, set."""
        turn = await self.runtime.get(turn_id)
        return [(one.path, one.take_up, one.instruction_set) for one in turn.receipts]

    async def state(self, asked: approvals_pb2.Approval) -> str:
        """The state of a question as it stands now, without its prefix."""
        now = await self.runtime.approval(asked.id)
        return approvals_pb2.ApprovalState.Name(now.state).removeprefix("APPROVAL_STATE_")

    async def interrupted(self, turn_id: str, cause: str) -> turns_pb2.Turn:
        """Wait until a turn is interrupted for this."""
        shown = await self.runtime.events(turn_id, lambda event: cause in event.interrupted.cause)
        return shown[-1].interrupted
