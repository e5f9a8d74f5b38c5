"""Problems, and what a caller is told of them.

A servicer raises; nobody but `ErrorsInterceptor` writes a status code. It stands outermost, so that what
other interceptors raise is told alike.

    KitProblem
    ├── NotSignedIn         ├── NoSuchThing          ├── CursorExpired
    ├── NotAdmitted         ├── RequestIdReused      ├── PartUnavailable
    ├── PersonRequired      ├── QuotaExceeded        └── NotInThisRelease
    └── InvalidField
    SetupProblem            (keeps a service from starting; no caller ever sees it)

Invariants: every error has a reason of `STATUS_OF` and its one status code; the text of an exception that
is not a `Problem` never leaves the process; what is sent fits into the metadata of one answer.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import grpc
import structlog
from google.protobuf.any import pack
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

log = structlog.get_logger()

STATUS_OF: Mapping[str, grpc.StatusCode] = {
    "NOT_SIGNED_IN": grpc.StatusCode.UNAUTHENTICATED,
    "NOT_ADMITTED": grpc.StatusCode.PERMISSION_DENIED,
    "PERSON_REQUIRED": grpc.StatusCode.PERMISSION_DENIED,
    "INVALID_FIELD": grpc.StatusCode.INVALID_ARGUMENT,
    "NO_SUCH_THING": grpc.StatusCode.NOT_FOUND,
    "REQUEST_ID_REUSED": grpc.StatusCode.ALREADY_EXISTS,
    "QUOTA_EXCEEDED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "PART_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "NOT_IN_THIS_RELEASE": grpc.StatusCode.UNIMPLEMENTED,
    "SIGN_IN_AGAIN": grpc.StatusCode.UNAUTHENTICATED,
    "DEFECT": grpc.StatusCode.INTERNAL,
    "APPROVAL_REQUIRED": grpc.StatusCode.FAILED_PRECONDITION,
    "TURN_WAITING": grpc.StatusCode.FAILED_PRECONDITION,
    "TURN_UNFINISHED": grpc.StatusCode.FAILED_PRECONDITION,
    "TURN_ENDED": grpc.StatusCode.FAILED_PRECONDITION,
    "WRITER_SUPERSEDED": grpc.StatusCode.ABORTED,
    "ALREADY_DECIDED": grpc.StatusCode.FAILED_PRECONDITION,
    "FINGERPRINT_CHANGED": grpc.StatusCode.ABORTED,
    "INSTRUCTIONS_CHANGED": grpc.StatusCode.ABORTED,
    "APPROVAL_EXPIRED": grpc.StatusCode.FAILED_PRECONDITION,
    "NOT_PUT_TO_YOU": grpc.StatusCode.PERMISSION_DENIED,
    "NO_TOOL_HOST": grpc.StatusCode.FAILED_PRECONDITION,
    "CURSOR_EXPIRED": grpc.StatusCode.OUT_OF_RANGE,
    "CONVERSATION_BUSY": grpc.StatusCode.FAILED_PRECONDITION,
    "INPUT_DOES_NOT_FIT": grpc.StatusCode.INVALID_ARGUMENT,
    "TURN_HELD": grpc.StatusCode.FAILED_PRECONDITION,
    "LIMIT_REACHED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "INSTRUCTION_STATE": grpc.StatusCode.FAILED_PRECONDITION,
    "TOO_MUCH_TO_SEND": grpc.StatusCode.FAILED_PRECONDITION,
    "SET_MOVED_ON": grpc.StatusCode.ABORTED,
    "CORRECTION_GONE": grpc.StatusCode.FAILED_PRECONDITION,
    "MEMBERS_ERASED": grpc.StatusCode.FAILED_PRECONDITION,
    "ALREADY_ON_SET": grpc.StatusCode.FAILED_PRECONDITION,
    "WORDS_CHANGED": grpc.StatusCode.ABORTED,
}

MOST_REQUEST_BYTES = 4 * 1024 * 1024
# An answer's metadata dies somewhere on the way past 8 KiB. The details grow by a third in base64, and
# the sentence is sent beside them once more.
MOST_DETAILS_BYTES = 4_000
MOST_SENTENCE_BYTES = 500
MOST_VALUE_BYTES = 1_000


@runtime_checkable
class Problem(Protocol):
    """What an exception carries that a caller may be told of. Its `str` is the sentence for the caller."""

    @property
    def reason(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...
    @property
    def fields(self) -> Sequence[tuple[str, str]]: ...
    @property
    def retry_after(self) -> float | None: ...


class KitProblem(Exception):
    """The root of the problems that any service can meet."""

    reason: str = "DEFECT"
    sentence: str = "Something is wrong."

    def __init__(
        self,
        sentence: str = "",
        *,
        metadata: Mapping[str, str] | None = None,
        fields: Sequence[tuple[str, str]] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(sentence or self.sentence)
        self.metadata: Mapping[str, str] = metadata or {}
        self.fields: Sequence[tuple[str, str]] = tuple(fields)
        self.retry_after = retry_after


class NotSignedIn(KitProblem):
    """No token, or one that does not verify, or no longer."""

    reason = "NOT_SIGNED_IN"
    sentence = "Sign in: this call needs a token."


class NotAdmitted(KitProblem):
    """The caller's roles do not admit this."""

    reason = "NOT_ADMITTED"
    sentence = "Your roles do not admit this."


class PersonRequired(KitProblem):
    """Only a signed-in person may do this (R3.4)."""

    reason = "PERSON_REQUIRED"
    sentence = "Only a signed-in person may do this."


class InvalidField(KitProblem):
    """Fields whose values are not allowed: every one of them, each with what is wrong (R12)."""

    reason = "INVALID_FIELD"

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        super().__init__(" ".join(f"{path}: {wrong}" for path, wrong in fields), fields=fields)


class NoSuchThing(KitProblem):
    """Nothing of that id exists that the caller may see."""

    reason = "NO_SUCH_THING"
    sentence = "There is no such thing that you may see."


class RequestIdReused(KitProblem):
    """The same `request_id` with another request."""

    reason = "REQUEST_ID_REUSED"
    sentence = "This request_id was used before with another request. Choose a new one."


class QuotaExceeded(KitProblem):
    """A quota of the caller's tenant is used up; `retry_after` says when to try again."""

    reason = "QUOTA_EXCEEDED"
    sentence = "A quota of your tenant is used up."


class PartUnavailable(KitProblem):
    """A part that this needs does not answer. Raised only where nothing was done."""

    reason = "PART_UNAVAILABLE"
    sentence = "A part that this call needs does not answer. Try again."


class NotInThisRelease(KitProblem):
    """The contract has it, this release does not."""

    reason = "NOT_IN_THIS_RELEASE"
    sentence = "This release does not do this yet."


class CursorExpired(KitProblem):
    """A cursor of another filter or database, or one that is too old (settled 18)."""

    reason = "CURSOR_EXPIRED"
    sentence = "This cursor does not hold here. Watch again without one."


class SetupProblem(Exception):
    """What keeps a service from starting, and what to do about it, in one line for its operator."""


def status_of(problem: Problem, domain: str) -> status_pb2.Status:
    """Make the status that tells a problem, cut to what metadata can carry.

    What does not fit is left out whole, from the end; `fields_left_out` in the metadata counts it.
    """
    code: int = STATUS_OF[problem.reason].value[0]
    status = status_pb2.Status(code=code, message=_cut(str(problem), MOST_SENTENCE_BYTES))
    info = error_details_pb2.ErrorInfo(reason=problem.reason, domain=domain)
    for key, value in problem.metadata.items():
        info.metadata[key] = _cut(value, MOST_VALUE_BYTES)
        if info.ByteSize() > MOST_DETAILS_BYTES // 2:
            del info.metadata[key]
    details: list[Any] = []
    if problem.fields:
        bad, left_out = _bad_request(problem.fields, MOST_DETAILS_BYTES // 3)
        details.append(bad)
        if left_out:
            info.metadata["fields_left_out"] = str(left_out)
    if problem.retry_after is not None:
        delay = Duration()
        delay.FromMilliseconds(int(problem.retry_after * 1000))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    status.details.extend(pack(detail) for detail in [info, *details])
    return status


def _bad_request(fields: Sequence[tuple[str, str]], most_bytes: int) -> tuple[error_details_pb2.BadRequest, int]:
    bad = error_details_pb2.BadRequest()
    for path, wrong in fields:
        bad.field_violations.add(field=_cut(path, 200), description=_cut(wrong, 300))
        if bad.ByteSize() > most_bytes:
            del bad.field_violations[-1]
            break
    return bad, len(fields) - len(bad.field_violations)


def _cut(text: str, most_bytes: int) -> str:
    raw = text.encode("utf-8", "replace")
    return raw.decode() if len(raw) <= most_bytes else raw[: most_bytes - 3].decode("utf-8", "ignore") + "…"


# Quoted: these are generic in their stubs alone.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class ErrorsInterceptor(grpc.aio.ServerInterceptor):
    """Tells callers of every problem as `google.rpc` details, and of everything else as a defect.

    It reads and writes the messages itself, so that a request that is too large (settled 20) or is none,
    and an answer that cannot be written, are told like the rest. Streaming handlers must be async
    generators. An RPC that a servicer leaves to its generated base answers `NOT_IN_THIS_RELEASE`.
    """

    def __init__(self, domain: str) -> None:
        self._domain = domain

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        method = handler_call_details.method
        try:
            handler = await continuation(handler_call_details)
        except Exception as error:
            return self._refusal(method, error)
        return handler and self._guarded(method, handler)

    def _refusal(self, method: str, error: Exception) -> Handler:
        """Make a handler that says no before it reads anything, whatever the shape of the call."""

        async def refuse(_requests: object, context: Context) -> AsyncIterator[bytes]:
            async with _Telling(self._domain, method, context):
                raise error
            yield b""

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _guarded(self, method: str, handler: Handler) -> Handler:
        behaviour = _behaviour_of(handler)
        read = _reader(handler)
        write: Callable[[Any], bytes] = handler.response_serializer or bytes
        many = handler.response_streaming
        fits = inspect.isasyncgenfunction if many else inspect.iscoroutinefunction
        what_is_wrong = None if fits(behaviour) else _not_served(behaviour)

        def request_of(raw: Any) -> Any:
            if what_is_wrong:
                raise what_is_wrong
            return _Requests(raw, read) if handler.request_streaming else read(raw)

        async def answer(raw: Any, context: Context) -> bytes:
            async with _Telling(self._domain, method, context):
                return write(await behaviour(request_of(raw), context))

        async def answers(raw: Any, context: Context) -> AsyncIterator[bytes]:
            # Closed here: a generator that is left to the collector cleans up at any time.
            async with (
                _Telling(self._domain, method, context),
                aclosing(behaviour(request_of(raw), context)) as messages,
            ):
                async for message in messages:
                    yield write(message)

        if handler.request_streaming:
            return (
                grpc.stream_stream_rpc_method_handler(answers) if many else grpc.stream_unary_rpc_method_handler(answer)
            )
        return grpc.unary_stream_rpc_method_handler(answers) if many else grpc.unary_unary_rpc_method_handler(answer)


def _behaviour_of(handler: Handler) -> Callable[[Any, Context], Any]:
    kinds: tuple[Any, ...] = (
        handler.unary_unary,
        handler.unary_stream,
        handler.stream_unary,
        handler.stream_stream,
    )
    behaviour: Callable[[Any, Context], Any] = next(kind for kind in kinds if kind is not None)
    return behaviour


def _not_served(behaviour: Callable[..., Any]) -> Exception:
    if getattr(behaviour, "__module__", "").endswith("_pb2_grpc"):
        return NotInThisRelease()
    return TypeError("a streaming handler must be an async generator, any other a coroutine function")


def _reader(handler: Handler) -> Callable[[bytes], Any]:
    parse: Callable[[bytes], Any] = handler.request_deserializer or bytes

    def read(raw: bytes) -> Any:
        if len(raw) > MOST_REQUEST_BYTES:
            raise InvalidField([("request", f"is larger than {MOST_REQUEST_BYTES} bytes")])
        try:
            return parse(raw)
        except DecodeError:
            raise InvalidField([("request", "is not a message of this call")]) from None

    return read


class _Requests:
    """The messages of a stream, each read as the handler asks for it."""

    def __init__(self, raw: AsyncIterable[bytes], read: Callable[[bytes], Any]) -> None:
        self._raw = aiter(raw)
        self._read = read

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._read(await anext(self._raw))


class _Telling:
    """A block whose problems end the call with a status."""

    def __init__(self, domain: str, method: str, context: Context) -> None:
        self._domain, self._method, self._context = domain, method, context

    async def __aenter__(self) -> None: ...

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, grpc.aio.AbortError) or not self._is_ours(error):
            return
        problem = error if isinstance(error, Problem) and error.reason in STATUS_OF else self._defect(error)
        status = rpc_status.to_status(status_of(problem, self._domain))
        await self._context.abort_with_status(status)

    @staticmethod
    def _is_ours(error: BaseException) -> bool:
        # The cancellation of something that the handler waited for is not the call's own: gRPC would
        # take it for that and never answer.
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            return task is not None and not task.cancelling()
        return isinstance(error, Exception)

    def _defect(self, error: BaseException) -> Problem:
        defect_id = secrets.token_hex(8)
        log.error("rpc.defect", defect_id=defect_id, rpc=self._method, exc_info=error)
        return KitProblem(
            f"This is a defect of the service. Its log has the id {defect_id}.", metadata={"id": defect_id}
        )
