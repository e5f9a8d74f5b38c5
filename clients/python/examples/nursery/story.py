"""The first half of the nursery story, told as it happens.

    python story.py [--yes] [--data-dir FOLDER]

Gus asks the gardener, an agent, to merge notes. The gardener reads by itself; before it writes, somebody is
asked. Hale, who supervises, sees what would be written and answers. Then the tool host is killed between its
effect and its result, and a person says what became of the call.

Everything goes through the public gRPC API. The story ends with 0 only if all of it came out as told.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from examples.nursery.stage import DEADLINE_SECONDS, Host, Stage, StoryError, Terminal, expect, set_up
from tutelage import Tutelage, TutelageError
from tutelage.journal_lines import line_of, state_name
from tutelage.runtime.v1.agents_pb2 import AgentSpec, HostedLoop, PutAgentRequest, ToolUse
from tutelage.runtime.v1.approval_setting_pb2 import ApprovalRule, ApprovalSetting, ChangesRule
from tutelage.runtime.v1.approvals_pb2 import (
    DECISION_APPROVE,
    DECISION_DENY,
    Approval,
    ApprovalFilter,
    DecideApprovalRequest,
)
from tutelage.runtime.v1.conversations_pb2 import OpenConversationRequest
from tutelage.runtime.v1.tools_pb2 import ListToolsRequest
from tutelage.runtime.v1.turns_pb2 import (
    TURN_STATE_DONE,
    GetTurnRequest,
    ListRecordsRequest,
    Resolution,
    ResumeTurnRequest,
    RunAgain,
    StartTurnRequest,
    Turn,
    TurnEvent,
    UnfinishedCall,
    Work,
)
from tutelage.service_process import StartError
from tutelage.shown import shown_json

Events = AsyncGenerator[TurnEvent, None]

REASON = "Not before the pear tree has been pruned."


class Story:
    """The people, the agent and the conversation, and what has been promised so far."""

    def __init__(self, stage: Stage, terminal: Terminal, gus: Tutelage, hale: Tutelage) -> None:
        self.stage = stage
        self.terminal = terminal
        self.gus = gus
        self.hale = hale
        self.host: Host
        self.conversation_id = ""
        self.turn_ids: list[str] = []
        self.replies = 0
        self.runs = {"read_note": 0, "write_note": 0}
        self._seen_by_hale: asyncio.Queue[Approval] = asyncio.Queue()

    async def begin(self, builder: Tutelage) -> None:
        """Start a tool host, register the gardener, open the conversation."""
        self.host = await self.stage.host()
        await self._tools_on_offer()
        names = ("list_notes", "read_note", "write_note")
        spec = AgentSpec(
            name="gardener",
            purpose="You tend the notes of a plant nursery.",
            hosted=HostedLoop(model="scripted:gardener"),
            tools=[ToolUse(tool=name) for name in names],
        )
        await builder.agents.PutAgent(PutAgentRequest(spec=spec, request_id=_once()))
        setting = ApprovalSetting(rule=ApprovalRule(changes=ChangesRule()))
        opened = await self.gus.conversations.OpenConversation(
            OpenConversationRequest(agent="gardener", approve=setting)
        )
        self.conversation_id = opened.conversation.id

    async def watch_as_hale(self) -> None:
        """Be Hale's console: see what waits, as it comes."""
        async with aclosing(self.hale.watch_approvals(ApprovalFilter(put_to_me=True))) as events:
            async for event in events:
                for approval in event.waiting.approvals:
                    self._seen_by_hale.put_nowait(approval)

    # The acts

    async def merge(self, source: str, target: str, meant: bool) -> None:
        """Ask for a merge, answer, and see that the note on disk is as the answer was."""
        before = self.stage.note(target)
        async with self._asked(source, target) as (turn_id, events):
            yes, approval = await self._answered(turn_id, events, meant)
            turn = await self._ended(events)
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
                await self._ended(events)
                self.terminal.tell("Nothing was written, so there is no accident to tell of.")
                return
            wanted = json.loads(approval.input_json)["text"]
            await self._host_dies(target, wanted)
            call = await self._unfinished(turn_id, events)
            await self._resolve(turn_id, call, wanted, run_again)
            await self._ended(events)
        self.runs["write_note"] += 2 if run_again else 1
        expect(self.stage.note(target) == wanted, f"{target} reads as approved")

    async def sum_up(self) -> None:
        """Count, and hold the counts to what was promised."""
        self.terminal.title("What it came to")
        ran = self.stage.tool_runs()
        runs = {tool: ran.count(tool) for tool in self.runs}
        self.terminal.tell(f"replies paid  {self.stage.replies_paid()}, by the model's own file")
        self.terminal.tell(f"tool runs     {runs['read_note']} reads, {runs['write_note']} writes, by the tools' own")
        for turn_id in self.turn_ids:
            page = await self.gus.turns.ListRecords(ListRecordsRequest(turn_id=turn_id, page_size=1000))
            lines = [record.line for record in page.records]
            expect(lines == list(range(1, len(lines) + 1)), f"the records of {turn_id} have no gap")
            self.terminal.tell(f"turn {turn_id}  {len(lines)} records, chain head {page.records[-1].chain}")
        expect(self.stage.replies_paid() == self.replies, f"{self.replies} replies were paid, each once")
        expect(runs == self.runs, f"the tools ran as told: {self.runs}")

    # What happens in them

    @asynccontextmanager
    async def _asked(self, source: str, target: str) -> AsyncIterator[tuple[str, Events]]:
        """Give the gardener a turn, and follow it. Each costs three replies and two reads."""
        words = f"Merge {source} into {target}."
        self.terminal.quote("gus", words)
        request = StartTurnRequest(conversation_id=self.conversation_id, work=Work(input=words), request_id=_once())
        turn_id = (await self.gus.turns.StartTurn(request)).turn.id
        self.turn_ids.append(turn_id)
        self.replies += 3
        self.runs["read_note"] += 2
        async with aclosing(self.gus.watch_turn(turn_id)) as events:
            yield turn_id, events

    async def _answered(self, turn_id: str, events: Events, meant: bool) -> tuple[bool, Approval]:
        """Wait until the turn asks, show it on Hale's console, and send Hale's answer."""
        await self._until(events, "waiting")
        async with asyncio.timeout(DEADLINE_SECONDS):
            approval = await self._seen_by_hale.get()
        expect(approval.turn_id == turn_id, "Hale's console shows the turn that waits")
        self.terminal.show(f"hale's console: {approval.tool}", shown_json(approval.input_json))
        yes = await self.terminal.asks("Hale, may it?", meant)
        answer = DecideApprovalRequest(
            approval_id=approval.id,
            decision=DECISION_APPROVE if yes else DECISION_DENY,
            reason="" if yes else REASON,
            fingerprint=approval.fingerprint,
            request_id=_once(),
        )
        await self.hale.approvals.DecideApproval(answer)
        self.terminal.quote("hale", "Yes." if yes else f"No. {REASON}")
        return yes, approval

    async def _host_dies(self, target: str, wanted: str) -> None:
        code = await self.host.died()
        expect(code == -9, "the host was killed")
        expect(not self.stage.accident.exists(), "the host died by the accident")
        expect(self.stage.note(target) == wanted, f"{target} was written before the host died")
        self.terminal.tell(f"The host is dead (SIGKILL). {target} was written, and nobody was told.")
        self.host = await self.stage.host()
        self.terminal.tell("A new host has started. It runs nothing by itself.")

    async def _unfinished(self, turn_id: str, events: Events) -> UnfinishedCall:
        """Wait until the runtime says that the call may have run."""
        while not (await self._until(events, "interrupted")).interrupted.unfinished:
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
        await self.gus.turns.ResumeTurn(
            ResumeTurnRequest(turn_id=turn_id, resolutions=[resolution], request_id=_once())
        )

    async def _ended(self, events: Events) -> Turn:
        turn = (await self._until(events, "ended")).ended
        expect(turn.state == TURN_STATE_DONE, f"the turn is done, and not {state_name(turn.state)} {turn.cause}")
        self.terminal.quote("gardener", turn.output)
        return turn

    async def _until(self, events: Events, wanted: str) -> TurnEvent:
        """Tell what the turn does until an event of this kind comes."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            async for event in events:
                kind = event.WhichOneof("event")
                if kind == "record":
                    self.terminal.quote(f"{event.record.line}", line_of(event.record))
                if kind == wanted:
                    return event
                expect(kind != "ended", f"the turn comes to {wanted}: {event.ended.cause}")
        raise StoryError(f"The watch ended without {wanted}.")

    async def _tools_on_offer(self) -> None:
        """Look until the host's hello has been taken: no event tells of tools."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (await self.gus.tools.ListTools(ListToolsRequest())).tools:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def _once() -> str:
    return uuid.uuid4().hex


async def tell(stage: Stage, terminal: Terminal) -> None:
    """Tell the whole of it."""
    builder = await stage.person("fern", "builds")
    story = Story(stage, terminal, await stage.person("gus", "uses"), await stage.person("hale", "uses", "supervises"))
    terminal.title("A nursery, its notes, and an agent that tends them")
    terminal.tell(f"The runtime serves at {stage.runtime.address}; the notes are in {stage.notes}.")
    await story.begin(builder)
    async with asyncio.TaskGroup() as group:
        console = group.create_task(story.watch_as_hale())
        terminal.title("1. It asks before it writes")
        await story.merge("groceries.md", "todo.md", meant=True)
        terminal.title("2. A no is an answer")
        await story.merge("ideas.md", "plans.md", meant=False)
        terminal.title("3. The host dies between its effect and its result")
        await story.accident("seeds.md", "spring.md", run_again=False)
        terminal.title("4. Once more, and it runs again")
        await story.accident("watering.md", "summer.md", run_again=True)
        console.cancel()
    await story.sum_up()


async def run(folder: Path, terminal: Terminal) -> None:
    """Set the stage, tell the story, and clear the stage, also when the terminal goes."""
    told = asyncio.current_task()
    assert told is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, told.cancel)
    async with set_up(folder) as stage:
        await tell(stage, terminal)
    expect(await stage.runtime.ended() == 0, "the runtime stopped cleanly")
    terminal.tell("All of it came out as told.")


def main(
    yes: Annotated[bool, typer.Option("--yes", help="Answer for the person, without a terminal.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where it plays. Left out: a folder that goes.")] = None,
) -> None:
    """Tell the first half of the nursery story."""
    terminal = Terminal(yes)
    if not yes and not sys.stdin.isatty():
        terminal.tell("There is no terminal to ask at. Use --yes, or make run YES=1.")
        raise SystemExit(2)
    folder = data_dir or Path(tempfile.mkdtemp(prefix="nursery-"))
    try:
        asyncio.run(run(folder, terminal))
    except (StoryError, StartError, TutelageError, TimeoutError, ExceptionGroup) as failure:
        first = failure.exceptions[0] if isinstance(failure, ExceptionGroup) else failure
        terminal.tell(f"{type(first).__name__}: {first}")
        terminal.tell(f"The logs are in {folder}.")
        raise SystemExit(1) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise SystemExit(130) from None
    if data_dir is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    typer.run(main)
