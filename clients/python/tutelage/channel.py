"""The connection to a service: who calls, for how long, and what is tried again.

Every call over it carries the caller's token, a unary one a deadline, and each failure is raised as a
`TutelageError`. A unary call that is repeatable (it reads, or carries a `request_id`) is tried again where
the service was away; anything else is never sent twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc import aio

from tutelage.errors import error_of

Token = str | Callable[[], str]

DEADLINE_SECONDS = 30.0
MESSAGE_BYTES = 8 * 1024 * 1024
TRIES = 4
FIRST_PAUSE_SECONDS = 0.1

# A server must permit a ping every 10 seconds. Without `ping_timeout_ms` a silent peer is noticed too late.
OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
READS = ("Get", "List", "Preview", "Explain", "Check")


def open_channel(address: str, token: Token, tls: grpc.ChannelCredentials | None = None) -> aio.Channel:
    """Make a channel to `address` whose calls carry `token`; it connects with its first call.

    Without `tls` what goes over it can be read on the way, the token too: for loopback, and where
    something else encrypts.
    """
    caller = _Caller(token)
    interceptors = [_Unary(caller), _ResponseStream(caller), _BothStreams(caller)]
    if tls is None:
        return aio.insecure_channel(address, options=OPTIONS, interceptors=interceptors)
    return aio.secure_channel(address, tls, options=OPTIONS, interceptors=interceptors)


def pause_before(attempt: int, longest: float) -> float:
    """Return the seconds before the next try: twice as many each time, at most `longest`, jittered."""
    pause = min(longest, FIRST_PAUSE_SECONDS * float(2 ** min(attempt, 16)))
    return random.uniform(0.5, 1.0) * pause  # noqa: S311


class _Caller:
    """Whose calls these are."""

    def __init__(self, token: Token) -> None:
        self._token = token

    def signed(self, details: Any, timeout: float | None) -> aio.ClientCallDetails:
        token = self._token if isinstance(self._token, str) else self._token()
        metadata = aio.Metadata(*(details.metadata or ()))
        if token:
            metadata.add("authorization", f"Bearer {token}")
        return aio.ClientCallDetails(
            details.method, timeout, metadata, details.credentials, wait_for_ready=details.wait_for_ready
        )


class _Unary(aio.UnaryUnaryClientInterceptor):
    def __init__(self, caller: _Caller) -> None:
        self._caller = caller

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        clock = asyncio.get_running_loop().time
        given = client_call_details.timeout
        ends = clock() + (DEADLINE_SECONDS if given is None else given)
        tries = TRIES if _repeatable(client_call_details.method, request) else 1
        for attempt in range(tries):
            try:
                call = await continuation(self._caller.signed(client_call_details, ends - clock()), request)
                return await call
            except aio.AioRpcError as failure:
                error = error_of(failure)
                pause = max(pause_before(attempt, DEADLINE_SECONDS), error.retry_after or 0.0)
                again = attempt + 1 < tries and clock() + pause < ends
                if failure.code() is not grpc.StatusCode.UNAVAILABLE or not again:
                    raise error from failure
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")


class _ResponseStream(aio.UnaryStreamClientInterceptor):
    def __init__(self, caller: _Caller) -> None:
        self._caller = caller

    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        signed = self._caller.signed(client_call_details, client_call_details.timeout)
        return _told(await continuation(signed, request))


class _BothStreams(aio.StreamStreamClientInterceptor):
    def __init__(self, caller: _Caller) -> None:
        self._caller = caller

    async def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        signed = self._caller.signed(client_call_details, client_call_details.timeout)
        return _told(await continuation(signed, request_iterator))


async def _told(call: Any) -> AsyncIterator[Any]:
    try:
        async for response in call:
            yield response
    except aio.AioRpcError as failure:
        raise error_of(failure) from failure


def _repeatable(method: bytes | str, request: Any) -> bool:
    text = method.decode() if isinstance(method, bytes) else method
    name = text.rpartition("/")[2]
    return name.startswith(READS) or name == "ReportResults" or bool(getattr(request, "request_id", ""))
