"""Turns are given: to a conversation, or taken at once by the process of their caller (`runtime.md` R3.2, R9)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime_service.domain.ledger import Ledger, Needs, Repeatable
from runtime_service.domain.problems import ConversationBusy, InvalidFields, NoSuchThing
from runtime_service.domain.turns import Conversation, IfBusy, Turn, TurnId, TurnState, busy
from runtime_service.engine.units.turns import take


@dataclass(frozen=True, slots=True)
class GiveTurn:
    """Write a new turn of a conversation, READY or behind another (R9). The same request gives the same turn."""

    turn: Turn
    if_busy: IfBusy
    after_turn_id: str
    request: Repeatable | None = None

    @property
    def needs(self) -> Needs:
        named = (TurnId(self.after_turn_id),) if self.after_turn_id else ()
        return Needs(
            conversations=(self.turn.conversation_key,),
            turns=named,
            request=self.request.key if self.request else None,
        )

    def run(self, ledger: Ledger) -> TurnId:
        if (known := ledger.repeated(self.request)) is not None:
            return TurnId(known)
        conversation = ledger.conversations.get(self.turn.conversation_key)
        if conversation is None:
            raise NoSuchThing("conversation", self.turn.conversation_id)
        after = self._after(ledger, conversation)
        before = busy(ledger.open_turns(conversation.key), after)
        state = TurnState.QUEUED if before is not None and self._queues(before) else TurnState.READY
        number = conversation.turns + 1
        ledger.conversations.put(conversation.key, replace(conversation, turns=number))
        turn = replace(
            self.turn,
            number=number,
            after_turn_id=after,
            state=state,
            create_time=ledger.now,
            update_time=ledger.now,
        )
        ledger.put_turn(turn)
        ledger.remember(self.request, turn.id)
        return turn.id

    def _after(self, ledger: Ledger, conversation: Conversation) -> str:
        if not self.after_turn_id:
            return conversation.newest_done
        after = ledger.turns.get(TurnId(self.after_turn_id))
        if after is None or after.conversation_key != conversation.key:
            raise NoSuchThing("turn", self.after_turn_id)
        if after.state is not TurnState.DONE:
            raise InvalidFields([("after_turn_id", "A turn follows one that is done; this one is not.")])
        return after.id

    def _queues(self, before: Turn) -> bool:
        """Whether it stands behind the other; False: it begins beside it. Raises `ConversationBusy`."""
        goes_on = before.state in (TurnState.READY, TurnState.RUNNING, TurnState.QUEUED)
        match self.if_busy:
            case IfBusy.BRANCH:
                return False
            case IfBusy.QUEUE:
                return True
            case IfBusy.UNSPECIFIED if goes_on:
                return True
            case _:
                raise ConversationBusy(self.turn.conversation_id, before.id)


@dataclass(frozen=True, slots=True)
class GiveAttendedTurn:
    """Write a new turn without a conversation, taken by this process at once. The same request gives the same turn."""

    turn: Turn
    process: str
    request: Repeatable | None = None

    @property
    def needs(self) -> Needs:
        return Needs(request=self.request.key if self.request else None)

    def run(self, ledger: Ledger) -> TurnId:
        if (known := ledger.repeated(self.request)) is not None:
            return TurnId(known)
        turn = replace(self.turn, create_time=ledger.now, update_time=ledger.now)
        ledger.remember(self.request, turn.id)
        return take(ledger, turn, self.process).id
