"""The nursery as the tests here drive it: over the public API alone, with the tagger of the story's second half."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from examples.nursery.stage import DEADLINE_SECONDS, Person, Stage
from tutelage.errors import TutelageError
from tutelage.runtime.v1.agents_pb2 import AgentSpec, HostedLoop, PutAgentRequest, Skill, ToolUse
from tutelage.runtime.v1.approvals_pb2 import Approval, DecideApprovalRequest, Decision
from tutelage.runtime.v1.conversations_pb2 import OpenConversationRequest
from tutelage.runtime.v1.turns_pb2 import (
    TURN_STATE_DONE,
    GetTurnRequest,
    StartTurnRequest,
    Turn,
    TurnEvent,
    Work,
)
from tutelage.teaching.v1.corrections_pb2 import Correction, CorrectionDraft, CorrectWorkRequest
from tutelage.teaching.v1.instructions_pb2 import (
    ActivateInstructionRequest,
    GetInstructionRequest,
    Instruction,
    InstructionDraft,
    InstructionSet,
    ProposeInstructionRequest,
    RetireInstructionRequest,
    RollBackInstructionsRequest,
)

STORY = Path(__file__).parents[2] / "clients/python/examples/nursery/story.py"
SECONDS = 100


async def tell_story(folder: Path, **settings: str) -> tuple[int, str]:
    """Tell the nursery story on a data folder, as `make run YES=1` does; return its exit code and what it said."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TUTELAGE_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(STORY),
        "--yes",
        "--data-dir",
        str(folder),
        env=clean | settings,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said.decode()


HEADING = "What people have told you since you were written. Where two of these disagree, the later one holds."
# What a person says of a tag with the Latin name alone.
WRONG = {
    "wrong": "The tag gives only the Latin name.",
    "right": "Lavender (Lavandula angustifolia).",
    "because": "Customers ask for lavender.",
}


class Asking:
    """A turn of the tagger, while it asks people."""

    def __init__(self, turn_id: str, events: AsyncIterator[TurnEvent]) -> None:
        self.turn_id = turn_id
        self._events = events

    async def asks(self) -> Approval:
        """Wait until it asks, and return what."""
        [approval] = (await self._until("waiting")).waiting.approvals
        return approval

    async def ends(self) -> str:
        """Wait until it is done, and return what it hands back."""
        turn = (await self._until("ended")).ended
        assert turn.state == TURN_STATE_DONE, turn
        return turn.output

    async def _until(self, wanted: str) -> TurnEvent:
        async with asyncio.timeout(DEADLINE_SECONDS):
            async for event in self._events:
                if event.HasField(wanted):  # type: ignore[arg-type]
                    return event
        raise AssertionError(f"the watch ended without {wanted}")


class Nursery:
    """Both services, and whoever is connected to them."""

    def __init__(self, stage: Stage, people: dict[str, Person]) -> None:
        self.stage = stage
        self._people = people

    def __getitem__(self, who: str) -> Person:
        return self._people[who]

    # The agent

    async def tagger(self, name: str) -> None:
        """Register a tagger that has been told nothing. It prints where its work begins with `Print`."""
        spec = AgentSpec(
            name=name,
            purpose="You write the tags that hang on the plants of a small nursery.",
            hosted=HostedLoop(model="scripted:tagger"),
            skills=[
                Skill(name="WriteTag", description="Write the tag for one plant.", version="2"),
                Skill(name="WriteSign", description="Write the sign for one bed.", version="1"),
            ],
            tools=[ToolUse(tool="print_tag")],
        )
        await self["fern"].runtime.agents.PutAgent(PutAgentRequest(spec=spec))

    @asynccontextmanager
    async def asking(self, agent: str, words: str = "Lavandula angustifolia", **work: str) -> AsyncIterator[Asking]:
        """Give a tagger work for Gus, and follow it for as long as the block lasts."""
        runtime = self["gus"].runtime
        opened = await runtime.conversations.OpenConversation(OpenConversationRequest(agent=agent))
        given = Work(**({"input": words, "skill": "WriteTag"} | work))
        started = await runtime.turns.StartTurn(StartTurnRequest(conversation_id=opened.conversation.id, work=given))
        async with aclosing(runtime.watch_turn(started.turn.id)) as events:
            yield Asking(started.turn.id, events)

    async def tag(self, agent: str, **work: str) -> Turn:
        """Have a tag written, and return its turn."""
        async with self.asking(agent, **work) as asking:
            await asking.ends()
        return await self.turn(asking.turn_id)

    async def turn(self, turn_id: str) -> Turn:
        return (await self["gus"].runtime.turns.GetTurn(GetTurnRequest(turn_id=turn_id))).turn

    async def decide(self, approval: Approval, decision: Decision.ValueType, by: str = "hale") -> None:
        request = DecideApprovalRequest(
            approval_id=approval.id, decision=decision, fingerprint=approval.fingerprint, reason="Not so."
        )
        await self[by].runtime.approvals.DecideApproval(request)

    def told(self) -> str:
        """What the model was sent last beyond who it is and its job, by the model's own file."""
        return "\n\n".join(self.stage.system_sent("tagger")[2:])

    # What people tell it

    async def correct(self, turn: Turn, by: str = "gus", **says: Any) -> Correction:
        draft = CorrectionDraft(**(WRONG | says))
        asked = CorrectWorkRequest(task_id=turn.receipts[0].task_id, correction=draft)
        return (await self[by].teaching.corrections.CorrectWork(asked)).correction

    async def propose(self, agent: str, guidance: str, by: str = "gus", **says: Any) -> Instruction:
        draft = InstructionDraft(agent=agent, guidance=guidance, **says)
        asked = ProposeInstructionRequest(draft=draft)
        return (await self[by].teaching.instructions.ProposeInstruction(asked)).instruction

    async def activate(self, proposal: Instruction, by: str = "hale", why: str = "") -> InstructionSet:
        return (await self[by].teaching.instructions.ActivateInstruction(activation(proposal, why))).set

    async def teach(self, agent: str, guidance: str, **says: Any) -> Instruction:
        """Propose an instruction and make it active."""
        proposal = await self.propose(agent, guidance, "hale", **says)
        await self.activate(proposal)
        return await self.instruction(proposal.id)

    async def instruction(self, instruction_id: str) -> Instruction:
        asked = GetInstructionRequest(instruction_id=instruction_id)
        return (await self["hale"].teaching.instructions.GetInstruction(asked)).instruction

    async def retire(self, instruction: Instruction) -> InstructionSet:
        asked = RetireInstructionRequest(instruction_id=instruction.id, why="No longer so.")
        return (await self["hale"].teaching.instructions.RetireInstruction(asked)).set

    async def roll_back(
        self, agent: str, to_set: int, why: str = "As it was.", skill: str = "", by: str = "hale"
    ) -> InstructionSet:
        asked = RollBackInstructionsRequest(agent=agent, to_set=to_set, why=why, skill=skill)
        return (await self[by].teaching.instructions.RollBackInstructions(asked)).set


def activation(proposal: Instruction, why: str = "") -> ActivateInstructionRequest:
    """What makes exactly this proposal active."""
    return ActivateInstructionRequest(instruction_id=proposal.id, why=why, guidance_hash=proposal.guidance_hash)


def text_of(*guidances: str) -> str:
    """The block that these make, written once more (T5.4)."""
    lines = [f"\n{number}. {guidance}" for number, guidance in enumerate(guidances, 1)]
    return HEADING + "".join(lines) if lines else ""


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def set_hash(members: Sequence[Instruction]) -> str:
    """The hash of a set, by hand (T4.2)."""
    hashed = b"tutelage.set.v1\0" + len(members).to_bytes(4, "big")
    for one in members:
        texts = (one.id, one.says.skill, one.says.for_person, one.says.on_scope)
        for field in (*(text.encode() for text in texts), hashlib.sha256(one.says.guidance.encode()).digest()):
            hashed += len(field).to_bytes(4, "big") + field
    return hashlib.sha256(hashed).hexdigest()


async def refused(call: Awaitable[object]) -> TutelageError:
    """Return what a call was refused with."""
    try:
        answer = await call
    except TutelageError as error:
        return error
    raise AssertionError(f"this was not refused: {answer}")
