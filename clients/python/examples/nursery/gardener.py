"""The first half of the nursery story: the gardener asks before it writes, and goes on after an accident.

Gus asks the gardener, an agent, to merge notes. The gardener reads by itself; before it writes, somebody is asked.
Hale, who supervises, sees what would be written and answers. Then the tool host is killed between its effect and its
result, and a person says what became of the call.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from examples.nursery.following import Events, HalesConsole, once, until
from examples.nursery.stage import Person, Stage
from examples.nursery.terminal import Terminal, expect
from tutelage.journal_lines import state_name
from tutelage.runtime.v1.agents_pb2 import AgentSpec, HostedLoop, PutAgentRequest, ToolUse
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalRule, ApprovalSetting, ChangesRule
from tutelage.runtime.v1.approvals_pb2 import Approval
from tutelage.runtime.v1.conversations_pb2 import OpenConversationRequest
from tutelage.runtime.v1.turns_pb2 import (
    GetTurnRequest,
    ListRecordsRequest,
    Resolution,
    ResumeTurnRequest,
    RunAgain,
    StartTurnRequest,
    UnfinishedCall,
    Work,
)

REASON = "Not before the pear tree has been pruned."
# To a model that asks for more than it was told to do.
ONCE = "Leave it at that."


class Gardener:
    """The gardener at work, in one conversation, and what has been promised so far."""

    def __init__(self, stage: Stage, terminal: Terminal, console: HalesConsole, gus: Person, hale: Person) -> None:
        self.stage = stage
        self.terminal = terminal
        self.console = console
        self.gus = gus.runtime
        self.hale = hale.runtime
        self.conversation_id = ""
        self.turn_ids: list[str] = []
        self.replies = 0
        self.runs = {"read_note": 0, "write_note": 0}

    async def begin(self, builder: Person) -> None:
        """Register the gardener, and open the conversation."""
        names = ("list_notes", "read_note", "write_note")
        spec = AgentSpec(
            name="gardener",
            purpose="You tend the notes of a plant nursery. To merge one note into another, read both, then write the "
            "other one anew, once, with all that stands in both.",
            hosted=HostedLoop(model=self.stage.model("gardener")),
            tools=[ToolUse(tool=name) for name in names],
        )
        await builder.runtime.agents.PutAgent(PutAgentRequest(spec=spec, request_id=once()))
        setting = ApprovalSetting(rule=ApprovalRule(changes=ChangesRule()))
        opened = await self.gus.conversations.OpenConversation(
            OpenConversationRequest(agent="gardener", approve=setting)
        )
        self.conversation_id = opened.conversation.id

    # The acts

    async def merge(self, source: str, target: str, meant: bool) -> None:
        """Ask for a merge, answer, and see that the note on disk is as the answer was."""
        before = self.stage.note(target)
        async with self._asked(source, target) as (turn_id, events):
            yes, approval = await self._answered(turn_id, events, meant)
            turn = await self.console.until_done(turn_id, events, ONCE)
        if self.stage.scripted:
            expect(turn.output.startswith("Done") is yes, "the gardener was told what the answer was")
        self.runs["write_note"] += yes
        wanted = json.loads(approval.input_json)["text"] if yes else before
        expect(self.stage.note(target) == wanted, f"{target} reads as {'approved' if yes else 'before'}")
        self.terminal.tell(f"{target} on disk {'now reads as it was shown' if yes else 'is as it was'}.")
        self.terminal.tell(f"The turn is {state_name(turn.state)}, under writer {turn.writer}.")

    async def accident(self, source: str, target: str, *, run_again: bool) -> None:
        """Ask for a merge, and have the host die between the effect and the result."""
        async with self._asked(source, target) as (turn_id, events):
            self.stage.accident.touch()
            yes, approval = await self._answered(turn_id, events, True)
            if not yes:
                self.stage.accident.unlink()
                await self.console.until_done(turn_id, events, ONCE)
                self.terminal.tell("Nothing was written, so there is no accident to tell of.")
                return
            wanted = json.loads(approval.input_json)["text"]
            await self._host_dies(target, wanted)
            call = await self._unfinished(turn_id, events)
            await self._resolve(turn_id, call, wanted, run_again)
            await self.console.until_done(turn_id, events, ONCE)
        self.runs["write_note"] += 2 if run_again else 1
        expect(self.stage.note(target) == wanted, f"{target} reads as approved")

    async def sum_up(self) -> None:
        """Count, and hold the counts to what was promised."""
        self.terminal.title("What the gardener came to")
        ran = self.stage.tool_runs()
        runs = {tool: ran.count(tool) for tool in self.runs}
        if self.stage.scripted:
            self.terminal.tell(f"replies paid  {self.stage.replies_paid('gardener')}, by the model's own file")
            expect(self.stage.replies_paid("gardener") == self.replies, f"{self.replies} replies were paid, each once")
            expect(runs["read_note"] == self.runs["read_note"], f"{self.runs['read_note']} notes were read")
        self.terminal.tell(f"tool runs     {runs['read_note']} reads, {runs['write_note']} writes, by the tools' own")
        for turn_id in self.turn_ids:
            page = await self.gus.turns.ListRecords(ListRecordsRequest(turn_id=turn_id, page_size=1000))
            lines = [record.line for record in page.records]
            expect(lines == list(range(1, len(lines) + 1)), f"the records of {turn_id} have no gap")
            self.terminal.tell(f"turn {turn_id}  {len(lines)} records, chain head {page.records[-1].chain}")
        expect(runs["write_note"] == self.runs["write_note"], f"{self.runs['write_note']} notes were written")

    # What happens in them

    @asynccontextmanager
    async def _asked(self, source: str, target: str) -> AsyncIterator[tuple[str, Events]]:
        """Give the gardener a turn, and follow it. Each costs three replies and two reads."""
        words = f"Merge {source} into {target}."
        self.terminal.quote("gus", words)
        request = StartTurnRequest(conversation_id=self.conversation_id, work=Work(input=words), request_id=once())
        turn_id = (await self.gus.turns.StartTurn(request)).turn.id
        self.turn_ids.append(turn_id)
        self.replies += 3
        self.runs["read_note"] += 2
        async with aclosing(self.gus.watch_turn(turn_id)) as events:
            yield turn_id, events

    async def _answered(self, turn_id: str, events: Events, meant: bool) -> tuple[bool, Approval]:
        """Wait until the turn asks, show it on Hale's console, and send Hale's answer."""
        await until(events, "waiting", self.terminal)
        approval = await self.console.shows(turn_id)
        return await self.console.answers(approval, meant, REASON), approval

    async def _host_dies(self, target: str, wanted: str) -> None:
        code = await self.stage.host.died()
        expect(code == -9, "the host was killed")
        expect(not self.stage.accident.exists(), "the host died by the accident")
        expect(self.stage.note(target) == wanted, f"{target} was written before the host died")
        self.terminal.tell(f"The host is dead (SIGKILL). {target} was written, and nobody was told.")
        await self.stage.start_host()
        self.terminal.tell("A new host has started. It runs nothing by itself.")

    async def _unfinished(self, turn_id: str, events: Events) -> UnfinishedCall:
        """Wait until the runtime says that the call may have run."""
        while not (await until(events, "interrupted", self.terminal)).interrupted.unfinished:
            pass  # the host was missed, but its time to come back is not over
        turn = (await self.hale.turns.GetTurn(GetTurnRequest(turn_id=turn_id))).turn
        expect(len(turn.unfinished) == 1, "one call is unfinished")
        call = turn.unfinished[0]
        self.terminal.tell(f"Unfinished: {call.tool}, call {call.call_id}. It may have run; only a person can say.")
        return call

    async def _resolve(self, turn_id: str, call: UnfinishedCall, wanted: str, run_again: bool) -> None:
        if run_again:
            resolution = Resolution(call_id=call.call_id, run_again=RunAgain())
            self.terminal.quote("gus", "Run it again.")
        else:
            name = json.loads(call.input_json)["name"]
            returned = await self.terminal.ask("What did it return?", f"wrote {name}, {len(wanted)} characters")
            resolution = Resolution(call_id=call.call_id, output_json=json.dumps(returned))
            self.terminal.quote("gus", f"It did run, and returned: {returned}")
        await self.gus.turns.ResumeTurn(ResumeTurnRequest(turn_id=turn_id, resolutions=[resolution], request_id=once()))
