"""`TaskService`."""

from __future__ import annotations

from typing import Any

from tutelage.teaching.v1 import tasks_pb2 as pb
from tutelage.teaching.v1 import tasks_pb2_grpc

from service_kit.identity import current_caller
from service_kit.messages import filled
from service_kit.paging import PageCodec, page, page_size
from teaching_service.api import access, from_proto, to_proto
from teaching_service.api.checks import Fields
from teaching_service.api.lookups import Lookups, TaskChanges
from teaching_service.domain.lookups import TasksWanted
from teaching_service.domain.problems import NoSuchThing

MOST_AT_ONCE = 1_000


class TaskService(tasks_pb2_grpc.TaskServiceServicer):
    """The pieces of work that agents do, and what each was sent."""

    def __init__(self, lookups: Lookups, changes: TaskChanges) -> None:
        self._lookups = lookups
        self._changes = changes

    async def BeginTask(self, request: pb.BeginTaskRequest, context: Any) -> pb.BeginTaskResponse:
        tenant = access.named_tenant(context)
        fields = Fields()
        task = from_proto.task(request, tenant, fields)
        fields.done()
        return pb.BeginTaskResponse(block=to_proto.block(await self._changes.begin(task)))

    async def CheckSets(self, request: pb.CheckSetsRequest, context: Any) -> pb.CheckSetsResponse:
        tenant = access.named_tenant(context)
        _check_count("task_ids", len(request.task_ids))
        checks = await self._lookups.set_checks(tenant, list(request.task_ids))
        return pb.CheckSetsResponse(checks=[filled(pb.SetCheck(), one) for one in checks])

    async def TakeUpInstructions(
        self, request: pb.TakeUpInstructionsRequest, context: Any
    ) -> pb.TakeUpInstructionsResponse:
        tenant = access.named_tenant(context)
        block = await self._changes.take_up(tenant, request.task_id, request.number)
        return pb.TakeUpInstructionsResponse(block=to_proto.block(block))

    async def RecordProposals(self, request: pb.RecordProposalsRequest, context: Any) -> pb.RecordProposalsResponse:
        tenant = access.named_tenant(context)
        _check_count("proposals", len(request.proposals))
        fields = Fields()
        proposals = [
            from_proto.proposal(one, f"proposals[{place}]", fields) for place, one in enumerate(request.proposals)
        ]
        fields.done()
        await self._changes.record_proposals(tenant, proposals)
        return pb.RecordProposalsResponse()

    async def GetTask(self, request: pb.GetTaskRequest, context: Any) -> pb.GetTaskResponse:
        found = await self._lookups.task(access.viewer(current_caller()), request.task_id)
        if found is None:
            raise NoSuchThing("task", request.task_id)
        return pb.GetTaskResponse(task=to_proto.task(found))

    async def ListTasks(self, request: pb.ListTasksRequest, context: Any) -> pb.ListTasksResponse:
        most = page_size(request.page_size)
        wanted = TasksWanted(agent=request.agent, turn_id=request.turn_id, instruction_id=request.instruction_id)
        key = f"tasks\0{wanted}"
        before = PageCodec.decode(key, request.page_token)
        viewer = access.viewer(current_caller())
        found = await self._lookups.tasks(viewer, wanted, None if before is None else int(before), most)
        shown, token = page(found, most, key, to_proto.task, lambda one: one.made)
        return pb.ListTasksResponse(tasks=shown, next_page_token=token)

    async def ExplainTask(self, request: pb.ExplainTaskRequest, context: Any) -> pb.ExplainTaskResponse:
        found = await self._lookups.explanation(access.viewer(current_caller()), request.task_id)
        if found is None:
            raise NoSuchThing("task", request.task_id)
        return filled(pb.ExplainTaskResponse(), found)


def _check_count(path: str, count: int) -> None:
    fields = Fields()
    if count > MOST_AT_ONCE:
        fields.refuse(path, f"At most {MOST_AT_ONCE} at once.")
    fields.done()
