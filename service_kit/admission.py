"""Who may call which RPC: a service's table of kinds and roles, held against every call.

Invariants: the kind of caller is checked before any role; an RPC that is not in the table is refused to everybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import grpc

from service_kit.errors import Continuation, Handler, NotAdmitted, PersonRequired
from service_kit.identity import Caller, current_caller


@dataclass(frozen=True, slots=True)
class Admits:
    """Who may call: one of these roles (none: anybody signed in), of this kind alone."""

    roles: tuple[str, ...] = ()
    kind: str = ""


Table: TypeAlias = Mapping[str, Mapping[str, Admits]]


def admit(table: Table, caller: Caller, service: str, method: str) -> None:
    """Let a caller through to an RPC. Raises `PersonRequired`, `NotAdmitted`."""
    admits = table.get(service, {}).get(method)
    if admits is None:
        raise _not_admitted(f"call {method}")
    if admits.kind == "PERSON" and not caller.is_person():
        raise PersonRequired(
            "Only a signed-in person may decide this: no program, no agent, and neither on a person's behalf."
        )
    if admits.kind and caller.kind != admits.kind:
        raise _not_admitted(f"call {method}: it is for programs", admits.roles)
    if admits.roles and caller.roles.isdisjoint(admits.roles):
        raise _not_admitted(f"call {method}", admits.roles)


def _not_admitted(what: str, roles: Sequence[str] = ()) -> NotAdmitted:
    needed = f" It needs {' or '.join(f'`{role}`' for role in roles)}." if roles else ""
    metadata = {"roles": ",".join(roles)} if roles else {}
    return NotAdmitted(f"Your roles do not let you {what}.{needed}", metadata=metadata)


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """Holds every call of a service against its table. Stands inside `IdentityInterceptor`."""

    def __init__(self, table: Table) -> None:
        self._table = table

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        _, service, method = handler_call_details.method.split("/")
        if handler is not None and service.startswith("tutelage."):
            admit(self._table, current_caller(), service.rpartition(".")[2], method)
        return handler
