"""How a watch begins, goes on and ends, over real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from tutelage.runtime.v1 import turns_pb2, turns_pb2_grpc

from service_kit.errors import NotSignedIn
from service_kit.feeds import Bell
from service_kit.grpc_server import Service
from service_kit.identity import current_caller
from service_kit.streams import Streams
from tests.kit.conftest import Served, Serving, SignIn, Told, bearer

LATER = datetime.now(UTC) + timedelta(hours=1)


class Source:
    """What there is to see, and one reader's place in it."""

    def __init__(self) -> None:
        self.items: list[int] = []
        self.position = 0

    async def look(self) -> tuple[list[str], bool]:
        news = self.items[self.position : self.position + 10]
        self.position += len(news)
        return [str(item) for item in news], len(news) == 10

    def bookmark(self) -> str:
        return f"bookmark at {self.position}"


async def drained(items: Any) -> None:
    async for _ in items:
        await asyncio.sleep(0)


def follow(streams: Streams, bell: Bell, source: Source, expires_at: datetime = LATER) -> Any:
    return streams.follow(bell, "t", source.look, bookmark=source.bookmark, expires_at=expires_at)


async def test_a_stream_sends_what_there_is_and_then_what_comes() -> None:
    """A poll that is far away shows that it was the bell."""
    bell, source = Bell(), Source()
    source.items.extend(range(25))
    async with aclosing(follow(Streams(poll_seconds=60), bell, source)) as stream:
        seen = [await anext(stream) for _ in range(25)]
        coming = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        source.items.append(25)
        bell.ring("t")
        seen.append(await asyncio.wait_for(coming, 10))

    assert seen == [str(n) for n in range(26)]


async def test_a_change_that_nobody_rang_for_is_found_by_the_poll() -> None:
    """Another process's change; a bell that broke."""
    source = Source()
    async with aclosing(follow(Streams(poll_seconds=0.02), Bell(), source)) as stream:
        coming = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        source.items.append(7)
        assert await asyncio.wait_for(coming, 10) == "7"


async def test_a_quiet_stream_sends_bookmarks() -> None:
    source = Source()
    source.items.append(7)
    streams = Streams(poll_seconds=0.01, bookmark_seconds=0.03)
    async with aclosing(follow(streams, Bell(), source)) as stream:
        seen = [await anext(stream) for _ in range(3)]

    assert seen == ["7", "bookmark at 1", "bookmark at 1"]


async def test_a_stream_that_had_its_time_ends_with_a_bookmark() -> None:
    """Also one that is never quiet; the bookmark covers what was sent."""

    class Endless(Source):
        async def look(self) -> tuple[list[str], bool]:
            await asyncio.sleep(0.001)
            self.items.append(7)
            return await super().look()

    for source in (Source(), Endless()):
        stream = follow(Streams(poll_seconds=0.01, longest_seconds=0.05), Bell(), source)
        seen = [item async for item in stream]
        assert seen[-1] == f"bookmark at {len(seen) - 1}"


async def test_a_stream_ends_with_its_token() -> None:
    """R10, also while there is always something to send."""
    quiet, busy = Source(), Source()
    busy.items.extend([7] * 1_000_000)
    for source in (quiet, busy):
        expires_at = datetime.now(UTC) + timedelta(seconds=0.05)
        with pytest.raises(NotSignedIn):
            await drained(follow(Streams(), Bell(), source, expires_at))
        assert timedelta() <= datetime.now(UTC) - expires_at < timedelta(seconds=5)


async def test_a_stream_that_is_left_listens_no_more() -> None:
    bell, streams = Bell(), Streams()
    source = Source()
    source.items.append(7)
    async with aclosing(follow(streams, bell, source)) as stream:
        await anext(stream)

    assert not bell._listeners
    assert not streams._open


class Turns(turns_pb2_grpc.TurnServiceServicer):
    """Watches that show the numbers of one source."""

    def __init__(self, streams: Streams) -> None:
        self.streams, self.bell, self.items = streams, Bell(), [1]
        self.over = asyncio.Event()

    async def WatchTurn(self, request: Any, context: Any) -> AsyncIterator[turns_pb2.WatchTurnResponse]:
        source = Source()
        source.items = self.items
        stream = self.streams.follow(
            self.bell, "t", source.look, bookmark=source.bookmark, expires_at=current_caller().expires_at
        )
        try:
            async with aclosing(stream) as items:
                async for item in items:
                    yield turns_pb2.WatchTurnResponse(event=turns_pb2.TurnEvent(cursor=item))
        finally:
            self.over.set()


def service(streams: Streams) -> tuple[Turns, list[Service]]:
    turns = Turns(streams)  # type: ignore[abstract]
    return turns, [(turns_pb2_grpc.add_TurnServiceServicer_to_server, turns)]


def watch(served: Served, token: str) -> Any:
    return served.turns.WatchTurn(turns_pb2.WatchTurnRequest(), metadata=bearer(token))


async def test_two_hundred_open_streams_end_at_once_and_in_order_as_the_server_stops(
    serving: Serving, sign_in: SignIn
) -> None:
    streams = Streams()
    _, services = service(streams)
    async with serving(services, streams=streams) as served:
        watches = [watch(served, sign_in()) for _ in range(200)]
        for one in watches:
            assert (await one.read()).event.cursor == "1"
        began = time.monotonic()
        await served.server.stop(10)
        took = time.monotonic() - began
        last = [[message async for message in _rest(one)] for one in watches]
        codes = {await one.code() for one in watches}

    assert took < 5
    assert last == [["bookmark at 1"]] * 200
    assert codes == {grpc.StatusCode.OK}


async def _rest(call: Any) -> AsyncIterator[str]:
    while (message := await call.read()) is not grpc.aio.EOF:
        yield message.event.cursor


async def test_a_watch_is_told_that_its_token_has_expired(serving: Serving, sign_in: SignIn) -> None:
    streams = Streams()
    _, services = service(streams)
    async with serving(services, streams=streams) as served:
        call = watch(served, sign_in(exp=int(time.time()) + 2))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await drained(call)

    assert (await Told.by(caught.value)).reason == "NOT_SIGNED_IN"


async def test_a_watch_whose_client_went_is_over(serving: Serving, sign_in: SignIn) -> None:
    streams = Streams()
    turns, services = service(streams)
    async with serving(services, streams=streams) as served:
        call = watch(served, sign_in())
        await call.read()
        assert turns.bell._listeners
        call.cancel()
        await asyncio.wait_for(turns.over.wait(), 10)

    assert not turns.bell._listeners
