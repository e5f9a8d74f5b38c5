"""What every call over the client carries, and what becomes of a failed one."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from tutelage.client import Tutelage, connect
from tutelage.errors import TutelageError
from tutelage.runtime.v1.turns_pb2 import (
    AbandonTurnRequest,
    AbandonTurnResponse,
    GetTurnRequest,
    GetTurnResponse,
    Turn,
    WatchTurnRequest,
)

from tests.client.runtime_double import RuntimeDouble, refuse


async def found(request: Any, context: Any) -> GetTurnResponse:
    return GetTurnResponse(turn=Turn(id=request.turn_id))


async def away(request: Any, context: Any) -> None:
    await refuse(context, grpc.StatusCode.UNAVAILABLE, "PART_UNAVAILABLE")


async def test_a_call_carries_the_token_and_a_deadline(double: RuntimeDouble, runtime: Tutelage) -> None:
    double.turns.answers = [found]

    response = await runtime.turns.GetTurn(GetTurnRequest(turn_id="t1"))

    assert response.turn.id == "t1"
    assert double.turns.metadata[0]["authorization"] == "Bearer the-token"
    # gRPC rounds a deadline up on its way.
    assert 25 < double.turns.remaining[0] < 31


async def test_a_deadline_that_is_given_holds(double: RuntimeDouble, runtime: Tutelage) -> None:
    double.turns.answers = [found]

    await runtime.turns.GetTurn(GetTurnRequest(turn_id="t1"), timeout=300)

    assert 200 < double.turns.remaining[0] < 301


async def test_a_token_is_asked_for_anew_at_each_call(double: RuntimeDouble) -> None:
    """A program that outlives its token gives a function."""
    double.turns.answers = [found, found]
    tokens = iter(["first", "second"])

    async with connect(double.address, lambda: next(tokens)) as client:
        await client.turns.GetTurn(GetTurnRequest(turn_id="t1"))
        await client.turns.GetTurn(GetTurnRequest(turn_id="t1"))

    assert [each["authorization"] for each in double.turns.metadata] == ["Bearer first", "Bearer second"]


async def test_a_failure_tells_reason_metadata_and_every_wrong_field(double: RuntimeDouble, runtime: Tutelage) -> None:
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="work.input", description="must not be empty")
    bad.field_violations.add(field="request_id", description="is too long")
    retry = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=2, nanos=500_000_000))

    async def invalid(request: Any, context: Any) -> None:
        await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", "two fields are wrong", bad, retry)

    double.turns.answers = [invalid]

    with pytest.raises(TutelageError) as caught:
        await runtime.turns.GetTurn(GetTurnRequest(turn_id="t1"))

    error = caught.value
    assert str(error) == "two fields are wrong"
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.reason == "INVALID_FIELD"
    assert error.metadata == {"turn_id": "t1"}
    assert error.fields == (("work.input", "must not be empty"), ("request_id", "is too long"))
    assert error.retry_after == 2.5
    assert not error.passing


async def test_a_stream_fails_with_the_same_error(double: RuntimeDouble, runtime: Tutelage) -> None:
    async def unseen(request: Any, context: Any) -> Any:
        await refuse(context, grpc.StatusCode.NOT_FOUND, "NO_SUCH_THING")
        yield None

    double.turns.streams = [unseen]

    with pytest.raises(TutelageError) as caught:
        async for _ in runtime.turns.WatchTurn(WatchTurnRequest(turn_id="t1")):
            pass

    assert caught.value.reason == "NO_SUCH_THING"


async def test_a_read_is_tried_again_while_a_part_is_away(double: RuntimeDouble, runtime: Tutelage) -> None:
    double.turns.answers = [away, away, found]

    response = await runtime.turns.GetTurn(GetTurnRequest(turn_id="t1"))

    assert response.turn.id == "t1"
    assert len(double.turns.asked) == 3


async def test_the_tries_are_bounded(double: RuntimeDouble, runtime: Tutelage) -> None:
    double.turns.answers = [away] * 10

    with pytest.raises(TutelageError) as caught:
        await runtime.turns.GetTurn(GetTurnRequest(turn_id="t1"))

    assert caught.value.reason == "PART_UNAVAILABLE"
    assert len(double.turns.asked) == 4


async def test_no_try_goes_past_the_deadline(double: RuntimeDouble, runtime: Tutelage) -> None:
    later = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=20))

    async def away_for_long(request: Any, context: Any) -> None:
        await refuse(context, grpc.StatusCode.UNAVAILABLE, "PART_UNAVAILABLE", "away", later)

    double.turns.answers = [away_for_long, found]

    with pytest.raises(TutelageError) as caught:
        await runtime.turns.GetTurn(GetTurnRequest(turn_id="t1"), timeout=5)

    assert caught.value.reason == "PART_UNAVAILABLE"
    assert len(double.turns.asked) == 1


@pytest.mark.parametrize(("request_id", "times"), [("", 1), ("r1", 2)])
async def test_a_change_is_tried_again_only_under_a_request_id(
    double: RuntimeDouble, runtime: Tutelage, request_id: str, times: int
) -> None:
    """Scenario 6: a retry is the same call; without an id it might be done twice."""

    async def ended(request: Any, context: Any) -> AbandonTurnResponse:
        return AbandonTurnResponse(turn=Turn(id=request.turn_id))

    double.turns.answers = [away, ended]
    asking = runtime.turns.AbandonTurn(AbandonTurnRequest(turn_id="t1", request_id=request_id))

    if request_id:
        assert (await asking).turn.id == "t1"
    else:
        with pytest.raises(TutelageError):
            await asking

    assert len(double.turns.asked) == times


async def test_nobody_there_is_an_error_without_a_reason() -> None:
    async with connect("127.0.0.1:1", "the-token") as client:
        with pytest.raises(TutelageError) as caught:
            await client.turns.AbandonTurn(AbandonTurnRequest(turn_id="t1"))

    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    assert caught.value.reason == ""
    assert caught.value.passing
