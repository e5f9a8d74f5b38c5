"""`TurnService`."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from tutelage.runtime.v1 import approval_setting_pb2, turns_pb2_grpc
from tutelage.runtime.v1 import turns_pb2 as pb

from runtime_service.api import access, from_proto, seeing, to_proto
from runtime_service.api.checks import MOST_REASON_BYTES, MOST_TEXT_BYTES, Fields
from runtime_service.api.lookups import Lookups, Registry
from runtime_service.api.requests import repeatable
from runtime_service.api.watching import TurnWatch
from runtime_service.domain.agents import AgentSpec, Skill
from runtime_service.domain.calls import Resolution, Resolve
from runtime_service.domain.hosts import CallId
from runtime_service.domain.lookups import TurnsWanted
from runtime_service.domain.principals import Principal, PrincipalKind
from runtime_service.domain.problems import (
    ApprovalRequired,
    InputDoesNotFit,
    InvalidFields,
    NotAdmitted,
    NotInThisRelease,
)
from runtime_service.domain.rules import (
    ApprovalRule,
    Level,
    NothingAsked,
    RuleKind,
    RuleSetting,
    Setting,
    SettingInForce,
)
from runtime_service.domain.turns import Attended, Conversation, IfBusy, Turn, TurnId, TurnState
from runtime_service.engine import schemas
from runtime_service.engine.attendance import Attendance
from runtime_service.engine.committer import Committer
from runtime_service.engine.hosts import Hosts
from runtime_service.engine.lease import Lease
from runtime_service.engine.units.giving import GiveAttendedTurn, GiveTurn
from runtime_service.engine.units.resuming import ResumeTurn
from runtime_service.engine.units.turns import AbandonTurn
from runtime_service.engine.words import Words
from service_kit.feeds import Bell, CursorCodec
from service_kit.identity import Caller, current_caller
from service_kit.messages import by_name
from service_kit.paging import PageCodec, page, page_size
from service_kit.streams import Streams

MOST_WAITING = 200


class TurnService(turns_pb2_grpc.TurnServiceServicer):
    """Turns: one request to an agent each, journaled, and gone on with after any stop."""

    def __init__(
        self, lookups: Lookups, registry: Registry, committer: Committer, hosts: Hosts, lease: Lease,
        attendance: Attendance, words: Words, streams: Streams, bell: Bell, cursors: CursorCodec, *, approve: str,
    ) -> None:  # fmt: skip
        self._lookups = lookups
        self._registry = registry
        self._committer = committer
        self._hosts = hosts
        self._lease = lease
        self._attendance = attendance
        self._words = words
        self._streams = streams
        self._bell = bell
        self._cursors = cursors
        self._service_setting = _service_setting(approve)

    async def StartTurn(self, request: pb.StartTurnRequest, context: Any) -> pb.StartTurnResponse:
        caller = current_caller()
        fields = Fields()
        fields.needed("conversation_id", request.conversation_id)
        fields.request_id(request.request_id)
        if_busy = by_name(IfBusy, pb.IfBusy, request.if_busy)
        if request.if_busy not in pb.IfBusy.values():
            fields.refuse("if_busy", "This is none of those known.")
        approve = self._asked(caller, request.work, request.approve, fields)
        conversation = await seeing.conversation(self._lookups, caller, request.conversation_id)
        turn = await self._new_turn(caller, conversation.agent, request.work, approve, conversation)
        given = await self._committer.commit(
            GiveTurn(turn, if_busy, request.after_turn_id, repeatable(caller, "StartTurn", request))
        )
        return pb.StartTurnResponse(turn=await self._shown(caller, given))

    async def CallAgent(self, request: pb.CallAgentRequest, context: Any) -> pb.CallAgentResponse:
        caller = current_caller()
        fields = Fields()
        fields.request_id(request.request_id)
        fields.name("agent", request.agent)
        if request.parent_call_id:
            raise NotInThisRelease("A call on a tool call's account")
        approve = self._asked(caller, request.work, request.approve, fields)
        turn = await self._new_turn(caller, request.agent, request.work, approve, attended=Attended.BY_A_CALL)
        again = repeatable(caller, "CallAgent", request)
        turn_id = await self._committer.commit(GiveAttendedTurn(turn, self._lease.process, again))
        with self._attendance.attending(turn_id, may_return=again is not None):
            ended = await self._until_ended(caller, turn_id)
        if ended.needed_approval:
            raise ApprovalRequired(turn_id, ended.needed_approval)
        return pb.CallAgentResponse(turn=await self._shown(caller, turn_id))

    async def StreamAgent(self, request: pb.StreamAgentRequest, context: Any) -> AsyncIterator[pb.StreamAgentResponse]:
        caller = current_caller()
        fields = Fields()
        fields.name("agent", request.agent)
        approve = self._asked(caller, request.work, request.approve, fields)
        turn = await self._new_turn(caller, request.agent, request.work, approve, attended=Attended.BY_A_STREAM)
        turn_id = await self._committer.commit(GiveAttendedTurn(turn, self._lease.process))
        with self._attendance.attending(turn_id, may_return=False):
            begun = pb.TurnEvent(turn=await self._shown(caller, turn_id))
            yield pb.StreamAgentResponse(event=begun)
            watch = TurnWatch(self._lookups, access.viewer(caller), turn_id, self._words, self._cursors, "")
            events = watch.events(self._streams, self._bell, caller.expires_at, ends_by_itself=False)
            async for event in events:
                yield pb.StreamAgentResponse(event=event)

    async def GetTurn(self, request: pb.GetTurnRequest, context: Any) -> pb.GetTurnResponse:
        return pb.GetTurnResponse(turn=await self._shown(current_caller(), request.turn_id))

    async def ListTurns(self, request: pb.ListTurnsRequest, context: Any) -> pb.ListTurnsResponse:
        most = page_size(request.page_size)
        wanted = TurnsWanted(
            conversation_id=request.conversation_id,
            agent=request.agent,
            states=tuple(by_name(TurnState, pb.TurnState, one) for one in _states(request)),
            parent_turn_id=request.parent_turn_id,
            before_turn_id=request.before_turn_id,
        )
        key = f"turns\0{wanted}"
        before = PageCodec.decode(key, request.page_token)
        viewer = access.viewer(current_caller())
        found = await self._lookups.turns(viewer, wanted, None if before is None else int(before), most)
        details = await self._lookups.turn_details(found, most_waiting=MOST_WAITING)
        shown, token = page(details, most, key, to_proto.turn, lambda one: one.turn.made)
        return pb.ListTurnsResponse(turns=shown, next_page_token=token)

    async def ListRecords(self, request: pb.ListRecordsRequest, context: Any) -> pb.ListRecordsResponse:
        most = page_size(request.page_size)
        key = f"records\0{request.turn_id}"
        after = PageCodec.decode(key, request.page_token)
        turn = await seeing.turn(self._lookups, current_caller(), request.turn_id)
        found = await self._lookups.records(turn.id, int(after or 0), most)
        shown, token = page(found, most, key, to_proto.record, lambda one: one.line)
        return pb.ListRecordsResponse(records=shown, next_page_token=token)

    async def WatchTurn(self, request: pb.WatchTurnRequest, context: Any) -> AsyncIterator[pb.WatchTurnResponse]:
        caller = current_caller()
        turn = await seeing.turn(self._lookups, caller, request.turn_id)
        watch = TurnWatch(self._lookups, access.viewer(caller), turn.id, self._words, self._cursors, request.cursor)
        async for event in watch.events(self._streams, self._bell, caller.expires_at):
            yield pb.WatchTurnResponse(event=event)

    async def ResumeTurn(self, request: pb.ResumeTurnRequest, context: Any) -> pb.ResumeTurnResponse:
        caller = current_caller()
        fields = Fields()
        fields.request_id(request.request_id)
        resolutions = [
            (CallId(one.call_id), _resolution(one, f"resolutions[{place}]", caller, fields))
            for place, one in enumerate(request.resolutions)
        ]
        fields.done()
        turn = await seeing.turn(self._lookups, caller, request.turn_id)
        access.admit_to_stop(caller, turn)
        await self._committer.commit(
            ResumeTurn(
                turn.id,
                access.principal(caller),
                [(call_id, resolution) for call_id, resolution in resolutions if resolution is not None],
                repeatable(caller, "ResumeTurn", request),
            )
        )
        return pb.ResumeTurnResponse(turn=await self._shown(caller, turn.id))

    async def AbandonTurn(self, request: pb.AbandonTurnRequest, context: Any) -> pb.AbandonTurnResponse:
        caller = current_caller()
        fields = Fields()
        fields.request_id(request.request_id)
        fields.text("why", request.why, MOST_REASON_BYTES)
        fields.done()
        turn = await seeing.turn(self._lookups, caller, request.turn_id)
        access.admit_to_stop(caller, turn)
        under_way = await self._committer.commit(
            AbandonTurn(
                turn.id,
                access.principal(caller),
                request.why,
                self._lease.process,
                repeatable(caller, "AbandonTurn", request),
            )
        )
        for call in under_way:
            self._hosts.cancel(call.incarnation, call.id)
        return pb.AbandonTurnResponse(turn=await self._shown(caller, turn.id))

    # What they share

    def _asked(
        self, caller: Caller, work: pb.Work, approve: approval_setting_pb2.ApprovalSetting, fields: Fields
    ) -> Setting | None:
        """Check what is asked, and by whom; return who is asked about it. Raises with every field that is wrong."""
        fields.text("work.input", work.input)
        fields.text("work.scope", work.scope, 256)
        fields.account("work.work_for", work.work_for)
        setting = from_proto.setting(approve, "approve", fields, access.principal(caller))
        fields.done()
        if not access.may_work_for(caller, _work_for(caller, work)):
            raise NotAdmitted("give work for somebody else", ("supervises",))
        return setting

    async def _new_turn(
        self, caller: Caller, agent_name: str, work: pb.Work, approve: Setting | None,
        conversation: Conversation | None = None, attended: Attended = Attended.BY_NOBODY,
    ) -> Turn:  # fmt: skip
        """Return a turn as it is given: at the newest version of its agent, under the settings that it keeps to."""
        agent = await seeing.agent(self._registry, caller, agent_name)
        skill = _skill(agent.spec, work)
        given_by, work_for = access.principal(caller), _work_for(caller, work)
        turn_id, now = TurnId(uuid.uuid4().hex), datetime.now(UTC)
        return Turn(
            id=turn_id,
            tenant=caller.tenant,
            root_id=turn_id,
            conversation_id=conversation.id if conversation is not None else "",
            number=0,
            agent=agent.spec.name,
            agent_version=agent.version,
            skill=skill.name,
            input=work.input,
            work_for=given_by if work_for == caller.id else Principal(work_for, PrincipalKind.PERSON),
            given_by=given_by,
            scope=work.scope,
            settings=self._settings(caller, approve, conversation, agent.spec),
            state=TurnState.READY,
            create_time=now,
            update_time=now,
            attended=attended,
        )

    async def _until_ended(self, caller: Caller, turn_id: TurnId) -> Turn:
        """Wait until a turn has ended, however it does."""
        with self._bell.listen(f"turn:{turn_id}") as hints:
            while not (turn := await seeing.turn(self._lookups, caller, turn_id)).state.ended:
                await hints.wait(1.0)
        return turn

    def _settings(
        self, caller: Caller, approve: Setting | None, conversation: Conversation | None, spec: AgentSpec
    ) -> tuple[SettingInForce, ...]:
        """Return the settings that a turn keeps to until it ends, the most specific first (R2.1, R2.4)."""
        settings = [self._service_setting]
        if spec.approve is not None:
            settings.insert(0, SettingInForce(Level.AGENT, spec.approve))
        if conversation is not None and conversation.approve is not None:
            settings.insert(0, conversation.approve)
        if approve is not None:
            only_adds = not access.supervises(caller)
            settings.insert(0, SettingInForce(Level.TURN, approve, only_adds=only_adds))
        return tuple(settings)

    async def _shown(self, caller: Caller, turn_id: str) -> pb.Turn:
        turn = await seeing.turn(self._lookups, caller, turn_id)
        [detail] = await self._lookups.turn_details([turn], most_waiting=MOST_WAITING)
        return to_proto.turn(detail)


def _work_for(caller: Caller, work: pb.Work) -> str:
    """Return for whom work is: the person named, or whom the caller acts for, or the caller."""
    return work.work_for or caller.on_behalf_of or caller.id


def _service_setting(approve: str) -> SettingInForce:
    kinds = {"changes": RuleKind.CHANGES, "all": RuleKind.ALL}
    setting = RuleSetting(ApprovalRule(kinds[approve])) if approve in kinds else NothingAsked()
    return SettingInForce(Level.SERVICE, setting)


def _states(request: pb.ListTurnsRequest) -> list[pb.TurnState.ValueType]:
    unknown = [one for one in request.states if one == 0 or one not in pb.TurnState.values()]
    if unknown:
        raise InvalidFields([("states", "These are not all states of a turn.")])
    return list(request.states)


def _skill(spec: AgentSpec, work: pb.Work) -> Skill:
    """Return the skill that is asked for. Raises where there is none, or the input does not fit its schema."""
    skill = spec.skill(work.skill)
    if skill is None:
        names = ", ".join(one.name for one in spec.skills)
        raise InvalidFields([("work.skill", f"The agent's skills are: {names}.")])
    if skill.input_schema_json:
        fields = Fields()
        value = fields.json("work.input", work.input)
        fields.done()
        if found := schemas.problems(skill.input_schema_json, value):
            raise InputDoesNotFit(skill.name or spec.name, found)
    return skill


def _resolution(message: pb.Resolution, path: str, caller: Caller, fields: Fields) -> Resolution | None:
    by, proof = access.principal(caller), access.proof(caller)
    match message.WhichOneof("outcome"):
        case "output_json":
            fields.json(f"{path}.output_json", message.output_json, MOST_TEXT_BYTES)
            return Resolution(Resolve.OUTPUT, message.output_json, by, proof)
        case "error":
            fields.text(f"{path}.error", message.error)
            return Resolution(Resolve.ERROR, message.error, by, proof)
        case "run_again":
            return Resolution(Resolve.RUN_AGAIN, "", by, proof)
        case _:
            fields.refuse(path, "Say what became of it: an output, an error, or that it is to run again.")
            return None
