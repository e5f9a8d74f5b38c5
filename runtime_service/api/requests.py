"""Requests that may come again: their key, and what they asked (`runtime.md` R9)."""

from __future__ import annotations

from dataclasses import asdict

from google.protobuf.message import Message

from runtime_service.domain.ledger import Repeatable, RequestKey
from service_kit import idempotency
from service_kit.identity import Caller


def repeatable(caller: Caller, rpc: str, request: Message) -> Repeatable | None:
    """Return what makes a request the same again; None where it has no `request_id`."""
    again = idempotency.repeatable(caller, caller.tenant, rpc, request)
    return None if again is None else Repeatable(RequestKey(**asdict(again.key)), again.digest)
