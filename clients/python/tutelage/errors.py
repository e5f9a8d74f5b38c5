"""What went wrong, as the services tell it.

Every failed call of this package raises one thing: `TutelageError`. Its `reason` is the name of an
`ErrorReason` without the prefix (`TURN_ENDED`), the same in every language. It is empty where gRPC itself
gave up: nobody answered, or the deadline passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

STATUS_DETAILS = "grpc-status-details-bin"


class TutelageError(Exception):
    """A call failed. `str(error)` is the sentence for whoever called.

    `fields` has every wrong field of an `INVALID_FIELD` with what is wrong about it. `retry_after` is how
    many seconds the service asks to wait, where it asks.
    """

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str = "",
        metadata: Mapping[str, str] = MappingProxyType({}),
        fields: Sequence[tuple[str, str]] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata = metadata
        self.fields = tuple(fields)
        self.retry_after = retry_after

    @property
    def passing(self) -> bool:
        """Whether the same may succeed later: a part is away, or the connection broke on the way."""
        broken = self.code in (grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
        return self.code is grpc.StatusCode.UNAVAILABLE or (broken and not self.reason)


def error_of(failure: grpc.RpcError) -> TutelageError:
    """Read a gRPC failure: its status, and the `google.rpc` details that the services send with it."""
    reason, retry_after = "", None
    metadata: dict[str, str] = {}
    fields: list[tuple[str, str]] = []
    for detail in _details(failure):
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo.FromString(detail.value)
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            violations = error_details_pb2.BadRequest.FromString(detail.value).field_violations
            fields = [(violation.field, violation.description) for violation in violations]
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            delay = error_details_pb2.RetryInfo.FromString(detail.value).retry_delay
            retry_after = delay.ToTimedelta().total_seconds()
    return TutelageError(
        failure.details() or failure.code().name,
        code=failure.code(),
        reason=reason,
        metadata=MappingProxyType(metadata),
        fields=fields,
        retry_after=retry_after,
    )


def _details(failure: grpc.RpcError) -> Sequence[AnyMessage]:
    sent: Any = failure.trailing_metadata()
    for key, value in sent or ():
        if key == STATUS_DETAILS:
            try:
                details: Sequence[AnyMessage] = status_pb2.Status.FromString(value).details
            except DecodeError:  # not of our services' making
                return ()
            return details
    return ()
