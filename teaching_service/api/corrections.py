"""`CorrectionService`."""

from __future__ import annotations

from typing import Any

from tutelage.teaching.v1 import corrections_pb2 as pb
from tutelage.teaching.v1 import corrections_pb2_grpc

from service_kit.idempotency import repeatable
from service_kit.identity import current_caller
from service_kit.paging import PageCodec, page, page_size
from teaching_service.api import access, from_proto, to_proto
from teaching_service.api.checks import Fields
from teaching_service.api.lookups import Changes, Lookups
from teaching_service.domain.lookups import CorrectionsWanted
from teaching_service.domain.problems import NoSuchThing


class CorrectionService(corrections_pb2_grpc.CorrectionServiceServicer):
    """What was wrong with pieces of work."""

    def __init__(self, lookups: Lookups, changes: Changes) -> None:
        self._lookups = lookups
        self._changes = changes

    async def CorrectWork(self, request: pb.CorrectWorkRequest, context: Any) -> pb.CorrectWorkResponse:
        caller = current_caller()
        fields = Fields()
        fields.request_id(request.request_id)
        fields.needed("task_id", request.task_id)
        draft = from_proto.correction(request.correction, fields)
        fields.done()
        correction = await self._changes.correct_work(
            access.viewer(caller),
            access.account(caller),
            request.task_id,
            draft,
            repeatable(caller, caller.tenant, "CorrectWork", request),
        )
        return pb.CorrectWorkResponse(correction=to_proto.correction(correction))

    async def WithdrawCorrection(
        self, request: pb.WithdrawCorrectionRequest, context: Any
    ) -> pb.WithdrawCorrectionResponse:
        caller = current_caller()
        fields = Fields()
        fields.needed("correction_id", request.correction_id)
        fields.why("why", request.why, needed=True)
        fields.done()
        correction = await self._changes.withdraw(
            access.viewer(caller), access.account(caller), request.correction_id, request.why
        )
        return pb.WithdrawCorrectionResponse(correction=to_proto.correction(correction))

    async def GetCorrection(self, request: pb.GetCorrectionRequest, context: Any) -> pb.GetCorrectionResponse:
        found = await self._lookups.correction(access.viewer(current_caller()), request.correction_id)
        if found is None:
            raise NoSuchThing("correction", request.correction_id)
        return pb.GetCorrectionResponse(correction=to_proto.correction(found))

    async def ListCorrections(self, request: pb.ListCorrectionsRequest, context: Any) -> pb.ListCorrectionsResponse:
        most = page_size(request.page_size)
        wanted = CorrectionsWanted(
            task_id=request.task_id,
            agent=request.agent,
            skill=request.skill,
            instruction_id=request.instruction_id,
            withdrawn_too=request.withdrawn_too,
        )
        key = f"corrections\0{wanted}"
        before = PageCodec.decode(key, request.page_token)
        viewer = access.viewer(current_caller())
        found = await self._lookups.corrections(viewer, wanted, None if before is None else int(before), most)
        shown, token = page(found, most, key, to_proto.correction, lambda one: one.made)
        return pb.ListCorrectionsResponse(corrections=shown, next_page_token=token)
