"""Requests that may come again: their key, and what they asked (`runtime.md` R9)."""

from __future__ import annotations

from google.protobuf.message import Message

from runtime_service.domain.ledger import Repeatable, RequestKey
from service_kit.idempotency import request_digest
from service_kit.identity import Caller


def repeatable(caller: Caller, rpc: str, request: Message) -> Repeatable | None:
    """Return what makes a request the same again; None where it has no `request_id`."""
    request_id: str = request.request_id  # type: ignore[attr-defined]
    if not request_id:
        return None
    return Repeatable(RequestKey(caller.tenant, caller.id, rpc, request_id), request_digest(request))
