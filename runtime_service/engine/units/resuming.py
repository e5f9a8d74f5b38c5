"""A turn that stopped goes on, by the word of a person where something of it may have run (`runtime.md` R6.5, R9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime_service.domain.calls import Call, Resolution
from runtime_service.domain.hosts import CallId
from runtime_service.domain.ledger import Ledger, Needs, Repeatable, unfinished
from runtime_service.domain.principals import Principal
from runtime_service.domain.problems import ConversationBusy, InvalidFields, PersonRequired, TurnEnded, TurnWaiting
from runtime_service.domain.turns import Turn, TurnId, TurnState


@dataclass(frozen=True, slots=True)
class ResumeTurn:
    """Go on with a turn that stopped, and write what a person says of its unfinished calls (R6.5, R9, settled 13).

    A turn that is free, queued or held stays as it is. Raises `InvalidFields` naming every wrong resolution,
    `PersonRequired`, `TurnWaiting`, `TurnEnded`, `ConversationBusy`.
    """

    turn_id: TurnId
    by: Principal
    resolutions: Sequence[tuple[CallId, Resolution]]
    request: Repeatable | None = None

    @property
    def needs(self) -> Needs:
        return Needs(
            turns=(self.turn_id,),
            words_of=(self.turn_id,),
            conversations_of=(self.turn_id,),
            given_after=(self.turn_id,),
            request=self.request.key if self.request else None,
        )

    def run(self, ledger: Ledger) -> None:
        if ledger.repeated(self.request) is not None:
            return
        turn = ledger.turn(self.turn_id)
        if turn.state.over or (turn.state.ended and not turn.saved):
            raise TurnEnded(turn.id)
        if turn.state is TurnState.WAITING:
            raise TurnWaiting(turn.id)
        open_calls = unfinished(ledger.calls_of(turn.id))
        stopped = turn.state in (TurnState.INTERRUPTED, TurnState.FAILED)
        self._check(open_calls, every=stopped or bool(self.resolutions))
        by_id = {call.id: call for call in open_calls}
        for call_id, resolution in self.resolutions:
            ledger.calls.put(call_id, by_id[call_id].resolved(resolution))
        if turn.state is TurnState.FAILED:
            self._refuse_begun(ledger, turn)
        if stopped:
            ledger.put_turn(turn.ready("resumed", ledger.now))
        ledger.remember(self.request, turn.id)

    def _check(self, open_calls: Sequence[Call], *, every: bool) -> None:
        unnamed = {call.id for call in open_calls}
        wrong: list[tuple[str, str]] = []
        for place, (call_id, _) in enumerate(self.resolutions):
            if call_id not in {call.id for call in open_calls}:
                wrong.append((f"resolutions[{place}].call_id", "This call is not unfinished in this turn."))
            elif call_id not in unnamed:
                wrong.append((f"resolutions[{place}].call_id", "This call is named twice."))
            unnamed.discard(call_id)
        if unnamed and every:
            names = ", ".join(sorted(unnamed))
            wrong.append(("resolutions", f"Say what became of each unfinished call; still unnamed: {names}."))
        if wrong:
            raise InvalidFields(wrong)
        if self.resolutions and not self.by.is_person:
            raise PersonRequired("say what became of an unfinished call")

    def _refuse_begun(self, ledger: Ledger, turn: Turn) -> None:
        """Refuse to go on with a failed turn once another took its place on its branch (R9)."""
        if later := ledger.given_after(turn):
            raise ConversationBusy(turn.conversation_id, later[0].id, failed=turn.id)
