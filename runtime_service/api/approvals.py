"""`ApprovalService`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from tutelage.runtime.v1 import approvals_pb2 as pb
from tutelage.runtime.v1 import approvals_pb2_grpc

from runtime_service.api import access, seeing, to_proto
from runtime_service.api.checks import MOST_INPUT_BYTES, MOST_REASON_BYTES, MOST_TEXT_BYTES, Fields
from runtime_service.api.lookups import Lookups
from runtime_service.api.requests import repeatable
from runtime_service.api.watching import ApprovalWatch
from runtime_service.domain import canonical_json
from runtime_service.domain.approvals import Answer, Approval, ApprovalState, Decision
from runtime_service.domain.canonical_json import JsonProblem
from runtime_service.domain.lookups import ApprovalsWanted
from runtime_service.domain.problems import InstructionsChanged, InvalidFields
from runtime_service.domain.turns import TurnId
from runtime_service.engine import schemas
from runtime_service.engine.committer import Committer
from runtime_service.engine.units.approvals import DecideApproval, DecideTurn, SupersedeQuestions, TakesAnswer
from runtime_service.teaching_link import Teaching
from service_kit.feeds import Bell, CursorCodec
from service_kit.identity import current_caller
from service_kit.messages import by_name
from service_kit.paging import PageCodec, page, page_size
from service_kit.streams import Streams

MOST_ANSWERED_AT_ONCE = 10_000


class ApprovalService(approvals_pb2_grpc.ApprovalServiceServicer):
    """What waits for a person, and the person's answer."""

    def __init__(
        self,
        lookups: Lookups,
        committer: Committer,
        teaching: Teaching,
        streams: Streams,
        bell: Bell,
        cursors: CursorCodec,
    ) -> None:
        self._lookups = lookups
        self._teaching = teaching
        self._committer = committer
        self._streams = streams
        self._bell = bell
        self._cursors = cursors

    async def GetApproval(self, request: pb.GetApprovalRequest, context: Any) -> pb.GetApprovalResponse:
        found = await seeing.approval(self._lookups, current_caller(), request.approval_id)
        return pb.GetApprovalResponse(approval=to_proto.approval(found))

    async def ListApprovals(self, request: pb.ListApprovalsRequest, context: Any) -> pb.ListApprovalsResponse:
        most = page_size(request.page_size)
        wanted = _wanted(request.filter)
        key = f"approvals\0{wanted}"
        after = PageCodec.decode(key, request.page_token)
        viewer = access.viewer(current_caller())
        found = await self._lookups.approvals(viewer, wanted, None if after is None else int(after), most)
        shown, token = page(found, most, key, to_proto.approval, lambda one: one.seq)
        return pb.ListApprovalsResponse(approvals=shown, next_page_token=token)

    async def WatchApprovals(
        self, request: pb.WatchApprovalsRequest, context: Any
    ) -> AsyncIterator[pb.WatchApprovalsResponse]:
        caller = current_caller()
        wanted = _wanted(request.filter)
        if wanted.states:
            raise InvalidFields([("filter.states", "A watch tells of every change; this is for lists alone.")])
        watch = ApprovalWatch(self._lookups, access.viewer(caller), wanted, self._cursors, request.cursor)
        async for event in watch.events(self._streams, self._bell, caller.expires_at):
            yield event

    async def DecideApproval(self, request: pb.DecideApprovalRequest, context: Any) -> pb.DecideApprovalResponse:
        caller = current_caller()
        fields = Fields()
        fields.request_id(request.request_id)
        fields.text("reason", request.reason, MOST_REASON_BYTES)
        fields.text("answer_json", request.answer_json, MOST_TEXT_BYTES)
        decision = by_name(Decision, pb.Decision, request.decision)
        if decision is Decision.UNSPECIFIED:
            fields.refuse("decision", "Say yes, no, or give an answer in its stead.")
        if decision in (Decision.APPROVE, Decision.ANSWER):
            fields.needed("fingerprint", request.fingerprint)
        approval = await seeing.approval(self._lookups, caller, request.approval_id)
        _check_edit(approval, request.edited_input_json, fields)
        fields.done()
        answer = Answer(
            decision=decision,
            by=access.principal(caller),
            reason=request.reason,
            edited_input_json=request.edited_input_json,
            answer_json=request.answer_json,
            proof=access.proof(caller),
        )
        unit = DecideApproval(
            approval.id,
            caller.tenant,
            answer,
            request.fingerprint,
            caller.roles,
            repeatable(caller, "DecideApproval", request),
        )
        await self._check_sets([approval], unit)
        decided = await self._committer.commit(unit)
        return pb.DecideApprovalResponse(approval=to_proto.approval(decided))

    async def DecideTurn(self, request: pb.DecideTurnRequest, context: Any) -> pb.DecideTurnResponse:
        caller = current_caller()
        decision = by_name(Decision, pb.Decision, request.decision)
        fields = Fields()
        fields.request_id(request.request_id)
        fields.text("reason", request.reason, MOST_REASON_BYTES)
        if decision not in (Decision.APPROVE, Decision.DENY):
            fields.refuse("decision", "Say yes or no.")
        if decision is Decision.APPROVE and not request.fingerprints:
            fields.refuse("fingerprints", "Send the fingerprints that the person saw: exactly those that wait.")
        fields.done()
        viewer = access.viewer(caller)
        turn = await seeing.turn(self._lookups, caller, request.turn_id)
        waiting = ApprovalsWanted(turn_id=turn.id)
        asked = await self._lookups.approvals(viewer, waiting, None, MOST_ANSWERED_AT_ONCE)
        answer = Answer(
            decision=decision, by=access.principal(caller), reason=request.reason, proof=access.proof(caller)
        )
        unit = DecideTurn(
            TurnId(turn.id),
            answer,
            frozenset(request.fingerprints),
            caller.roles,
            repeatable(caller, "DecideTurn", request),
        )
        await self._check_sets(asked, unit)
        decided = await self._committer.commit(unit)
        found = await self._lookups.approvals_by_id(viewer, decided)
        shown = sorted(found, key=lambda one: one.seq)
        return pb.DecideTurnResponse(approvals=[to_proto.approval(one) for one in shown])

    async def _check_sets(self, approvals: Sequence[Approval], unit: TakesAnswer) -> None:
        """Before a yes is taken, look whether the sets still stand under which it was asked (R3.6).

        Where one does not, nothing is decided: what was asked with it is superseded, and the model proposes again. A no
        is always taken. Raises `InstructionsChanged`; what the unit raises, where it would not take the answer anyway;
        `PartUnavailable` where teaching does not answer.
        """
        asked = [one for one in approvals if one.state is ApprovalState.PENDING]
        if unit.answer.decision not in (Decision.APPROVE, Decision.ANSWER) or not asked:
            return
        tenant = current_caller().tenant
        standing = await self._teaching.standing(tenant, {one.task_id for one in asked})
        if fallen := [one for one in asked if one.task_id not in standing]:
            await self._committer.commit(SupersedeQuestions(tuple(one.id for one in fallen), unit))
            raise InstructionsChanged(fallen[0].id)


def _wanted(message: pb.ApprovalFilter) -> ApprovalsWanted:
    unknown = [one for one in message.states if one == 0 or one not in pb.ApprovalState.values()]
    if unknown:
        raise InvalidFields([("filter.states", "These are not all states of an approval.")])
    return ApprovalsWanted(
        states=tuple(by_name(ApprovalState, pb.ApprovalState, one) for one in message.states),
        agent=message.agent,
        conversation_id=message.conversation_id,
        turn_id=message.turn_id,
        tool=message.tool,
        put_to_me=message.put_to_me,
    )


def _check_edit(approval: Approval, edited_input_json: str, fields: Fields) -> None:
    """Refuse an edited input that does not fit the tool's schema: it would never have been asked about (R3.7)."""
    if not edited_input_json:
        return
    try:
        value = canonical_json.parse(edited_input_json, limit_bytes=MOST_INPUT_BYTES)
    except JsonProblem as problem:
        fields.refuse("edited_input_json", str(problem))
        return
    for path, sentence in schemas.problems(approval.schema_json, value):
        fields.refuse(f"edited_input_json.{path}" if path else "edited_input_json", sentence)
