"""The second half of the nursery story: the tagger is told something, by people alone.

The tagger writes a plant's tag with the Latin name alone. Gus corrects it, and proposes what it should be told; nothing
changes. Hale, who teaches, makes it active, and the next tag is right. What each tag ran with can be shown: the set,
the instructions, and the hash of exactly what the model was sent. A yes is for what was asked under one set; under
another it is asked anew. And what was taught can be taken back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable
from contextlib import aclosing

from examples.nursery.following import HalesConsole, once, until
from examples.nursery.stage import Person, Stage
from examples.nursery.terminal import StoryError, Terminal, expect
from tutelage import TutelageError
from tutelage.runtime.v1.agents_pb2 import AgentSpec, HostedLoop, PutAgentRequest, Skill, ToolUse
from tutelage.runtime.v1.approvals_pb2 import Approval
from tutelage.runtime.v1.conversations_pb2 import OpenConversationRequest
from tutelage.runtime.v1.turns_pb2 import GetTurnRequest, StartTurnRequest, Turn, Work
from tutelage.shown import shown
from tutelage.teaching.v1.corrections_pb2 import CorrectionDraft, CorrectWorkRequest
from tutelage.teaching.v1.instructions_pb2 import (
    INSTRUCTION_STATE_PROPOSED,
    ActivateInstructionRequest,
    GetInstructionSetRequest,
    Instruction,
    InstructionDraft,
    InstructionSet,
    ListInstructionSetsRequest,
    ProposeInstructionRequest,
    RollBackInstructionsRequest,
)
from tutelage.teaching.v1.tasks_pb2 import ExplainTaskRequest, GetTaskRequest

LATIN = "Lavandula angustifolia"
COMMON = "Lavender (Lavandula angustifolia)"
PLANT = "Lavandula angustifolia, 2 litre pot"
GUIDANCE = "Put the common name first, the Latin name after it in brackets."
REASON = "Not this one."


class Tagger:
    """The tagger at work, each tag in a conversation of its own, and what has been promised so far."""

    def __init__(self, stage: Stage, terminal: Terminal, console: HalesConsole, gus: Person, hale: Person) -> None:
        self.stage = stage
        self.terminal = terminal
        self.console = console
        self.gus = gus
        self.hale = hale
        self.replies = 0
        self.printed: list[str] = []
        # Its set as the story begins: 0, but where the story was told before in the same folder.
        self.untaught = 0
        self.first: Turn
        self.proposal: Instruction

    async def begin(self, builder: Person) -> None:
        """Register the tagger."""
        spec = AgentSpec(
            name="tagger",
            purpose="You write the tags that hang on the plants of a small nursery.",
            hosted=HostedLoop(model=self.stage.model("tagger")),
            skills=[Skill(name="write_tag", description="Write the tag for one plant.", version="2")],
            tools=[ToolUse(tool="print_tag")],
        )
        await builder.runtime.agents.PutAgent(PutAgentRequest(spec=spec, request_id=once()))
        newest = (await self.gus.teaching.instructions.GetInstructionSet(GetInstructionSetRequest(agent="tagger"))).set
        if newest.members:
            newest = await self._roll_back(newest.number, "The story begins again.")
        self.untaught = newest.number

    # The acts

    async def write_the_first_tag(self) -> None:
        """Have a tag written by a tagger that nobody has told anything."""
        self.first = await self._tag(LATIN)
        await self._check_receipts(self.first, (self.untaught, []))

    async def correct(self) -> None:
        """Correct the first tag and propose what the tagger should be told; see that nothing has changed."""
        says = CorrectionDraft(
            wrong="The tag gives only the Latin name.", right=f"{COMMON}.", because="Customers ask for lavender."
        )
        self.terminal.quote("gus", f"{says.wrong} Right: {says.right} Because: {says.because}")
        asked = CorrectWorkRequest(task_id=f"{self.first.id}/tagger", correction=says, request_id=once())
        correction = (await self.gus.teaching.corrections.CorrectWork(asked)).correction
        draft = InstructionDraft(
            agent="tagger", guidance=GUIDANCE, why="Customers ask by the common name.", from_corrections=[correction.id]
        )
        proposing = ProposeInstructionRequest(draft=draft, request_id=once())
        self.proposal = (await self.gus.teaching.instructions.ProposeInstruction(proposing)).instruction
        expect(self.proposal.state == INSTRUCTION_STATE_PROPOSED, "what Gus wrote is a proposal")
        self.terminal.tell(f"A correction changes nothing. Drawn from it, a proposal: {self.proposal.id}.")
        await self._check_receipts(await self._tag(LATIN), (self.untaught, []))
        self.terminal.tell("A proposal changes nothing either: the model was sent nothing new.")

    async def activate(self, meant: bool) -> bool:
        """Have Gus try to make it active, who may not, and then Hale, who teaches."""
        activation = ActivateInstructionRequest(
            instruction_id=self.proposal.id,
            why="That is how we tag.",
            guidance_hash=self.proposal.guidance_hash,
            expected_set=self.untaught,
            request_id=once(),
        )
        refusal = await _refused(self.gus.teaching.instructions.ActivateInstruction(activation), "NOT_ADMITTED")
        self.terminal.tell(f"Gus may not make it active himself. {refusal}")
        self.terminal.show("hale's console: a proposal for the tagger", shown(self.proposal.says.guidance))
        if not await self.terminal.asks("Hale, is the tagger to be told exactly this?", meant):
            self.terminal.tell("So nothing was made active, and nothing changes.")
            return False
        made = (await self.hale.teaching.instructions.ActivateInstruction(activation)).set
        number = self.untaught + 1
        expect((made.number, list(made.members)) == (number, [self.proposal.id]), f"the proposal is set {number}")
        self.terminal.tell(f"Set {made.number} of the tagger, made by {made.by.id}; its hash is {made.hash}.")
        return True

    async def write_the_next_tag(self) -> None:
        """Have a tag written that is right, and see what both tags ran with."""
        await self._check_receipts(await self._tag(COMMON), (self.untaught + 1, [self.proposal.id]))
        asked = ExplainTaskRequest(task_id=f"{self.first.id}/tagger")
        words = (await self.gus.teaching.tasks.ExplainTask(asked)).words
        self.terminal.tell(f"And the first tag? {words}")
        began = (
            f"It ran with set {self.untaught} of tagger: 0 sent, 0 left out."
            if self.untaught
            else "It ran before anybody had taught tagger anything."
        )
        explained = f"{began} Since then 1 has been made active that it had not been sent."
        expect(words == explained, "the first tag is explained")

    async def roll_back_while_it_waits(self, meant: bool) -> None:
        """Take back what the tagger was told, while a person is asked about a tag that it wants to print."""
        printed, sent = False, [(self.untaught + 1, [self.proposal.id])]
        turn_id = await self._start(f"Print the tag of {PLANT}.")
        async with aclosing(self.gus.runtime.watch_turn(turn_id)) as events:
            await until(events, "waiting", self.terminal)
            approval = await self.console.shows(turn_id)
            await self._roll_back(self.untaught + 1, "The tags are being redesigned.")
            if await self._comes_too_late(approval, meant):
                sent.append((self.untaught + 2, []))
                await until(events, "waiting", self.terminal)
                approval = await self.console.shows(turn_id)
                printed = await self.console.answers(approval, meant, REASON)
            turn = await self.console.until_done(turn_id, events, REASON)
        self.replies += 1 + len(sent)
        self.printed += [json.loads(approval.input_json)["words"]] if printed else []
        if self.stage.scripted and printed:
            expect(self.printed[-1] == LATIN, "the tag is as before anybody taught it")
        expect(self.stage.tags() == self.printed, "what was printed is what Hale saw last, and said yes to")
        await self._check_receipts(turn, *sent)

    async def write_the_last_tag(self) -> None:
        """Have a tag written as before anybody had told the tagger anything."""
        await self._check_receipts(await self._tag(LATIN), (self.untaught + 2, []))

    async def sum_up(self) -> None:
        """Count, and hold the counts to what was promised."""
        self.terminal.title("What the tagger came to")
        paid, runs = self.stage.replies_paid("tagger"), self.stage.tool_runs().count("print_tag")
        if self.stage.scripted:
            self.terminal.tell(f"replies paid  {paid}, by the model's own file")
            expect(paid == self.replies, f"{self.replies} replies were paid, each once")
        self.terminal.tell(f"tool runs     {runs} printed, by the tools' own")
        listed = await self.gus.teaching.instructions.ListInstructionSets(ListInstructionSetsRequest(agent="tagger"))
        for one in reversed(listed.sets):
            self.terminal.tell(
                f"set {one.number}  {len(one.members)} active, by {one.by.id}: {one.why} hash {one.hash}"
            )
        expect(runs == len(self.printed), f"{len(self.printed)} were printed")

    # What happens in them

    async def _start(self, words: str) -> str:
        """Give the tagger a turn, in a conversation that knows of no other."""
        self.terminal.quote("gus", words)
        opened = await self.gus.runtime.conversations.OpenConversation(OpenConversationRequest(agent="tagger"))
        request = StartTurnRequest(conversation_id=opened.conversation.id, work=Work(input=words), request_id=once())
        return (await self.gus.runtime.turns.StartTurn(request)).turn.id

    async def _tag(self, wanted: str) -> Turn:
        """Have a tag written, and see what it says."""
        turn_id = await self._start(f"Write the tag of {PLANT}.")
        async with aclosing(self.gus.runtime.watch_turn(turn_id)) as events:
            turn = await self.console.until_done(turn_id, events, REASON)
        self.replies += 1
        if self.stage.scripted:
            expect(turn.output == wanted, f"the tag says {wanted}")
        return turn

    async def _roll_back(self, seen: int, why: str) -> InstructionSet:
        """Have Hale, who saw this set, take the tagger back to before anybody taught it."""
        request = RollBackInstructionsRequest(agent="tagger", to_set=0, why=why, expected_set=seen, request_id=once())
        self.terminal.quote("hale", f"{why} Back to how it was.")
        back = (await self.hale.teaching.instructions.RollBackInstructions(request)).set
        expect((back.number, back.restored_from) == (seen + 1, 0), f"set {seen + 1} restores set 0")
        expect(not back.members, "set 0 has no members")
        self.terminal.tell(
            f"Set {back.number} of the tagger restores set {back.restored_from}; its hash is {back.hash}."
        )
        return back

    async def _comes_too_late(self, approval: Approval, meant: bool) -> bool:
        """Whether Hale's answer is to something that was asked under another set: a yes is; a no is always taken."""
        try:
            yes = await self.console.answers(approval, meant, REASON)
        except TutelageError as refusal:
            expect(refusal.reason == "INSTRUCTIONS_CHANGED", f"it is refused for the set: {refusal}")
            self.terminal.tell(f"That yes was to what was asked under another set. {refusal}")
            return True
        expect(not yes, "no yes holds under another set")
        return False

    async def _check_receipts(self, turn: Turn, *sent: tuple[int, list[str]]) -> None:
        """See that a turn ran with these sets and instructions, and that its hashes are of exactly what was sent."""
        receipts = (await self.gus.runtime.turns.GetTurn(GetTurnRequest(turn_id=turn.id))).turn.receipts
        found = [(receipt.instruction_set, list(receipt.instructions_sent)) for receipt in receipts]
        expect(found == list(sent), f"the turn ran with {sent}, not with {found}")
        task = (await self.gus.teaching.tasks.GetTask(GetTaskRequest(task_id=receipts[0].task_id))).task
        for receipt, block in zip(receipts, task.sent, strict=True):
            ids = ", ".join(receipt.instructions_sent) or "none"
            self.terminal.tell(f"Its receipt: set {receipt.instruction_set}, instructions {ids},")
            self.terminal.tell(f"  SHA-256 {receipt.instructions_hash}")
            expect(_sha256(block.text) == receipt.instructions_hash, "the hash is of what teaching has kept")
        if not self.stage.scripted:
            return
        # The third part of the system prompt, after who the agent is and what its job is.
        told = "\n\n".join(self.stage.system_sent("tagger")[2:])
        expect(_sha256(told) == receipts[-1].instructions_hash, "the hash is of what the model was sent")
        self.terminal.tell("  It is that of what the model was sent, by the model's own file.")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def _refused(call: Awaitable[object], reason: str) -> str:
    """Return the sentence with which a call is refused."""
    try:
        await call
    except TutelageError as refusal:
        expect(refusal.reason == reason, f"it is refused by {reason}: {refusal}")
        return str(refusal)
    raise StoryError(f"It should have been refused by {reason}.")
