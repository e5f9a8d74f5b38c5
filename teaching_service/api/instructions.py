"""`InstructionService`. What is left out answers NOT_IN_THIS_RELEASE."""

from __future__ import annotations

from typing import Any

from tutelage.teaching.v1 import instructions_pb2 as pb
from tutelage.teaching.v1 import instructions_pb2_grpc

from service_kit.idempotency import Repeatable, repeatable
from service_kit.identity import Caller, current_caller
from service_kit.messages import by_name, filled
from service_kit.paging import PageCodec, page, page_size
from teaching_service.api import access, from_proto, to_proto
from teaching_service.api.checks import Fields
from teaching_service.api.lookups import Changes, Lookups
from teaching_service.domain.instructions import Instruction, InstructionState, Work
from teaching_service.domain.lookups import InstructionsWanted
from teaching_service.domain.problems import InvalidFields, NoSuchThing
from teaching_service.domain.sets import Activation

MOST_REPLACED = 100


class InstructionService(instructions_pb2_grpc.InstructionServiceServicer):
    """What people tell agents, and the sets that it makes."""

    def __init__(self, lookups: Lookups, changes: Changes) -> None:
        self._lookups = lookups
        self._changes = changes

    async def ProposeInstruction(
        self, request: pb.ProposeInstructionRequest, context: Any
    ) -> pb.ProposeInstructionResponse:
        caller = current_caller()
        viewer, for_a_model = access.proposer(context)
        fields = Fields()
        fields.request_id(request.request_id)
        draft = from_proto.draft(request.draft, fields)
        # Of any other account, which agent's model proposes it is not taken (T2.6).
        agent = fields.agent("proposed_by_agent", request.proposed_by_agent, needed=False) if for_a_model else ""
        fields.done()
        if not for_a_model:
            access.check_may_tell_of(viewer, draft.for_person)
        again = repeatable(caller, viewer.tenant, "ProposeInstruction", request)
        instruction = await self._changes.propose(viewer, access.account(caller), draft, agent, again)
        return pb.ProposeInstructionResponse(instruction=to_proto.instruction(instruction))

    async def ReviseInstruction(
        self, request: pb.ReviseInstructionRequest, context: Any
    ) -> pb.ReviseInstructionResponse:
        caller = current_caller()
        fields = Fields()
        fields.needed("instruction_id", request.instruction_id)
        guidance = fields.guidance("guidance", request.guidance)
        fields.why("why", request.why)
        fields.done()
        instruction = await self._changes.revise(
            access.viewer(caller), access.account(caller), request.instruction_id, guidance, request.why
        )
        return pb.ReviseInstructionResponse(instruction=to_proto.instruction(instruction))

    async def RejectInstruction(
        self, request: pb.RejectInstructionRequest, context: Any
    ) -> pb.RejectInstructionResponse:
        caller = current_caller()
        fields = Fields()
        fields.needed("instruction_id", request.instruction_id)
        fields.why("why", request.why, needed=True)
        fields.done()
        instruction = await self._changes.reject(
            access.viewer(caller), access.account(caller), request.instruction_id, request.why
        )
        return pb.RejectInstructionResponse(instruction=to_proto.instruction(instruction))

    async def ActivateInstruction(
        self, request: pb.ActivateInstructionRequest, context: Any
    ) -> pb.ActivateInstructionResponse:
        caller = current_caller()
        fields = Fields()
        fields.needed("instruction_id", request.instruction_id)
        fields.needed("guidance_hash", request.guidance_hash)
        fields.why("why", request.why)
        if len(request.replaces) > MOST_REPLACED:
            fields.refuse("replaces", f"At most {MOST_REPLACED}.")
        expected = _checked(request, fields)
        made = await self._changes.activate(
            access.viewer(caller),
            access.account(caller),
            Activation(request.instruction_id, request.guidance_hash, tuple(request.replaces)),
            request.why,
            expected,
            _again(caller, "ActivateInstruction", request),
        )
        return pb.ActivateInstructionResponse(set=to_proto.instruction_set(made))

    async def RetireInstruction(
        self, request: pb.RetireInstructionRequest, context: Any
    ) -> pb.RetireInstructionResponse:
        caller = current_caller()
        fields = Fields()
        fields.needed("instruction_id", request.instruction_id)
        fields.why("why", request.why, needed=True)
        expected = _checked(request, fields)
        made = await self._changes.retire(
            access.viewer(caller),
            access.account(caller),
            request.instruction_id,
            request.why,
            expected,
            _again(caller, "RetireInstruction", request),
        )
        return pb.RetireInstructionResponse(set=to_proto.instruction_set(made))

    async def RollBackInstructions(
        self, request: pb.RollBackInstructionsRequest, context: Any
    ) -> pb.RollBackInstructionsResponse:
        caller = current_caller()
        fields = Fields()
        fields.agent("agent", request.agent)
        fields.number("to_set", request.to_set)
        fields.why("why", request.why, needed=True)
        fields.text("skill", request.skill, from_proto.MOST_SKILL_BYTES)
        expected = _checked(request, fields)
        made = await self._changes.roll_back(
            access.viewer(caller),
            access.account(caller),
            request.agent,
            request.to_set,
            request.why,
            expected,
            _again(caller, "RollBackInstructions", request),
            skill=request.skill,
            without_erased=request.without_erased,
        )
        return pb.RollBackInstructionsResponse(set=to_proto.instruction_set(made))

    async def GetInstruction(self, request: pb.GetInstructionRequest, context: Any) -> pb.GetInstructionResponse:
        found = await self._lookups.instruction(access.viewer(current_caller()), request.instruction_id)
        if found is None:
            raise NoSuchThing("instruction", request.instruction_id)
        return pb.GetInstructionResponse(instruction=to_proto.instruction(found))

    async def ListInstructions(self, request: pb.ListInstructionsRequest, context: Any) -> pb.ListInstructionsResponse:
        most = page_size(request.page_size)
        wanted = InstructionsWanted(agent=request.agent, states=_states(request), skill=request.skill)
        key = f"instructions\0{wanted}"
        after = PageCodec.decode(key, request.page_token)
        viewer = access.viewer(current_caller())
        found = await self._lookups.instructions(viewer, wanted, None if after is None else _place(after), most)
        shown, token = page(found, most, key, to_proto.instruction, _place_in_list)
        return pb.ListInstructionsResponse(instructions=shown, next_page_token=token)

    async def GetEffect(self, request: pb.GetEffectRequest, context: Any) -> pb.GetEffectResponse:
        found = await self._lookups.effect(access.viewer(current_caller()), request.instruction_id)
        if found is None:
            raise NoSuchThing("instruction", request.instruction_id)
        return filled(pb.GetEffectResponse(), found)

    async def GetInstructionSet(
        self, request: pb.GetInstructionSetRequest, context: Any
    ) -> pb.GetInstructionSetResponse:
        tenant = current_caller().tenant
        fields = Fields()
        fields.agent("agent", request.agent)
        fields.number("number", request.number)
        fields.done()
        if not request.HasField("number"):
            newest = await self._lookups.newest_set(tenant, request.agent)
            return pb.GetInstructionSetResponse(set=to_proto.instruction_set(newest))
        found = await self._lookups.set_numbered(tenant, request.agent, request.number)
        if found is None:
            raise NoSuchThing("set", str(request.number))
        return pb.GetInstructionSetResponse(set=to_proto.instruction_set(found))

    async def ListInstructionSets(
        self, request: pb.ListInstructionSetsRequest, context: Any
    ) -> pb.ListInstructionSetsResponse:
        most = page_size(request.page_size)
        fields = Fields()
        fields.agent("agent", request.agent)
        fields.done()
        key = f"sets\0{request.agent}"
        before = PageCodec.decode(key, request.page_token)
        tenant = current_caller().tenant
        found = await self._lookups.sets(tenant, request.agent, None if before is None else int(before), most)
        shown, token = page(found, most, key, to_proto.instruction_set, lambda one: one.number)
        return pb.ListInstructionSetsResponse(sets=shown, next_page_token=token)

    async def PreviewBlock(self, request: pb.PreviewBlockRequest, context: Any) -> pb.PreviewBlockResponse:
        viewer = access.viewer(current_caller())
        fields = Fields()
        fields.agent("agent", request.agent)
        fields.account("work_for", request.work_for)
        fields.done()
        access.check_may_tell_of(viewer, request.work_for)
        work = Work(request.skill, request.scope, request.work_for)
        preview = await self._lookups.preview(viewer, request.agent, work, request.with_instruction_id)
        return pb.PreviewBlockResponse(now=preview.now, then=preview.then, left_out=preview.left_out)


_Change = pb.ActivateInstructionRequest | pb.RetireInstructionRequest | pb.RollBackInstructionsRequest


def _checked(request: _Change, fields: Fields) -> int | None:
    """Check what every change of a set has, and all before it; return the set that the reviewer saw."""
    fields.request_id(request.request_id)
    expected = request.expected_set if request.HasField("expected_set") else None
    if expected is not None:
        fields.number("expected_set", expected)
    fields.done()
    return expected


def _again(caller: Caller, rpc: str, request: _Change) -> Repeatable | None:
    return repeatable(caller, caller.tenant, rpc, request)


def _states(request: pb.ListInstructionsRequest) -> tuple[InstructionState, ...]:
    states = tuple(by_name(InstructionState, pb.InstructionState, one) for one in request.states)
    if InstructionState.UNSPECIFIED in states:
        raise InvalidFields([("states", "These are not all states of an instruction.")])
    return states


def _place_in_list(one: Instruction) -> str:
    return ":".join(str(number) for number in one.listed_at)


def _place(token: int | str) -> tuple[int, int, int]:
    kind, place, made = str(token).split(":")
    return int(kind), int(place), int(made)
