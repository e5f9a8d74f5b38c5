"""What callers are told of problems, over real servers."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from google.rpc import error_details_pb2
from tutelage.common.v1 import errors_pb2
from tutelage.runtime.v1 import (
    approvals_pb2,
    approvals_pb2_grpc,
    tools_pb2,
    tools_pb2_grpc,
    turns_pb2,
    turns_pb2_grpc,
)

from service_kit import errors
from service_kit.errors import STATUS_OF, InvalidField, NoSuchThing, Problem, QuotaExceeded, status_of
from service_kit.grpc_server import Service
from tests.kit.conftest import Serving, SignIn, Told, bearer

PROTO = Path(__file__).parents[2] / "protos/tutelage/common/v1/errors.proto"


class Turns(turns_pb2_grpc.TurnServiceServicer):
    """A servicer whose every call ends in the same problem."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.problem = problem
        self.cleaned_up = asyncio.Event()

    async def GetTurn(self, request: Any, context: Any) -> turns_pb2.GetTurnResponse:
        if self.problem:
            raise self.problem
        return turns_pb2.GetTurnResponse(turn=turns_pb2.Turn(id=request.turn_id))

    async def WatchTurn(self, request: Any, context: Any) -> AsyncIterator[turns_pb2.WatchTurnResponse]:
        try:
            yield turns_pb2.WatchTurnResponse(event=turns_pb2.TurnEvent(cursor="1"))
            if self.problem:
                raise self.problem
            await asyncio.Event().wait()
        finally:
            self.cleaned_up.set()

    async def StreamAgent(self, request: Any, context: Any) -> AsyncIterator[turns_pb2.StreamAgentResponse]:
        """Send more than anybody reads, so that it is always in the middle of sending."""
        try:
            while True:
                text = turns_pb2.TextDelta(text="x" * 1_000_000)
                yield turns_pb2.StreamAgentResponse(event=turns_pb2.TurnEvent(text=text))
        finally:
            self.cleaned_up.set()

    async def ListTurns(self, request: Any, context: Any) -> Any:
        return StringValue(value="what no client of ListTurns can read") if request.page_size else None

    async def AbandonTurn(self, request: Any, context: Any) -> Any:
        task = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(task.cancel)
        await task


class Tools(tools_pb2_grpc.ToolHostServiceServicer):
    async def Serve(
        self, request_iterator: AsyncIterator[tools_pb2.ServeRequest], context: Any
    ) -> AsyncIterator[tools_pb2.ServeResponse]:
        async for request in request_iterator:
            if not request.hello.host:
                raise InvalidField([("hello.host", "must not be empty")])
            yield tools_pb2.ServeResponse(welcome=tools_pb2.HostWelcome())


def test_every_reason_has_the_status_that_the_contract_says_beside_it() -> None:
    """The comment of each reason in errors.proto begins with the only code that it is sent with."""
    said = {}
    for comment, name in re.findall(r"((?: +//.*\n)+) +ERROR_REASON_(\w+) = ", PROTO.read_text()):
        code = re.match(r"\s*// ([A-Z_]+)\.", comment)
        if code:
            said[name] = grpc.StatusCode[code[1]]

    assert len(said) == len(errors_pb2.ErrorReason.keys()) - 1
    assert said == STATUS_OF


def test_every_problem_of_the_kit_has_a_reason_of_the_table_and_a_sentence() -> None:
    for problem in errors.KitProblem.__subclasses__():
        made: Any = problem([("name", "is wrong")]) if problem is InvalidField else problem()
        assert isinstance(made, Problem)
        assert made.reason in STATUS_OF
        assert str(made)


def turns_with(problem: BaseException | None = None) -> Turns:
    return Turns(problem)  # type: ignore[abstract]  # what it leaves to its base is what one test is about


def added(turns: Turns) -> list[Service]:
    return [(turns_pb2_grpc.add_TurnServiceServicer_to_server, turns)]


async def refusal(call: Any) -> Told:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call if not hasattr(call, "__aiter__") else [message async for message in call]
    return await Told.by(caught.value)


async def test_a_problem_is_told_with_its_reason_domain_and_metadata(serving: Serving, sign_in: SignIn) -> None:
    turns = turns_with(NoSuchThing("There is no turn t1.", metadata={"turn_id": "t1"}))
    async with serving(added(turns)) as served:
        told = await refusal(served.turns.GetTurn(turns_pb2.GetTurnRequest(turn_id="t1"), metadata=bearer(sign_in())))

    assert (told.code, told.sentence) == (grpc.StatusCode.NOT_FOUND, "There is no turn t1.")
    assert (told.reason, told.domain) == ("NO_SUCH_THING", "runtime.tutelage")
    assert told.metadata == {"turn_id": "t1"}
    assert not told.fields
    assert told.retry_after is None


async def test_every_wrong_field_and_the_time_to_try_again_are_told(serving: Serving, sign_in: SignIn) -> None:
    fields = [("work.agent", "must not be empty"), ("work.input_json", "is not JSON")]
    async with serving(added(turns_with(InvalidField(fields)))) as served:
        wrong = await refusal(served.turns.GetTurn(turns_pb2.GetTurnRequest(), metadata=bearer(sign_in())))
    async with serving(added(turns_with(QuotaExceeded(retry_after=1.5)))) as served:
        quota = await refusal(served.turns.GetTurn(turns_pb2.GetTurnRequest(), metadata=bearer(sign_in())))

    assert fields == wrong.fields
    assert (quota.code, quota.retry_after) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 1.5)


async def test_a_streams_problem_is_told_after_what_was_sent(serving: Serving, sign_in: SignIn) -> None:
    turns = turns_with(NoSuchThing())
    async with serving(added(turns)) as served:
        call = served.turns.WatchTurn(turns_pb2.WatchTurnRequest(), metadata=bearer(sign_in()))
        first = await anext(aiter(call))
        told = await refusal(call)

    assert first.event.cursor == "1"
    assert told.reason == "NO_SUCH_THING"


async def test_a_problem_in_a_stream_of_requests_is_told(serving: Serving, sign_in: SignIn) -> None:
    tools = Tools()  # type: ignore[abstract]
    async with serving([(tools_pb2_grpc.add_ToolHostServiceServicer_to_server, tools)]) as served:
        stub = tools_pb2_grpc.ToolHostServiceStub(served.channel)
        call = stub.Serve(metadata=bearer(sign_in()))
        await call.write(tools_pb2.ServeRequest(hello=tools_pb2.HostHello(host="billing")))
        welcome: Any = await call.read()
        await call.write(tools_pb2.ServeRequest())
        told = await refusal(call.read())

    assert welcome.HasField("welcome")
    assert told.fields == [("hello.host", "must not be empty")]


async def test_a_defect_is_told_by_an_id_that_the_log_has_and_nothing_else(
    serving: Serving, sign_in: SignIn, logged: io.StringIO
) -> None:
    """The text of an exception that is no problem of ours may hold anything: it stays here."""
    async with serving(added(turns_with(RuntimeError("the launch code is 0000")))) as served:
        told = await refusal(served.turns.GetTurn(turns_pb2.GetTurnRequest(), metadata=bearer(sign_in())))

    assert (told.code, told.reason) == (grpc.StatusCode.INTERNAL, "DEFECT")
    assert "0000" not in told.sentence
    events = [json.loads(line) for line in logged.getvalue().splitlines()]
    (defect,) = [event for event in events if event["event"] == "rpc.defect"]
    assert told.metadata == {"id": defect["defect_id"]}
    assert defect["rpc"] == "/tutelage.runtime.v1.TurnService/GetTurn"
    assert "the launch code is 0000" in defect["exception"]


async def test_the_cancellation_of_something_else_is_a_defect_and_is_answered(
    serving: Serving, sign_in: SignIn
) -> None:
    """gRPC takes any CancelledError for the call's own, and would leave the caller without an answer."""
    async with serving(added(turns_with())) as served:
        told = await refusal(
            served.turns.AbandonTurn(turns_pb2.AbandonTurnRequest(), metadata=bearer(sign_in()), timeout=20)
        )

    assert told.reason == "DEFECT"


async def test_an_answer_that_cannot_be_written_is_a_defect(serving: Serving, sign_in: SignIn) -> None:
    async with serving(added(turns_with())) as served:
        told = await refusal(served.turns.ListTurns(turns_pb2.ListTurnsRequest(), metadata=bearer(sign_in())))

    assert told.reason == "DEFECT"


async def test_what_a_servicer_does_not_do_is_not_in_this_release(serving: Serving, sign_in: SignIn) -> None:
    nothing = approvals_pb2_grpc.ApprovalServiceServicer()  # type: ignore[abstract]
    services: list[Service] = [(approvals_pb2_grpc.add_ApprovalServiceServicer_to_server, nothing)]
    async with serving(services) as served:
        stub = approvals_pb2_grpc.ApprovalServiceStub(served.channel)
        unary = await refusal(stub.GetApproval(approvals_pb2.GetApprovalRequest(), metadata=bearer(sign_in())))
        stream = await refusal(stub.WatchApprovals(approvals_pb2.WatchApprovalsRequest(), metadata=bearer(sign_in())))

    assert (unary.code, unary.reason) == (grpc.StatusCode.UNIMPLEMENTED, "NOT_IN_THIS_RELEASE")
    assert (stream.code, stream.reason) == (grpc.StatusCode.UNIMPLEMENTED, "NOT_IN_THIS_RELEASE")


async def test_a_request_over_4_mib_is_refused_by_reason(serving: Serving, sign_in: SignIn) -> None:
    """Settled 20: the transport takes 8 MiB, so that the refusal can say why."""
    async with serving(added(turns_with())) as served:
        fits = turns_pb2.GetTurnRequest(turn_id="x" * (4 * 1024 * 1024 - 5))
        answered = await served.turns.GetTurn(fits, metadata=bearer(sign_in()))
        told = await refusal(
            served.turns.GetTurn(turns_pb2.GetTurnRequest(turn_id="x" * (4 * 1024 * 1024)), metadata=bearer(sign_in()))
        )

    assert fits.ByteSize() == 4 * 1024 * 1024
    assert fits.turn_id == answered.turn.id
    assert (told.code, told.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")


async def test_bytes_that_are_no_message_are_refused_by_reason(serving: Serving, sign_in: SignIn) -> None:
    async with serving(added(turns_with())) as served:
        call: Any = served.channel.unary_unary("/tutelage.runtime.v1.TurnService/GetTurn")
        told = await refusal(call(b"\xff\xff\xff", metadata=bearer(sign_in())))

    assert told.reason == "INVALID_FIELD"


def test_what_is_told_fits_into_metadata_and_says_what_was_left_out() -> None:
    """Metadata over 8 KiB dies on the way: fields are left out whole, from the end, and counted."""
    many = [(f"resolutions[{n}].call_id", "é" * 400) for n in range(1_000)]
    problem = InvalidField(many)
    problem.metadata = {f"key{n}": "v" * 5_000 for n in range(10)}

    status = status_of(problem, "runtime.tutelage")

    assert status.ByteSize() < 4_096
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(bad)
    assert many[0][0] == bad.field_violations[0].field
    assert len(bad.field_violations) + int(info.metadata["fields_left_out"]) == 1_000


async def test_a_stream_whose_client_went_cleans_up(serving: Serving, sign_in: SignIn) -> None:
    turns = turns_with()
    async with serving(added(turns)) as served:
        call = served.turns.WatchTurn(turns_pb2.WatchTurnRequest(), metadata=bearer(sign_in()))
        await call.read()
        call.cancel()
        await asyncio.wait_for(turns.cleaned_up.wait(), 10)


async def test_a_stream_whose_client_went_while_it_was_sending_cleans_up(serving: Serving, sign_in: SignIn) -> None:
    turns = turns_with()
    async with serving(added(turns)) as served:
        call = served.turns.StreamAgent(turns_pb2.StreamAgentRequest(), metadata=bearer(sign_in()))
        await call.read()
        call.cancel()
        await asyncio.wait_for(turns.cleaned_up.wait(), 10)
