"""How the story follows work: what a turn does, and what waits at a person's console."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing

from examples.nursery.stage import DEADLINE_SECONDS
from examples.nursery.terminal import StoryError, Terminal, expect
from tutelage import Tutelage
from tutelage.journal_lines import line_of, state_name
from tutelage.runtime.v1.approvals_pb2 import (
    DECISION_APPROVE,
    DECISION_DENY,
    Approval,
    ApprovalFilter,
    DecideApprovalRequest,
)
from tutelage.runtime.v1.turns_pb2 import TURN_STATE_DONE, Turn, TurnEvent
from tutelage.shown import shown_json

Events = AsyncGenerator[TurnEvent, None]


def once() -> str:
    """Make the `request_id` of a call."""
    return uuid.uuid4().hex


async def until(events: Events, wanted: str, terminal: Terminal, *, or_else: str = "") -> TurnEvent:
    """Tell what a turn does until an event of this kind comes, or of the other."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        async for event in events:
            kind = event.WhichOneof("event")
            if kind == "record":
                terminal.quote(f"{event.record.line}", line_of(event.record))
            if kind in (wanted, or_else):
                return event
            expect(kind != "ended", f"the turn comes to {wanted}: {event.ended.cause}")
    raise StoryError(f"The watch ended without {wanted}.")


class HalesConsole:
    """Where Hale sees what waits, and answers."""

    def __init__(self, runtime: Tutelage, terminal: Terminal) -> None:
        self._runtime = runtime
        self._terminal = terminal
        self._seen: asyncio.Queue[Approval] = asyncio.Queue()

    async def watch(self) -> None:
        """See what waits, as it comes, without an end."""
        async with aclosing(self._runtime.watch_approvals(ApprovalFilter(put_to_me=True))) as events:
            async for event in events:
                for approval in event.waiting.approvals:
                    self._seen.put_nowait(approval)

    async def shows(self, turn_id: str) -> Approval:
        """Wait for what a turn asks, and show it."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            approval = await self._seen.get()
        expect(approval.turn_id == turn_id, "Hale's console shows the turn that waits")
        self._terminal.show(f"hale's console: {approval.tool}", shown_json(approval.input_json))
        return approval

    async def until_done(self, turn_id: str, events: Events, reason: str) -> Turn:
        """Follow a turn until it has handed back its output. Whatever it asks beyond its one question gets a no."""
        while (event := await until(events, "ended", self._terminal, or_else="waiting")).HasField("waiting"):
            await self.answers(await self.shows(turn_id), False, reason)
        turn = event.ended
        expect(turn.state == TURN_STATE_DONE, f"the turn is done, and not {state_name(turn.state)} {turn.cause}")
        self._terminal.quote(turn.agent, turn.output)
        return turn

    async def answers(self, approval: Approval, meant: bool, reason: str) -> bool:
        """Ask Hale, and send the answer to what was shown; `reason` goes with a no."""
        yes = await self._terminal.asks("Hale, may it?", meant)
        answer = DecideApprovalRequest(
            approval_id=approval.id,
            decision=DECISION_APPROVE if yes else DECISION_DENY,
            reason="" if yes else reason,
            fingerprint=approval.fingerprint,
            request_id=once(),
        )
        self._terminal.quote("hale", "Yes." if yes else f"No. {reason}")
        await self._runtime.approvals.DecideApproval(answer)
        return yes
